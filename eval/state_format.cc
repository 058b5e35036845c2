#include "tidepool/eval/state_format.h"

#include <cmath>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr absl::string_view kMagic = "tidepool evaluation 1\n";

}  // namespace

StateWriter::StateWriter(absl::string_view kind) : bytes_(absl::StrCat(kMagic, kind, "\n")) {}

void StateWriter::Int(int64_t value) {
  const uint64_t bits = static_cast<uint64_t>(value);
  for (int shift = 0; shift < 64; shift += 8) bytes_ += static_cast<char>(bits >> shift & 0xff);
}

void StateWriter::Double(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  Int(bits);
}

StateReader::StateReader(absl::string_view bytes, absl::string_view kind)
    : bytes_(bytes), kind_(kind) {
  if (!absl::StartsWith(bytes, kMagic))
    Throw("found no state of an evaluation, expected \"tidepool evaluation 1\"");
  position_ = kMagic.size();
  const size_t end = bytes.find('\n', position_);
  if (end == absl::string_view::npos || end - position_ > 40) Throw("found no name of a kind");
  const absl::string_view found = bytes.substr(position_, end - position_);
  for (const char c : found)
    if (c < ' ' || c > '~') Throw("found no name of a kind");
  if (found != kind) {
    ThrowInvalidArgument(
        absl::StrCat(kind, ": merge: found a state of ", found, ", expected one of ", kind));
  }
  position_ = end + 1;
}

void StateReader::Throw(absl::string_view what) const {
  ThrowDataLoss(absl::StrCat(kind_, ": state: byte ", position_, ": ", what));
}

uint64_t StateReader::Bits() {
  if (bytes_.size() - position_ < 8) Throw(absl::StrCat("found the end, expected 8 bytes more"));
  uint64_t bits = 0;
  for (int i = 0; i < 8; ++i)
    bits |= static_cast<uint64_t>(static_cast<uint8_t>(bytes_[position_ + i])) << (8 * i);
  position_ += 8;
  return bits;
}

int64_t StateReader::Int(int64_t lowest, int64_t highest) {
  const int64_t value = static_cast<int64_t>(Bits());
  if (value < lowest || value > highest) {
    position_ -= 8;
    Throw(absl::StrCat("found ", value, ", expected ", lowest, "..", highest));
  }
  return value;
}

double StateReader::Double() {
  const uint64_t bits = Bits();
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  if (std::isnan(value)) {
    position_ -= 8;
    Throw("found NaN, expected a number");
  }
  return value;
}

double StateReader::DoubleOfSize(double largest) {
  const double value = Double();
  if (!(std::abs(value) <= largest) || value == 0) {
    position_ -= 8;
    Throw(absl::StrCat("found ", value, ", expected a size of at most ", largest, " above 0"));
  }
  return value;
}

void StateReader::Same(const char* what, int64_t expected) {
  const int64_t found = Int();
  if (found == expected) return;
  ThrowInvalidArgument(
      absl::StrCat(kind_, ": merge: found ", what, " ", found, ", expected ", expected));
}

void StateReader::Same(const char* what, double expected) {
  const double found = Double();
  if (found == expected) return;
  ThrowInvalidArgument(
      absl::StrCat(kind_, ": merge: found ", what, " ", found, ", expected ", expected));
}

void StateReader::CheckRoom(int64_t count, int64_t bytes_each) const {
  const int64_t left = static_cast<int64_t>(bytes_.size() - position_);
  if (count > left / bytes_each) {
    Throw(absl::StrCat("found ", left, " bytes more, expected ", count, " times ", bytes_each));
  }
}

void StateReader::End() const {
  if (position_ != bytes_.size())
    Throw(absl::StrCat("found ", bytes_.size() - position_, " bytes more, expected the end"));
}

}  // namespace tidepool
