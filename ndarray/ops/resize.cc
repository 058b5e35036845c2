#include "tidepool/ndarray/ops/resize.h"

#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

NDArray Resized(OpCode op, const NDArray& x, int64_t height, int64_t width,
                const ResizeAttributes& attributes) {
  CheckOperands(op, {&x});
  const char* name = Info(op).name;
  const std::string operand = OperandName(Info(op).inputs, 0);
  CheckFloating(name, operand.c_str(), x);
  CheckRank(name, operand.c_str(), x, 4);
  for (const int64_t size : {height, width, x.dim(1), x.dim(2)}) {
    if (size >= 1 && size <= kMostOfAWindow) continue;
    ThrowInvalidArgument(absl::StrCat(
        "Op [", name, "]: ", operand, " has shape ", x.shape().ToString(), ", to height ", height,
        " and width ", width, ", expected heights and widths from 1 to ", kMostOfAWindow));
  }
  if (attributes.align_corners && attributes.mode == ResizeMode::kNearest) {
    ThrowInvalidArgument(
        absl::StrCat("Op [", name, "]: align_corners of nearest elements, expected another mode"));
  }
  NDArray z({x.dim(0), height, width, x.dim(3)}, x.dtype(), ResultPlace(op, {&x}));
  Dispatch(op, {&x}, {&z}, &attributes);
  return z;
}

}  // namespace

NDArray Resize2d(const NDArray& input, int64_t height, int64_t width,
                 const ResizeAttributes& attributes) {
  return Resized(OpCode::kResize2d, input, height, width, attributes);
}

NDArray Resize2dGrad(const NDArray& output_gradient, int64_t height, int64_t width,
                     const ResizeAttributes& attributes) {
  return Resized(OpCode::kResize2dGrad, output_gradient, height, width, attributes);
}

}  // namespace tidepool
