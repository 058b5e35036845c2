#include "tidepool/ndarray/ops/dropout.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_random.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

void Check(const NDArray& x, double rate) {
  CheckOperands(OpCode::kDropout, {&x});
  RefuseWhileCapturing("dropout", "its random numbers would be the same in each replay");
  if (!IsFloating(x.dtype())) {
    ThrowInvalidArgument(
        absl::StrCat("Op [dropout]: X is ", DTypeName(x.dtype()), ", expected a float type"));
  }
  if (!(rate >= 0 && rate < 1)) {
    ThrowInvalidArgument(
        absl::StrCat("Op [dropout]: rate is ", rate, ", expected 0 or more, below 1"));
  }
}

}  // namespace

NDArray Dropout(const NDArray& x, double rate, uint64_t seed, uint64_t stream) {
  Check(x, rate);
  NDArray z(x.shape(), x.dtype(), ResultPlace(OpCode::kDropout, {&x}));
  const DropoutAttributes attributes{seed, stream, rate};
  Dispatch(OpCode::kDropout, {&x}, {&z}, &attributes);
  return z;
}

void DropoutInto(const NDArray& x, double rate, uint64_t seed, uint64_t stream, NDArray& z) {
  Check(x, rate);
  z.CheckAlive("dropout", "Z");
  CheckDType("dropout", "Z", z, x.dtype());
  CheckShape("dropout", "Z", z, x.shape());
  const DropoutAttributes attributes{seed, stream, rate};
  Dispatch(OpCode::kDropout, {&x}, {&z}, &attributes);
}

}  // namespace tidepool
