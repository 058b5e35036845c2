#include "tidepool/ndarray/ops/checks.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {

void CheckDType(const char* op, const char* operand, const NDArray& array, DType expected) {
  if (array.dtype() == expected) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " is ", DTypeName(array.dtype()),
                                    ", expected ", DTypeName(expected)));
}

void CheckShape(const char* op, const char* operand, const NDArray& array, const Shape& expected) {
  if (array.shape() == expected) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " has shape ",
                                    array.shape().ToString(), ", expected ", expected.ToString()));
}

void CheckRank(const char* op, const char* operand, const NDArray& array, int expected) {
  if (array.rank() == expected) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " has shape ",
                                    array.shape().ToString(), ", expected rank ", expected));
}

void CheckLabels(const char* op, const NDArray& labels, int64_t classes) {
  if (labels.NumElements() == 0) return;
  if (labels.device() != Host()) return CheckLabels(op, labels.To(Host()), classes);
  const auto* values = reinterpret_cast<const int64_t*>(labels.raw_data());
  const int64_t stride = labels.strides()[0];
  for (int64_t i = 0; i < labels.NumElements(); ++i) {
    const int64_t label = values[i * stride];
    if (label < 0 || label >= classes) {
      ThrowInvalidArgument(absl::StrCat("Op [", op, "]: label ", i, " is ", label,
                                        ", expected 0 to ", classes - 1));
    }
  }
}

}  // namespace tidepool
