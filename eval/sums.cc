#include "tidepool/eval/sums.h"

#include <bit>
#include <cmath>

#include "tidepool/eval/state_format.h"

namespace tidepool {
namespace {

__extension__ typedef unsigned __int128 Wide;

// 2^30 terms below 2^32 each leave room in 63 bits.
constexpr int64_t kTermsBetweenCarries = int64_t{1} << 30;
constexpr int64_t kDigit = int64_t{1} << 32;

}  // namespace

void WeightSum::Add(double weight) {
  const int64_t whole = static_cast<int64_t>(weight);
  const double part = weight - static_cast<double>(whole);  // exact, below 1
  bits_ += (static_cast<Fixed>(whole) << 64) + static_cast<uint64_t>(part * 0x1p64);
}

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
  // number = mantissa * 2^(place - 1074); the smallest numbers, those of exponent 0, lack the
  // leading bit.
  const uint64_t bits = std::bit_cast<uint64_t>(number);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);
  const uint64_t fraction = bits & ((uint64_t{1} << 52) - 1);
  const uint64_t mantissa = exponent == 0 ? fraction : fraction | uint64_t{1} << 52;
  const int place = exponent == 0 ? 0 : exponent - 1;
  const Wide shifted = static_cast<Wide>(mantissa) << (place % 32);
  int64_t* digit = &digits_[place / 32];
  const int64_t sign = number < 0 ? -1 : 1;
  digit[0] += sign * static_cast<int64_t>(static_cast<uint64_t>(shifted) & (kDigit - 1));
  digit[1] += sign * static_cast<int64_t>(static_cast<uint64_t>(shifted >> 32) & (kDigit - 1));
  digit[2] += sign * static_cast<int64_t>(static_cast<uint64_t>(shifted >> 64));
  if (++since_carry_ == kTermsBetweenCarries) Carry();
}

void ExactSum::AddProduct(double a, double b) {
  if (b == 1) return Add(a);
  const double product = a * b;
  Add(product);
  Add(std::fma(a, b, -product));
}

void ExactSum::AddProduct(double a, double b, double c) {
  if (c == 1) return AddProduct(a, b);
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
