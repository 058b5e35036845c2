#include "tidepool/ndarray/ops/softmax.h"

#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

NDArray Forward(OpCode op, const NDArray& x, int axis) {
  CheckOperands(op, {&x});
  const char* name = Info(op).name;
  CheckFloating(name, "X", x);
  CheckLeastRank(name, "X", x, 1);
  const SoftmaxAttributes attributes{NormalizeAxis(name, axis, x.rank())};
  NDArray z(x.shape(), x.dtype(), ResultPlace(op, {&x}));
  Dispatch(op, {&x}, {&z}, &attributes);
  return z;
}

NDArray Grad(OpCode op, const NDArray& z, const NDArray& dz, int axis) {
  CheckOperands(op, {&z, &dz});
  const char* name = Info(op).name;
  CheckFloating(name, "Z", z);
  CheckLeastRank(name, "Z", z, 1);
  CheckLike(name, "dZ", dz, z);
  const SoftmaxAttributes attributes{NormalizeAxis(name, axis, z.rank())};
  NDArray dx(z.shape(), z.dtype(), ResultPlace(op, {&z, &dz}));
  Dispatch(op, {&z, &dz}, {&dx}, &attributes);
  return dx;
}

}  // namespace

NDArray Softmax(const NDArray& x, int axis) { return Forward(OpCode::kSoftmax, x, axis); }
NDArray LogSoftmax(const NDArray& x, int axis) { return Forward(OpCode::kLogSoftmax, x, axis); }
NDArray SoftmaxGrad(const NDArray& z, const NDArray& dz, int axis) {
  return Grad(OpCode::kSoftmaxGrad, z, dz, axis);
}
NDArray LogSoftmaxGrad(const NDArray& z, const NDArray& dz, int axis) {
  return Grad(OpCode::kLogSoftmaxGrad, z, dz, axis);
}

}  // namespace tidepool
