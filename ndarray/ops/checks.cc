#include "tidepool/ndarray/ops/checks.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/kernel_scopes.h"

namespace tidepool {
namespace {

void CheckValues(const char* op, const int64_t* values, int64_t stride, int64_t count,
                 int64_t classes) {
  if (internal::KernelsAreOff()) return;  // nobody has computed them
  for (int64_t i = 0; i < count; ++i) {
    const int64_t label = values[i * stride];
    if (label >= 0 && label < classes) continue;
    ThrowInvalidArgument(
        absl::StrCat("Op [", op, "]: label ", i, " is ", label, ", expected 0 to ", classes - 1));
  }
}

}  // namespace

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
  if (labels.device() != Host()) {
    // Labels that came from the host are in the array's host copy still.
    if (!labels.is_dense() || !labels.buffer()->owner->WhyNoHostCopy().empty()) {
      return CheckLabels(op, labels.To(Host()), classes);
    }
    HostView<const int64_t> view(labels);
    return CheckValues(op, view.data(), 1, view.size(), classes);
  }
  CheckValues(op, reinterpret_cast<const int64_t*>(labels.raw_data()), labels.strides()[0],
              labels.NumElements(), classes);
}

}  // namespace tidepool
