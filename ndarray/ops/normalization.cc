#include "tidepool/ndarray/ops/normalization.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

Shape LastAxis(const NDArray& x) { return {x.dim(x.rank() - 1)}; }

Shape StatisticsShape(OpCode op, const NDArray& x) {
  if (op == OpCode::kBatchNorm || op == OpCode::kBatchNormGrad) return LastAxis(x);
  return Shape(absl::Span<const int64_t>(x.shape().dims(), x.rank() - 1));
}

void CheckInput(const char* op, const NDArray& x, const NDArray& scale) {
  CheckFloating(op, "X", x);
  CheckLeastRank(op, "X", x, 1);
  CheckShape(op, "scale", scale, LastAxis(x));
  CheckDType(op, "scale", scale, x.dtype());
}

void CheckShift(const char* op, const NDArray& x, const NDArray& shift) {
  CheckShape(op, "shift", shift, LastAxis(x));
  CheckDType(op, "shift", shift, x.dtype());
}

void CheckStatistics(const char* op, const char* operand, const NDArray& array, const NDArray& x,
                     const Shape& shape) {
  CheckShape(op, operand, array, shape);
  CheckDType(op, operand, array, StatisticsType(x.dtype()));
}

void CheckEpsilon(const char* op, double epsilon) {
  if (epsilon >= 0) return;
  ThrowInvalidArgument(
      absl::StrCat("Op [", op, "]: epsilon is ", epsilon, ", expected at least 0"));
}

// [batch, groups].
Shape GroupsShape(const char* op, const NDArray& x, int64_t groups) {
  CheckLeastRank(op, "X", x, 2);
  const int64_t channels = x.dim(x.rank() - 1);
  if (groups >= 1 && channels % groups == 0) return {x.dim(0), groups};
  ThrowInvalidArgument(
      absl::StrCat("Op [", op, "]: X has shape ", x.shape().ToString(), " and groups are ", groups,
                   ", expected at least 1 and channels that are a multiple of them"));
}

template <typename Attributes, typename StatisticsOf>
Normalized Forward(OpCode op, const NDArray& x, const NDArray& scale, const NDArray& shift,
                   const Attributes& attributes, StatisticsOf statistics_of) {
  CheckOperands(op, {&x, &scale, &shift});
  const char* name = Info(op).name;
  CheckInput(name, x, scale);
  CheckShift(name, x, shift);
  CheckEpsilon(name, attributes.epsilon);
  const Shape statistics = statistics_of(name);
  const Place place = ResultPlace(op, {&x, &scale, &shift});
  Normalized result{NDArray(x.shape(), x.dtype(), place),
                    NDArray(statistics, StatisticsType(x.dtype()), place),
                    NDArray(statistics, StatisticsType(x.dtype()), place)};
  Dispatch(op, {&x, &scale, &shift}, {&result.output, &result.mean, &result.inverse_deviation},
           &attributes);
  return result;
}

Normalized Forward(OpCode op, const NDArray& x, const NDArray& scale, const NDArray& shift,
                   const NormalizationAttributes& attributes) {
  return Forward(op, x, scale, shift, attributes,
                 [&](const char*) { return StatisticsShape(op, x); });
}

NormalizationGradients Backward(OpCode op, const NDArray& x, const NDArray& scale,
                                const NDArray& mean, const NDArray& inverse_deviation,
                                const NDArray& output_gradient) {
  CheckOperands(op, {&x, &scale, &mean, &inverse_deviation, &output_gradient});
  const char* name = Info(op).name;
  CheckInput(name, x, scale);
  if (op == OpCode::kGroupNormGrad) CheckRank(name, "mean", mean, 2);
  const Shape statistics =
      op == OpCode::kGroupNormGrad ? GroupsShape(name, x, mean.dim(1)) : StatisticsShape(op, x);
  CheckStatistics(name, "mean", mean, x, statistics);
  CheckStatistics(name, "inverse_deviation", inverse_deviation, x, statistics);
  CheckLike(name, "dZ", output_gradient, x);
  const Place place = ResultPlace(op, {&x, &scale, &mean, &inverse_deviation, &output_gradient});
  NormalizationGradients result{NDArray(x.shape(), x.dtype(), place),
                                NDArray(LastAxis(x), x.dtype(), place),
                                NDArray(LastAxis(x), x.dtype(), place)};
  Dispatch(op, {&x, &scale, &mean, &inverse_deviation, &output_gradient},
           {&result.input, &result.scale, &result.shift});
  return result;
}

}  // namespace

Normalized BatchNorm(const NDArray& x, const NDArray& scale, const NDArray& shift,
                     const NormalizationAttributes& attributes) {
  return Forward(OpCode::kBatchNorm, x, scale, shift, attributes);
}

NormalizationGradients BatchNormGrad(const NDArray& x, const NDArray& scale, const NDArray& mean,
                                     const NDArray& inverse_deviation,
                                     const NDArray& output_gradient) {
  return Backward(OpCode::kBatchNormGrad, x, scale, mean, inverse_deviation, output_gradient);
}

void UpdateRunningAverages(const NDArray& mean, const NDArray& inverse_deviation,
                           const RunningAverageAttributes& attributes, NDArray& running_mean,
                           NDArray& running_variance) {
  CheckOperands(OpCode::kBatchNormRunning, {&mean, &inverse_deviation});
  running_mean.CheckAlive("batch_norm_running", "running_mean");
  running_variance.CheckAlive("batch_norm_running", "running_variance");
  CheckRank("batch_norm_running", "mean", mean, 1);
  if (mean.dtype() != DType::kFloat32) {
    CheckDType("batch_norm_running", "mean", mean, DType::kFloat64);
  }
  CheckLike("batch_norm_running", "inverse_deviation", inverse_deviation, mean);
  CheckLike("batch_norm_running", "running_mean", running_mean, mean);
  CheckLike("batch_norm_running", "running_variance", running_variance, mean);
  if (!(attributes.momentum >= 0 && attributes.momentum <= 1) || attributes.count < 1) {
    ThrowInvalidArgument(absl::StrCat("Op [batch_norm_running]: momentum ", attributes.momentum,
                                      " and count ", attributes.count,
                                      ", expected 0 to 1 and at least 1"));
  }
  CheckEpsilon("batch_norm_running", attributes.epsilon);
  Dispatch(OpCode::kBatchNormRunning, {&mean, &inverse_deviation},
           {&running_mean, &running_variance}, &attributes);
}

NDArray BatchNormInference(const NDArray& x, const NDArray& scale, const NDArray& shift,
                           const NDArray& mean, const NDArray& variance,
                           const NormalizationAttributes& attributes) {
  constexpr OpCode kOp = OpCode::kBatchNormInference;
  CheckOperands(kOp, {&x, &scale, &shift, &mean, &variance});
  CheckInput("batch_norm_inference", x, scale);
  CheckShift("batch_norm_inference", x, shift);
  CheckStatistics("batch_norm_inference", "mean", mean, x, LastAxis(x));
  CheckStatistics("batch_norm_inference", "variance", variance, x, LastAxis(x));
  CheckEpsilon("batch_norm_inference", attributes.epsilon);
  NDArray z(x.shape(), x.dtype(), ResultPlace(kOp, {&x, &scale, &shift, &mean, &variance}));
  Dispatch(kOp, {&x, &scale, &shift, &mean, &variance}, {&z}, &attributes);
  return z;
}

Normalized LayerNorm(const NDArray& x, const NDArray& scale, const NDArray& shift,
                     const NormalizationAttributes& attributes) {
  return Forward(OpCode::kLayerNorm, x, scale, shift, attributes);
}

NormalizationGradients LayerNormGrad(const NDArray& x, const NDArray& scale, const NDArray& mean,
                                     const NDArray& inverse_deviation,
                                     const NDArray& output_gradient) {
  return Backward(OpCode::kLayerNormGrad, x, scale, mean, inverse_deviation, output_gradient);
}

RmsNormalized RmsNorm(const NDArray& x, const NDArray& scale,
                      const NormalizationAttributes& attributes) {
  constexpr OpCode kOp = OpCode::kRmsNorm;
  CheckOperands(kOp, {&x, &scale});
  CheckInput("rms_norm", x, scale);
  CheckEpsilon("rms_norm", attributes.epsilon);
  const Place place = ResultPlace(kOp, {&x, &scale});
  RmsNormalized result{NDArray(x.shape(), x.dtype(), place),
                       NDArray(StatisticsShape(kOp, x), StatisticsType(x.dtype()), place)};
  Dispatch(kOp, {&x, &scale}, {&result.output, &result.inverse_rms}, &attributes);
  return result;
}

RmsNormGradients RmsNormGrad(const NDArray& x, const NDArray& scale, const NDArray& inverse_rms,
                             const NDArray& output_gradient) {
  constexpr OpCode kOp = OpCode::kRmsNormGrad;
  CheckOperands(kOp, {&x, &scale, &inverse_rms, &output_gradient});
  CheckInput("rms_norm_grad", x, scale);
  CheckStatistics("rms_norm_grad", "inverse_rms", inverse_rms, x, StatisticsShape(kOp, x));
  CheckLike("rms_norm_grad", "dZ", output_gradient, x);
  const Place place = ResultPlace(kOp, {&x, &scale, &inverse_rms, &output_gradient});
  RmsNormGradients result{NDArray(x.shape(), x.dtype(), place),
                          NDArray(LastAxis(x), x.dtype(), place)};
  Dispatch(kOp, {&x, &scale, &inverse_rms, &output_gradient}, {&result.input, &result.scale});
  return result;
}

Normalized GroupNorm(const NDArray& x, const NDArray& scale, const NDArray& shift,
                     const GroupNormAttributes& attributes) {
  return Forward(OpCode::kGroupNorm, x, scale, shift, attributes,
                 [&](const char* op) { return GroupsShape(op, x, attributes.groups); });
}

NormalizationGradients GroupNormGrad(const NDArray& x, const NDArray& scale, const NDArray& mean,
                                     const NDArray& inverse_deviation,
                                     const NDArray& output_gradient) {
  return Backward(OpCode::kGroupNormGrad, x, scale, mean, inverse_deviation, output_gradient);
}

}  // namespace tidepool
