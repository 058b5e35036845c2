#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

constexpr int64_t kEdge = 3;  // elements shown at each end of a shortened axis

void Print(const NDArray& array, bool shorten, int indent, std::string* out) {
  if (array.rank() == 0) {
    if (IsFloating(array.dtype())) {
      absl::StrAppendFormat(out, "%.6g", LoadNumber(array.dtype(), array.raw_data()));
    } else if (array.dtype() == DType::kBool) {
      *out += array.Item<bool>() ? "true" : "false";
    } else {
      int64_t value;
      ConverterOf(array.dtype(), DType::kInt64)(array.raw_data(), 1, &value, 1, 1);
      absl::StrAppend(out, value);
    }
    return;
  }
  const int64_t count = array.dim(0);
  *out += '[';
  for (int64_t i = 0; i < count; ++i) {
    if (i > 0) {
      *out += array.rank() == 1 ? ", " : ",\n" + std::string(indent + 1, ' ');
    }
    if (shorten && count > 2 * kEdge && i == kEdge) {
      *out += "...";
      i = count - kEdge - 1;
      continue;
    }
    Print(array.Index(0, i), shorten, indent + 1, out);
  }
  *out += ']';
}

}  // namespace

std::string NDArray::ToString(int64_t limit) const {
  CheckAlive("print", "X");
  std::string out;
  Print(*this, NumElements() > limit, 0, &out);
  return out;
}

}  // namespace tidepool
