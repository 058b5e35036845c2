#include <map>
#include <string>
#include <vector>

#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/recurrent.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/updaters.h"
#include "tidepool/ndarray/testing/numpy_judge.h"

namespace tidepool {
namespace {

using In = const std::vector<NDArray>&;

Pool2dAttributes WindowsOf(const Json& c) {
  Pool2dAttributes a;
  a.kernel_height = c["kernel"][0], a.kernel_width = c["kernel"][1];
  a.stride_height = c["stride"][0], a.stride_width = c["stride"][1];
  a.pad_top = a.pad_bottom = c["pad"][0], a.pad_left = a.pad_right = c["pad"][1];
  a.count_include_pad = c.value("counted", true);
  return a;
}

NDArray Descend(const Json& c, In in) {
  NDArray parameters = in[0].Dup();
  SgdUpdate(in[1], parameters, {.l2 = c["decay"]});
  return parameters;
}
NDArray DescendWithMomentum(const Json& c, In in) {
  NDArray parameters = in[0].Dup(), velocity = in[2].Dup();
  NesterovsUpdate(in[1], parameters, velocity, {.l2 = c["decay"]});
  return parameters;
}

}  // namespace

const std::map<std::string, Evaluate>& JudgedLayers() {
  static const auto& layers = *new std::map<std::string, Evaluate>{
      {"leaky_relu",
       [](const Json& c, In in) { return LeakyRelu(in[0], c["alpha"].get<double>()); }},
      {"elu", [](const Json& c, In in) { return Elu(in[0], c["alpha"].get<double>()); }},
      {"gelu", [](const Json&, In in) { return Gelu(in[0]); }},
      {"gelu_tanh", [](const Json&, In in) { return Gelu(in[0], GeluForm::kTanh); }},
      {"softmax", [](const Json& c, In in) { return Softmax(in[0], c["axis"].get<int>()); }},
      {"log_softmax", [](const Json& c, In in) { return LogSoftmax(in[0], c["axis"].get<int>()); }},
      {"max_pool", [](const Json& c, In in) { return MaxPool2d(in[0], WindowsOf(c)); }},
      {"average_pool", [](const Json& c, In in) { return AveragePool2d(in[0], WindowsOf(c)); }},
      {"global_max_pool", [](const Json&, In in) { return GlobalMaxPool2d(in[0]); }},
      {"global_average_pool", [](const Json&, In in) { return GlobalAveragePool2d(in[0]); }},
      {"batch_norm", [](const Json&, In in) { return BatchNorm(in[0], in[1], in[2]).output; }},
      {"batch_norm_inference",
       [](const Json&, In in) { return BatchNormInference(in[0], in[1], in[2], in[3], in[4]); }},
      {"softmax_cross_entropy",
       [](const Json&, In in) { return SoftmaxCrossEntropy(in[0], in[1]).loss; }},
      {"dense_cross_entropy",
       [](const Json&, In in) { return DenseCrossEntropy(in[0], in[1]).loss; }},
      {"mean_squared_error", [](const Json&, In in) { return MeanSquaredError(in[0], in[1]); }},
      {"binary_cross_entropy", [](const Json&, In in) { return BinaryCrossEntropy(in[0], in[1]); }},
      {"lstm_cell", [](const Json&, In in) { return LstmCell(in[0], in[1]).output; }},
      {"lstm_step",
       [](const Json&, In in) {
         return LstmStep(in[0], in[1], in[2], {in[3], in[4], in[5]}).output;
       }},
      {"gru_cell", [](const Json&, In in) { return GruCell(in[0], in[1], in[2]).output; }},
      {"gru_step",
       [](const Json&, In in) {
         return GruStep(in[0], in[1], {in[2], in[3], in[4], in[5]}).output;
       }},
      {"sgd_update", &Descend},
      {"nesterovs_update", &DescendWithMomentum},
  };
  return layers;
}

}  // namespace tidepool
