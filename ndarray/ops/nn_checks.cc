#include "tidepool/ndarray/ops/nn_checks.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {

void CheckFloating(const char* op, const char* operand, const NDArray& array) {
  if (IsFloating(array.dtype())) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " is ", DTypeName(array.dtype()),
                                    ", expected f32, f64, f16 or bf16"));
}

void CheckRank4(const char* op, const char* operand, const Shape& shape) {
  if (shape.rank() == 4) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " has shape ", shape.ToString(),
                                    ", expected rank 4"));
}

void CheckLeastRank(const char* op, const char* operand, const NDArray& array, int least) {
  if (array.rank() >= least) return;
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " has rank ", array.rank(),
                                    ", expected at least ", least));
}

void CheckLike(const char* op, const char* operand, const NDArray& array, const NDArray& like) {
  CheckShape(op, operand, array, like.shape());
  CheckDType(op, operand, array, like.dtype());
}

int64_t CoveredByWindow(const char* op, const char* axis, int64_t in, int64_t kernel,
                        int64_t stride, int64_t dilation, int64_t pads) {
  if (std::max({in, kernel, stride, dilation, pads}) > kMostOfAWindow) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", axis, ": input ", in, ", kernel ", kernel,
                                      ", stride ", stride, ", dilation ", dilation, ", padding ",
                                      pads, "; expected at most ", kMostOfAWindow, " each"));
  }
  return dilation * (kernel - 1) + 1;
}

int64_t SumOfPadding(const char* op, int64_t before, int64_t after) {
  if (std::min(before, after) < 0)
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: a padding is negative"));
  // Their sum may be more than there are numbers for.
  return std::max(before, after) > kMostOfAWindow ? INT64_MAX : before + after;
}

int64_t WindowCount(const char* op, const char* axis, int64_t in, int64_t kernel, int64_t stride,
                    int64_t dilation, int64_t pads) {
  if (kernel < 1 || stride < 1 || dilation < 1 || pads < 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", axis, ": kernel ", kernel, ", stride ",
                                      stride, ", dilation ", dilation, ", padding ", pads,
                                      "; expected at least 1, 1, 1 and 0"));
  }
  const int64_t covered = CoveredByWindow(op, axis, in, kernel, stride, dilation, pads);
  if (in + pads < covered) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", axis, ": the kernel covers ", covered,
                                      " of an input of ", in, " with ", pads, " padding"));
  }
  return (in + pads - covered) / stride + 1;
}

}  // namespace tidepool
