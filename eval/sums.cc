#include "tidepool/eval/sums.h"

#include <cmath>

#include "tidepool/eval/state_format.h"

namespace tidepool {
namespace {

__extension__ typedef unsigned __int128 Wide;

// 2^30 terms below 2^32 each leave room in 63 bits.
constexpr int64_t kTermsBetweenCarries = int64_t{1} << 30;
constexpr int64_t kDigit = int64_t{1} << 32;

}  // namespace

void WeightSum::Add(double weight) { bits_ += static_cast<Fixed>(std::rint(weight * 0x1p64)); }

void WeightSum::Write(StateWriter& writer) const {
  writer.Int(static_cast<int64_t>(bits_ >> 64));
  writer.Int(static_cast<int64_t>(static_cast<uint64_t>(bits_)));
}

void WeightSum::Read(StateReader& reader) {
  const int64_t high = reader.Int(0, StateReader::kMaxCount);
  bits_ = static_cast<Fixed>((static_cast<Wide>(high) << 64) | static_cast<uint64_t>(reader.Int()));
}

void ExactSum::Add(double number) {
  if (number == 0) return;
  int exponent;
  const double fraction = std::frexp(std::abs(number), &exponent);
  // number = mantissa * 2^(place - 1074); below the smallest normal number the mantissa ends in
  // zeros.
  uint64_t mantissa = static_cast<uint64_t>(std::ldexp(fraction, 53));
  int place = exponent - 53 + 1074;
  if (place < 0) {
    mantissa >>= -place;
    place = 0;
  }
  const Wide shifted = static_cast<Wide>(mantissa) << (place % 32);
  int64_t* digit = &digits_[place / 32];
  const int64_t sign = number < 0 ? -1 : 1;
  digit[0] += sign * static_cast<int64_t>(static_cast<uint64_t>(shifted) & (kDigit - 1));
  digit[1] += sign * static_cast<int64_t>(static_cast<uint64_t>(shifted >> 32) & (kDigit - 1));
  digit[2] += sign * static_cast<int64_t>(static_cast<uint64_t>(shifted >> 64));
  if (++since_carry_ == kTermsBetweenCarries) Carry();
}

void ExactSum::AddProduct(double a, double b) {
  const double product = a * b;
  Add(product);
  Add(std::fma(a, b, -product));
}

void ExactSum::AddProduct(double a, double b, double c) {
  const double product = a * b;
  AddProduct(product, c);
  AddProduct(std::fma(a, b, -product), c);
}

void ExactSum::Merge(const ExactSum& other) {
  ExactSum carried = other;
  carried.Carry();
  Carry();
  for (int i = 0; i < kDigits; ++i) digits_[i] += carried.digits_[i];
  Carry();
}

void ExactSum::Carry() {
  for (int i = 0; i + 1 < kDigits; ++i) {
    const int64_t carry = digits_[i] >> 32;
    digits_[i] -= carry * kDigit;
    digits_[i + 1] += carry;
  }
  since_carry_ = 0;
}

double ExactSum::Value() const {
  ExactSum sum = *this;
  sum.Carry();
  const bool negative = sum.digits_[kDigits - 1] < 0;
  if (negative) {
    for (int64_t& digit : sum.digits_) digit = -digit;
    sum.Carry();
  }
  int top = kDigits - 1;
  while (top > 0 && sum.digits_[top] == 0) --top;
  const int low = top >= 2 ? top - 2 : 0;
  Wide bits = 0;
  for (int i = top; i >= low; --i) bits = (bits << 32) + static_cast<uint64_t>(sum.digits_[i]);
  // What is below decides only whether it is more than half a step.
  for (int i = 0; i < low; ++i) {
    if (sum.digits_[i] != 0) {
      bits |= 1;
      break;
    }
  }
  const double value = std::ldexp(static_cast<double>(bits), 32 * low - 1074);
  return negative ? -value : value;
}

double ExactSum::Rest() const {
  ExactSum rest = *this;
  rest.Add(-Value());
  return rest.Value();
}

void ExactSum::Write(StateWriter& writer) const {
  ExactSum sum = *this;
  sum.Carry();
  int begin = 0, end = kDigits;
  while (end > 0 && sum.digits_[end - 1] == 0) --end;
  while (begin < end && sum.digits_[begin] == 0) ++begin;
  writer.Int(begin);
  writer.Int(end);
  for (int i = begin; i < end; ++i) writer.Int(sum.digits_[i]);
}

void ExactSum::Read(StateReader& reader) {
  *this = ExactSum();
  const int64_t begin = reader.Int(0, kDigits), end = reader.Int(begin, kDigits);
  for (int64_t i = begin; i < end; ++i)
    digits_[i] = i + 1 < kDigits ? reader.Int(0, kDigit - 1) : reader.Int(-kDigit, kDigit);
}

}  // namespace tidepool
