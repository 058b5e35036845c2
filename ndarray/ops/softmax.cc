#include "tidepool/ndarray/ops/softmax.h"

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {

NDArray Softmax(const NDArray& x) {
  CheckOperands(OpCode::kSoftmax, {&x});
  CheckDType("softmax", "X", x, DType::kFloat32);
  if (x.rank() == 0) ThrowInvalidArgument("Op [softmax]: X has rank 0, expected at least 1");
  NDArray z(x.shape(), DType::kFloat32);
  Dispatch(OpCode::kSoftmax, {&x}, {&z});
  return z;
}

CrossEntropy SoftmaxCrossEntropy(const NDArray& logits, const NDArray& labels) {
  CheckOperands(OpCode::kSoftmaxCrossEntropy, {&logits, &labels});
  CheckRank("softmax_cross_entropy", "logits", logits, 2);
  CheckDType("softmax_cross_entropy", "logits", logits, DType::kFloat32);
  CheckDType("softmax_cross_entropy", "labels", labels, DType::kInt64);
  CheckShape("softmax_cross_entropy", "labels", labels, {logits.dim(0)});
  CheckLabels("softmax_cross_entropy", labels, logits.dim(1));
  CrossEntropy result{NDArray({logits.dim(0)}, DType::kFloat32),
                      NDArray(logits.shape(), DType::kFloat32)};
  Dispatch(OpCode::kSoftmaxCrossEntropy, {&logits, &labels}, {&result.loss, &result.probabilities});
  return result;
}

void SoftmaxCrossEntropyGradInto(const NDArray& probabilities, const NDArray& labels, double scale,
                                 NDArray& gradient) {
  CheckOperands(OpCode::kSoftmaxCrossEntropyGrad, {&probabilities, &labels});
  gradient.CheckAlive("softmax_cross_entropy_grad", "gradient");
  CheckRank("softmax_cross_entropy_grad", "probabilities", probabilities, 2);
  CheckDType("softmax_cross_entropy_grad", "probabilities", probabilities, DType::kFloat32);
  CheckDType("softmax_cross_entropy_grad", "labels", labels, DType::kInt64);
  CheckShape("softmax_cross_entropy_grad", "labels", labels, {probabilities.dim(0)});
  CheckShape("softmax_cross_entropy_grad", "gradient", gradient, probabilities.shape());
  CheckDType("softmax_cross_entropy_grad", "gradient", gradient, DType::kFloat32);
  CheckLabels("softmax_cross_entropy_grad", labels, probabilities.dim(1));
  const CrossEntropyGradAttributes attributes{scale};
  Dispatch(OpCode::kSoftmaxCrossEntropyGrad, {&probabilities, &labels}, {&gradient}, &attributes);
}

}  // namespace tidepool
