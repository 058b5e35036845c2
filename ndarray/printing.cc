// Text as NumPy's array2string(x, separator=', ') with its defaults: 8 digits, 75 columns, columns
// aligned, three elements at each edge of what is too long. Source of the rules:
// numpy/core/arrayprint.py (FloatingFormat, IntegerFormat, _formatArray).
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/pins.h"
#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

constexpr int64_t kEdge = 3;  // elements shown at each end of a shortened axis
constexpr size_t kLineWidth = 75;
constexpr int kPrecision = 8;

std::string ToChars(double value, std::chars_format format, int precision) {
  char text[1600];
  return std::string(text, std::to_chars(text, text + sizeof(text), value, format, precision).ptr);
}

// The fewest digits that are this value and no other of its type, but at most kPrecision behind the
// point.
std::string FewestDigits(double value, DType dtype, std::chars_format format) {
  std::string text;
  if (dtype == DType::kFloat64 || dtype == DType::kFloat32) {
    char shortest[1600];
    char* const end = shortest + sizeof(shortest);
    const auto result = dtype == DType::kFloat32
                            ? std::to_chars(shortest, end, static_cast<float>(value), format)
                            : std::to_chars(shortest, end, value, format);
    text.assign(shortest, result.ptr);
  } else {
    for (int digits = 0;; ++digits) {
      text = ToChars(value, std::chars_format::scientific, digits);
      const double back = std::strtod(text.c_str(), nullptr);
      const bool same = dtype == DType::kFloat16 ? Float16(back).bits == Float16(value).bits
                                                 : BFloat16(back).bits == BFloat16(value).bits;
      if (!same) continue;
      // The digits are known: as many behind the point as this needs.
      const int exponent = std::atoi(text.c_str() + text.find('e') + 1);
      if (format == std::chars_format::fixed) {
        text = ToChars(back, format, std::max(0, digits - exponent));
      }
      break;
    }
  }
  const size_t point = text.find('.');
  const size_t end = std::min(text.find('e'), text.size());
  if (point != std::string::npos && end - point - 1 > kPrecision) {
    return ToChars(value, format, kPrecision);
  }
  return text;
}

struct Parts {
  std::string whole, fraction, exponent;  // "-1", "25", "+03"
};
// Trailing zeros of the fraction are gone.
Parts Split(const std::string& text) {
  Parts parts;
  const size_t e = std::min(text.find('e'), text.size());
  const size_t point = std::min(text.find('.'), e);
  parts.whole = text.substr(0, point);
  if (point < e) parts.fraction = text.substr(point + 1, e - point - 1);
  while (!parts.fraction.empty() && parts.fraction.back() == '0') parts.fraction.pop_back();
  if (e < text.size()) parts.exponent = text.substr(e + 1);
  return parts;
}

// How the shown elements look together.
class Format {
 public:
  Format(DType dtype, bool is_scalar, const std::vector<const std::byte*>& shown)
      : dtype_(dtype), is_scalar_(is_scalar) {
    if (IsFloating(dtype)) {
      PrepareFloats(shown);
    } else {
      for (const std::byte* element : shown) {
        width_ = std::max(width_, IntText(element).size());
      }
    }
  }

  std::string operator()(const std::byte* element) const {
    if (!IsFloating(dtype_)) return Padded(IntText(element), width_);
    const double value = LoadNumber(dtype_, element);
    if (!std::isfinite(value)) {
      return Padded(std::isnan(value) ? "nan"
                    : value < 0       ? "-inf"
                                      : "inf",
                    whole_ + fraction_ + 1 + exponent_);
    }
    // The digits that are shown are the value's own, also where fewer would tell it from others.
    if (format_ == std::chars_format::fixed) {
      const size_t digits = Split(FewestDigits(value, dtype_, format_)).fraction.size();
      const std::string text = ToChars(value, format_, static_cast<int>(digits));
      const std::string whole = text.substr(0, text.find('.'));
      return Padded(whole, whole_) + "." + (digits > 0 ? text.substr(whole.size() + 1) : "") +
             std::string(fraction_ - digits, ' ');
    }
    const std::string text = ToChars(value, format_, static_cast<int>(fraction_));
    Parts parts = Split(text);
    parts.fraction.append(fraction_ - parts.fraction.size(), '0');
    return absl::StrCat(
        Padded(parts.whole, whole_), ".", parts.fraction, "e", parts.exponent.substr(0, 1),
        std::string(exponent_ - 1 - parts.exponent.size(), '0'), parts.exponent.substr(1));
  }

 private:
  static std::string Padded(const std::string& text, size_t width) {
    return std::string(width > text.size() ? width - text.size() : 0, ' ') + text;
  }

  std::string IntText(const std::byte* element) const {
    if (dtype_ == DType::kUInt64) return absl::StrCat(*reinterpret_cast<const uint64_t*>(element));
    int64_t value;
    ConverterOf(dtype_, DType::kInt64)(element, 1, &value, 1, 1);
    if (dtype_ != DType::kBool) return absl::StrCat(value);
    return value == 0 ? "False" : is_scalar_ ? "True" : " True";
  }

  // In the elements' own precision, as NumPy divides.
  double Ratio(double largest, double smallest) const {
    if (dtype_ == DType::kFloat32)
      return static_cast<float>(largest) / static_cast<float>(smallest);
    if (dtype_ == DType::kFloat16) return Float16(largest / smallest);
    return largest / smallest;
  }

  void PrepareFloats(const std::vector<const std::byte*>& shown) {
    std::vector<double> finite;
    double largest = 0, smallest = HUGE_VAL;
    bool all_finite = true, negative_infinity = false;
    for (const std::byte* element : shown) {
      const double value = LoadNumber(dtype_, element);
      if (!std::isfinite(value)) {
        all_finite = false;
        negative_infinity = negative_infinity || value < 0;
        continue;
      }
      finite.push_back(value);
      if (value == 0) continue;
      largest = std::max(largest, std::abs(value));
      smallest = std::min(smallest, std::abs(value));
    }
    if (largest >= 1e8 || (largest > 0 && (smallest < 0.0001 || Ratio(largest, smallest) > 1000))) {
      format_ = std::chars_format::scientific;
    }
    for (const double value : finite) {
      const Parts parts = Split(FewestDigits(value, dtype_, format_));
      whole_ = std::max(whole_, parts.whole.size());
      fraction_ = std::max(fraction_, parts.fraction.size());
      if (!parts.exponent.empty()) exponent_ = std::max(exponent_, parts.exponent.size() + 1);
    }
    if (all_finite) return;
    const size_t least = 3 + (negative_infinity ? 1 : 0), behind = fraction_ + 1 + exponent_;
    whole_ = std::max(whole_, least > behind ? least - behind : 0);
  }

  DType dtype_;
  bool is_scalar_;
  size_t width_ = 0;  // of integers and bools
  std::chars_format format_ = std::chars_format::fixed;
  size_t whole_ = 0, fraction_ = 0;  // characters before and behind the point
  size_t exponent_ = 0;              // with "e" and sign
};

class Printer {
 public:
  Printer(const NDArray& array, int64_t limit)
      : array_(array), shorten_(array.NumElements() > limit) {
    std::vector<const std::byte*> shown;
    Collect(0, array.raw_data(), &shown);
    format_ = std::make_unique<Format>(array.dtype(), array.rank() == 0, shown);
  }

  // The part from `axis` on that begins at `at`; `width` columns are left.
  std::string Text(int axis, const std::byte* at, const std::string& indent, size_t width) const {
    if (axis == array_.rank()) return (*format_)(at);
    const bool last_axis = axis + 1 == array_.rank();
    std::string out, line = indent;
    auto add = [&](const std::string& word, bool more) {
      if (!last_axis) {
        out += indent + word;
        if (more) out += "," + std::string(array_.rank() - axis - 1, '\n');
        return;
      }
      if (line.size() + word.size() > width - 1 && line.size() > indent.size()) {
        while (!line.empty() && line.back() == ' ') line.pop_back();
        out += line + "\n";
        line = indent;
      }
      line += word;
      if (more) line += ", ";
    };
    const int64_t count = array_.dim(axis);
    for (int64_t i = 0; i < count; ++i) {
      if (Skips(axis, i)) {
        add("...", true);
        i = count - kEdge;
      }
      add(Text(axis + 1, Element(axis, at, i), indent + ' ', width - 1), i + 1 < count);
    }
    if (last_axis) out += line;
    return "[" + out.substr(indent.size()) + "]";
  }

 private:
  bool Skips(int axis, int64_t i) const {
    return shorten_ && i == kEdge && array_.dim(axis) > 2 * kEdge;
  }
  const std::byte* Element(int axis, const std::byte* at, int64_t i) const {
    return at + i * array_.strides()[axis] * static_cast<int64_t>(DTypeBytes(array_.dtype()));
  }
  void Collect(int axis, const std::byte* at, std::vector<const std::byte*>* shown) const {
    if (axis == array_.rank()) return shown->push_back(at);
    for (int64_t i = 0; i < array_.dim(axis); ++i) {
      if (Skips(axis, i)) i = array_.dim(axis) - kEdge;
      Collect(axis + 1, Element(axis, at, i), shown);
    }
  }

  const NDArray& array_;
  bool shorten_;
  std::unique_ptr<Format> format_;
};

}  // namespace

std::string NDArray::ToString(int64_t limit) const {
  PinScope pins;  // who closes it on another thread meanwhile leaves its bytes to this one
  pins.Pin(buffer_.get());
  pins.Publish();
  CheckAlive("print", "X");
  if (NumElements() == 0) return "[]";
  if (device() != Host()) return CopyTo(Place::Heap()).ToString(limit);
  return Printer(*this, limit).Text(0, raw_data(), " ", kLineWidth);
}

}  // namespace tidepool
