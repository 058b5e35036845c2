#include <map>
#include <string>
#include <vector>

#include "tidepool/ndarray/linalg/decompositions.h"
#include "tidepool/ndarray/linalg/matrix_functions.h"
#include "tidepool/ndarray/linalg/solving.h"
#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution1d.h"
#include "tidepool/ndarray/ops/convolution3d.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/ctc.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/resize.h"
#include "tidepool/ndarray/ops/updaters.h"
#include "tidepool/ndarray/testing/numpy_judge.h"

namespace tidepool {
namespace {

using In = const std::vector<NDArray>&;

Evaluate NormOf(linalg::MatrixNorm norm) {
  return [norm](const Json&, In in) { return linalg::Norm(in[0], norm); };
}

NDArray Attend(const Json& c, In in) {
  AttentionAttributes attributes;
  attributes.causal = c["causal"];
  return Attention(in[0], in[1], in[2], attributes, in.size() > 3 ? &in[3] : nullptr).output;
}

NDArray Update(const Json& c, In in) {
  AdamAttributes attributes;
  attributes.weight_decay = c["decay"];
  attributes.step = c["step"];
  NDArray parameters = in[0].Dup(), first = in[2].Dup(), second = in[3].Dup();
  AdamUpdate(in[1], parameters, first, second, attributes);
  return parameters;
}

NDArray AdaGrad(const Json&, In in) {
  NDArray parameters = in[0].Dup(), sum = in[2].Dup();
  AdaGradUpdate(in[1], parameters, sum, {});
  return parameters;
}

NDArray RmsProp(const Json& c, In in) {
  NDArray parameters = in[0].Dup(), mean_square = in[2].Dup();
  RmsPropUpdate(in[1], parameters, mean_square, {.l2 = c["decay"]});
  return parameters;
}

NDArray Ctc(const Json& c, In in) {
  return CtcLoss(in[0], in[1], in[2], in[3], {c["blank"].get<int64_t>(), true});
}

NDArray Grouped(const Json& c, In in) {
  GroupNormAttributes attributes;
  attributes.groups = c["groups"];
  return GroupNorm(in[0], in[1], in[2], attributes).output;
}

NDArray Resized(const Json& c, In in) {
  static const std::map<std::string, ResizeMode> modes = {{"nearest", ResizeMode::kNearest},
                                                          {"linear", ResizeMode::kLinear},
                                                          {"cubic", ResizeMode::kCubic}};
  return Resize2d(in[0], c["size"][0], c["size"][1], {modes.at(c["mode"]), c["align"]});
}

// Of one, two or three dimensions; the transposed one has no bias.
NDArray Convolve(const Json& c, In in) {
  const bool transposed = in.size() < 3;
  const NDArray* const bias = transposed ? nullptr : &in[2];
  const auto number = [&](const char* what, int axis) { return c[what][axis].get<int64_t>(); };
  const int64_t groups = c["groups"];
  if (c["rank"] == 1) {
    Conv1dAttributes a;
    a.stride = number("stride", 0), a.dilation = number("dilation", 0), a.groups = groups;
    a.pad_before = a.pad_behind = number("pad", 0);
    return transposed ? Conv1dTranspose(in[0], in[1], bias, a) : Conv1d(in[0], in[1], bias, a);
  }
  if (c["rank"] == 2) {
    Conv2dAttributes a;
    a.stride_height = number("stride", 0), a.stride_width = number("stride", 1), a.groups = groups;
    a.dilation_height = number("dilation", 0), a.dilation_width = number("dilation", 1);
    a.pad_top = a.pad_bottom = number("pad", 0), a.pad_left = a.pad_right = number("pad", 1);
    return transposed ? Conv2dTranspose(in[0], in[1], bias, a) : Conv2d(in[0], in[1], bias, a);
  }
  Conv3dAttributes a;
  a.groups = groups;
  for (int i = 0; i < 3; ++i) {
    a.stride[i] = number("stride", i), a.dilation[i] = number("dilation", i);
    a.pad_before[i] = a.pad_behind[i] = number("pad", i);
  }
  return transposed ? Conv3dTranspose(in[0], in[1], bias, a) : Conv3d(in[0], in[1], bias, a);
}

}  // namespace

const std::map<std::string, Evaluate>& JudgedNetworkOperators() {
  using linalg::MatrixNorm;
  static const auto& operators = *new std::map<std::string, Evaluate>{
      {"inverse", [](const Json&, In in) { return linalg::Inverse(in[0]); }},
      {"determinant", [](const Json&, In in) { return linalg::Determinant(in[0]); }},
      {"log_determinant",
       [](const Json&, In in) { return linalg::SignAndLogDeterminant(in[0]).log; }},
      {"sign_of_determinant",
       [](const Json&, In in) { return linalg::SignAndLogDeterminant(in[0]).sign; }},
      {"matrix_power",
       [](const Json& c, In in) { return linalg::MatrixPower(in[0], c["exponent"]); }},
      {"cholesky", [](const Json&, In in) { return linalg::Cholesky(in[0]); }},
      {"symmetric_eigenvalues",
       [](const Json&, In in) { return linalg::SymmetricEigen(in[0]).values; }},
      {"solve", [](const Json&, In in) { return linalg::Solve(in[0], in[1]); }},
      {"singular_values", [](const Json&, In in) { return linalg::SingularValues(in[0]); }},
      {"pseudo_inverse", [](const Json&, In in) { return linalg::PseudoInverse(in[0]); }},
      {"matrix_rank", [](const Json&, In in) { return linalg::MatrixRank(in[0]); }},
      {"norm_fro", NormOf(MatrixNorm::kFrobenius)},
      {"norm_nuc", NormOf(MatrixNorm::kNuclear)},
      {"norm_2", NormOf(MatrixNorm::kSpectral)},
      {"norm_1", NormOf(MatrixNorm::kOne)},
      {"norm_inf", NormOf(MatrixNorm::kInfinity)},
      {"least_squares",
       [](const Json&, In in) { return linalg::LeastSquares(in[0], in[1]).solution; }},
      {"attention", &Attend},
      {"rms_norm", [](const Json&, In in) { return RmsNorm(in[0], in[1]).output; }},
      {"group_norm", &Grouped},
      {"layer_norm", [](const Json&, In in) { return LayerNorm(in[0], in[1], in[2]).output; }},
      {"adam_update", &Update},
      {"adagrad_update", &AdaGrad},
      {"rms_prop_update", &RmsProp},
      {"ctc_loss", &Ctc},
      {"absolute_error", [](const Json&, In in) { return MeanAbsoluteError(in[0], in[1]); }},
      {"huber_error", [](const Json& c, In in) { return HuberError(in[0], in[1], c["delta"]); }},
      {"resize", &Resized},
      {"convolution", &Convolve},
      {"convolution_transpose", &Convolve},
  };
  return operators;
}

}  // namespace tidepool
