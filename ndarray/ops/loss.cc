#include "tidepool/ndarray/ops/loss.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

void CheckLogits(const char* op, const char* operand, const NDArray& logits) {
  CheckRank(op, operand, logits, 2);
  CheckFloating(op, operand, logits);
  if (logits.dim(0) > 0 && logits.dim(1) == 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: ", operand, " has shape ",
                                      logits.shape().ToString(), ", expected at least one class"));
  }
}

void CheckGradient(const char* op, const NDArray& x, const NDArray& gradient) {
  gradient.CheckAlive(op, "gradient");
  CheckLike(op, "gradient", gradient, x);
}

NDArray MeanLoss(OpCode op, const char* operand, const NDArray& x, const NDArray& targets,
                 AttributesRef attributes = {}) {
  CheckOperands(op, {&x, &targets});
  const char* name = Info(op).name;
  CheckFloating(name, operand, x);
  CheckLeastRank(name, operand, x, 1);
  CheckLike(name, "targets", targets, x);
  NDArray loss({x.dim(0)}, x.dtype(), ResultPlace(op, {&x, &targets}));
  Dispatch(op, {&x, &targets}, {&loss}, attributes);
  return loss;
}

CrossEntropy NewCrossEntropy(OpCode op, const NDArray& logits, const NDArray& targets) {
  const Place place = ResultPlace(op, {&logits, &targets});
  return {NDArray({logits.dim(0)}, logits.dtype(), place),
          NDArray(logits.shape(), logits.dtype(), place)};
}

// By the gradient of each row's loss.
void RowLossGrad(OpCode op, const NDArray& x, const NDArray& targets, const NDArray& loss_gradient,
                 NDArray& gradient, AttributesRef attributes = {}) {
  CheckOperands(op, {&x, &targets, &loss_gradient});
  const char* name = Info(op).name;
  CheckFloating(name, "predictions", x);
  CheckLeastRank(name, "predictions", x, 1);
  CheckLike(name, "targets", targets, x);
  CheckShape(name, "loss_gradient", loss_gradient, {x.dim(0)});
  CheckDType(name, "loss_gradient", loss_gradient, x.dtype());
  CheckGradient(name, x, gradient);
  Dispatch(op, {&x, &targets, &loss_gradient}, {&gradient}, attributes);
}

HuberAttributes HuberOf(OpCode op, double delta) {
  if (!(delta > 0)) {
    ThrowInvalidArgument(
        absl::StrCat("Op [", Info(op).name, "]: delta is ", delta, ", expected more than 0"));
  }
  return {delta};
}

void MeanLossGrad(OpCode op, const char* operand, const NDArray& x, const NDArray& targets,
                  double scale, NDArray& gradient) {
  CheckOperands(op, {&x, &targets});
  const char* name = Info(op).name;
  CheckFloating(name, operand, x);
  CheckLeastRank(name, operand, x, 1);
  CheckLike(name, "targets", targets, x);
  CheckGradient(name, x, gradient);
  const LossGradAttributes attributes{scale};
  Dispatch(op, {&x, &targets}, {&gradient}, &attributes);
}

}  // namespace

void CheckSoftmaxLabels(const NDArray& labels, int64_t classes) {
  CheckOperands(OpCode::kSoftmaxCrossEntropy, {nullptr, &labels});
  CheckRank("softmax_cross_entropy", "labels", labels, 1);
  CheckDType("softmax_cross_entropy", "labels", labels, DType::kInt64);
  CheckLabels("softmax_cross_entropy", labels, classes);
}

CrossEntropy SoftmaxCrossEntropy(const NDArray& logits, const NDArray& labels, Labels known) {
  CheckOperands(OpCode::kSoftmaxCrossEntropy, {&logits, &labels});
  CheckLogits("softmax_cross_entropy", "logits", logits);
  CheckDType("softmax_cross_entropy", "labels", labels, DType::kInt64);
  CheckShape("softmax_cross_entropy", "labels", labels, {logits.dim(0)});
  if (known != Labels::kChecked) CheckLabels("softmax_cross_entropy", labels, logits.dim(1));
  CrossEntropy result = NewCrossEntropy(OpCode::kSoftmaxCrossEntropy, logits, labels);
  Dispatch(OpCode::kSoftmaxCrossEntropy, {&logits, &labels}, {&result.loss, &result.probabilities});
  return result;
}

void SoftmaxCrossEntropyGradInto(const NDArray& probabilities, const NDArray& labels, double scale,
                                 NDArray& gradient, Labels known) {
  CheckOperands(OpCode::kSoftmaxCrossEntropyGrad, {&probabilities, &labels});
  CheckLogits("softmax_cross_entropy_grad", "probabilities", probabilities);
  CheckDType("softmax_cross_entropy_grad", "labels", labels, DType::kInt64);
  CheckShape("softmax_cross_entropy_grad", "labels", labels, {probabilities.dim(0)});
  CheckGradient("softmax_cross_entropy_grad", probabilities, gradient);
  if (known != Labels::kChecked) {
    CheckLabels("softmax_cross_entropy_grad", labels, probabilities.dim(1));
  }
  const CrossEntropyGradAttributes attributes{scale};
  Dispatch(OpCode::kSoftmaxCrossEntropyGrad, {&probabilities, &labels}, {&gradient}, &attributes);
}

CrossEntropy DenseCrossEntropy(const NDArray& logits, const NDArray& targets) {
  CheckOperands(OpCode::kDenseCrossEntropy, {&logits, &targets});
  CheckLogits("dense_cross_entropy", "logits", logits);
  CheckLike("dense_cross_entropy", "targets", targets, logits);
  CrossEntropy result = NewCrossEntropy(OpCode::kDenseCrossEntropy, logits, targets);
  Dispatch(OpCode::kDenseCrossEntropy, {&logits, &targets}, {&result.loss, &result.probabilities});
  return result;
}

void DenseCrossEntropyGradInto(const NDArray& probabilities, const NDArray& targets, double scale,
                               NDArray& gradient) {
  CheckOperands(OpCode::kDenseCrossEntropyGrad, {&probabilities, &targets});
  CheckLogits("dense_cross_entropy_grad", "probabilities", probabilities);
  CheckLike("dense_cross_entropy_grad", "targets", targets, probabilities);
  CheckGradient("dense_cross_entropy_grad", probabilities, gradient);
  const LossGradAttributes attributes{scale};
  Dispatch(OpCode::kDenseCrossEntropyGrad, {&probabilities, &targets}, {&gradient}, &attributes);
}

NDArray MeanSquaredError(const NDArray& predictions, const NDArray& targets) {
  return MeanLoss(OpCode::kSquaredError, "predictions", predictions, targets);
}

void MeanSquaredErrorGradInto(const NDArray& predictions, const NDArray& targets, double scale,
                              NDArray& gradient) {
  MeanLossGrad(OpCode::kSquaredErrorGrad, "predictions", predictions, targets, scale, gradient);
}

NDArray BinaryCrossEntropy(const NDArray& logits, const NDArray& targets) {
  return MeanLoss(OpCode::kBinaryCrossEntropy, "logits", logits, targets);
}

void BinaryCrossEntropyGradInto(const NDArray& logits, const NDArray& targets, double scale,
                                NDArray& gradient) {
  MeanLossGrad(OpCode::kBinaryCrossEntropyGrad, "logits", logits, targets, scale, gradient);
}

NDArray MeanAbsoluteError(const NDArray& predictions, const NDArray& targets) {
  return MeanLoss(OpCode::kAbsoluteError, "predictions", predictions, targets);
}

NDArray HuberError(const NDArray& predictions, const NDArray& targets, double delta) {
  const HuberAttributes attributes = HuberOf(OpCode::kHuberError, delta);
  return MeanLoss(OpCode::kHuberError, "predictions", predictions, targets, &attributes);
}

void MeanAbsoluteErrorGradInto(const NDArray& predictions, const NDArray& targets,
                               const NDArray& loss_gradient, NDArray& gradient) {
  RowLossGrad(OpCode::kAbsoluteErrorGrad, predictions, targets, loss_gradient, gradient);
}

void HuberErrorGradInto(const NDArray& predictions, const NDArray& targets,
                        const NDArray& loss_gradient, double delta, NDArray& gradient) {
  const HuberAttributes attributes = HuberOf(OpCode::kHuberErrorGrad, delta);
  RowLossGrad(OpCode::kHuberErrorGrad, predictions, targets, loss_gradient, gradient, &attributes);
}

}  // namespace tidepool
