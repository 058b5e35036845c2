#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/convolution1d.h"
#include "tidepool/ndarray/ops/convolution3d.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/ctc.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/recurrent.h"
#include "tidepool/ndarray/ops/resize.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/updaters.h"
#include "tidepool/ndarray/testing/public_calls.h"

namespace tidepool {
namespace {

using A = std::vector<NDArray>&;

std::vector<PublicCall> Losses() {
  const Shape m{2, 2};
  const std::vector<Operand> into = {{"predictions", m}, {"targets", m}, {"gradient", m}};
  return {
      {"softmax", {{"X", m}}, [](A a) { Softmax(a[0], 0); }},
      {"log_softmax", {{"X", m}}, [](A a) { LogSoftmax(a[0]); }},
      {"softmax_grad", {{"Z", m}, {"dZ", m}}, [](A a) { SoftmaxGrad(a[0], a[1]); }},
      {"log_softmax_grad", {{"Z", m}, {"dZ", m}}, [](A a) { LogSoftmaxGrad(a[0], a[1]); }},
      {"dense_cross_entropy",
       {{"logits", m}, {"targets", m}},
       [](A a) { DenseCrossEntropy(a[0], a[1]); }},
      {"dense_cross_entropy_grad",
       {{"probabilities", m}, {"targets", m}, {"gradient", m}},
       [](A a) { DenseCrossEntropyGradInto(a[0], a[1], 1, a[2]); }},
      {"squared_error",
       {{"predictions", m}, {"targets", m}},
       [](A a) { MeanSquaredError(a[0], a[1]); }},
      {"squared_error_grad", into, [](A a) { MeanSquaredErrorGradInto(a[0], a[1], 1, a[2]); }},
      {"binary_cross_entropy",
       {{"logits", m}, {"targets", m}},
       [](A a) { BinaryCrossEntropy(a[0], a[1]); }},
      {"binary_cross_entropy_grad",
       {{"logits", m}, {"targets", m}, {"gradient", m}},
       [](A a) { BinaryCrossEntropyGradInto(a[0], a[1], 1, a[2]); }},
      {"absolute_error",
       {{"predictions", m}, {"targets", m}},
       [](A a) { MeanAbsoluteError(a[0], a[1]); }},
      {"absolute_error_grad",
       {{"predictions", m}, {"targets", m}, {"loss_gradient", {2}}, {"gradient", m}},
       [](A a) { MeanAbsoluteErrorGradInto(a[0], a[1], a[2], a[3]); }},
      {"huber_error", {{"predictions", m}, {"targets", m}}, [](A a) { HuberError(a[0], a[1]); }},
      {"huber_error_grad",
       {{"predictions", m}, {"targets", m}, {"loss_gradient", {2}}, {"gradient", m}},
       [](A a) { HuberErrorGradInto(a[0], a[1], a[2], 1, a[3]); }},
  };
}

std::vector<PublicCall> AlignmentsAndUpdates() {
  const Shape frames{2, 2, 3}, v{2};
  const DType i64 = DType::kInt64;
  std::vector<Operand> aligned = {{"log_probabilities", frames},
                                  {"labels", {2, 1}, i64},
                                  {"input_lengths", v, i64},
                                  {"label_lengths", v, i64}};
  std::vector<Operand> backward = aligned;
  backward.push_back({"loss_gradient", v});
  return {
      {"ctc_loss", aligned, [](A a) { CtcLoss(a[0], a[1], a[2], a[3]); }},
      {"ctc_loss_grad", backward, [](A a) { CtcLossGrad(a[0], a[1], a[2], a[3], a[4]); }},
      {"adagrad_update",
       {{"gradient", v}, {"parameters", v}, {"sum", v}},
       [](A a) { AdaGradUpdate(a[0], a[1], a[2], {}); }},
      {"rms_prop_update",
       {{"gradient", v}, {"parameters", v}, {"mean_square", v}},
       [](A a) { RmsPropUpdate(a[0], a[1], a[2], {}); }},
  };
}

std::vector<PublicCall> Images() {
  const Shape image{1, 2, 2, 1}, one{1, 1, 1, 1}, channel{1, 1};
  return {
      {"average_pool2d", {{"input", image}}, [](A a) { AveragePool2d(a[0], {}); }},
      {"average_pool2d_grad",
       {{"output_gradient", one}},
       [=](A a) { AveragePool2dGrad(a[0], image, {}); }},
      {"max_pool2d", {{"input", image}}, [](A a) { GlobalMaxPool2d(a[0]); }},
      {"max_pool2d_grad",
       {{"input", image}, {"output", channel}, {"output_gradient", channel}},
       [](A a) { GlobalMaxPool2dGrad(a[0], a[1], a[2]); }},
      {"average_pool2d", {{"input", image}}, [](A a) { GlobalAveragePool2d(a[0]); }},
      {"average_pool2d_grad",
       {{"output_gradient", channel}},
       [=](A a) { GlobalAveragePool2dGrad(a[0], image); }},
      {"conv2d_transpose",
       {{"input", image}, {"filter", image}, {"bias", {1}}},
       [](A a) { Conv2dTranspose(a[0], a[1], &a[2], {}); }},
  };
}

std::vector<PublicCall> Volumes() {
  const Shape volume{1, 2, 2, 2, 1}, one{1, 1, 1, 1, 1}, image{1, 2, 2, 1}, line{1, 2, 1},
      point{1, 1, 1};
  return {
      {"conv3d",
       {{"input", volume}, {"filter", volume}, {"bias", {1}}},
       [](A a) { Conv3d(a[0], a[1], &a[2]); }},
      {"conv3d_grad_input",
       {{"output_gradient", one}, {"filter", volume}},
       [=](A a) { Conv3dGradInput(a[0], a[1], volume); }},
      {"conv3d_grad_filter",
       {{"input", volume}, {"output_gradient", one}, {"filter_gradient", volume}},
       [](A a) { Conv3dGradFilterInto(a[0], a[1], a[2]); }},
      {"conv3d_transpose",
       {{"input", one}, {"filter", volume}, {"bias", {1}}},
       [](A a) { Conv3dTranspose(a[0], a[1], &a[2]); }},
      {"conv1d_grad_input",
       {{"output_gradient", point}, {"filter", line}},
       [=](A a) { Conv1dGradInput(a[0], a[1], line); }},
      {"conv1d", {{"input", line}, {"filter", line}}, [](A a) { Conv1d(a[0], a[1]); }},
      {"conv1d_grad_filter",
       {{"input", line}, {"output_gradient", point}, {"filter_gradient", line}},
       [](A a) { Conv1dGradFilterInto(a[0], a[1], a[2]); }},
      {"conv1d_transpose",
       {{"input", point}, {"filter", line}},
       [](A a) { Conv1dTranspose(a[0], a[1]); }},
      {"resize2d", {{"input", image}}, [](A a) { Resize2d(a[0], 3, 3); }},
      {"resize2d_grad", {{"output_gradient", image}}, [](A a) { Resize2dGrad(a[0], 3, 3); }},
  };
}

std::vector<PublicCall> Normalizations() {
  const Shape m{2, 2}, v{2};
  const std::vector<Operand> forward = {{"X", m}, {"scale", v}, {"shift", v}};
  const std::vector<Operand> backward = {
      {"X", m}, {"scale", v}, {"mean", v}, {"inverse_deviation", v}, {"dZ", m}};
  return {
      {"batch_norm", forward, [](A a) { BatchNorm(a[0], a[1], a[2]); }},
      {"batch_norm_inference",
       {{"X", m}, {"scale", v}, {"shift", v}, {"mean", v}, {"variance", v}},
       [](A a) { BatchNormInference(a[0], a[1], a[2], a[3], a[4]); }},
      {"batch_norm_grad", backward, [](A a) { BatchNormGrad(a[0], a[1], a[2], a[3], a[4]); }},
      {"batch_norm_running",
       {{"mean", v}, {"inverse_deviation", v}, {"running_mean", v}, {"running_variance", v}},
       [](A a) { UpdateRunningAverages(a[0], a[1], {}, a[2], a[3]); }},
      {"layer_norm", forward, [](A a) { LayerNorm(a[0], a[1], a[2]); }},
      {"layer_norm_grad", backward, [](A a) { LayerNormGrad(a[0], a[1], a[2], a[3], a[4]); }},
      {"rms_norm", {{"X", m}, {"scale", v}}, [](A a) { RmsNorm(a[0], a[1]); }},
      {"rms_norm_grad",
       {{"X", m}, {"scale", v}, {"inverse_rms", v}, {"dZ", m}},
       [](A a) { RmsNormGrad(a[0], a[1], a[2], a[3]); }},
      {"group_norm", forward, [](A a) { GroupNorm(a[0], a[1], a[2], {}); }},
      {"group_norm_grad",
       {{"X", m}, {"scale", v}, {"mean", m}, {"inverse_deviation", m}, {"dZ", m}},
       [](A a) { GroupNormGrad(a[0], a[1], a[2], a[3], a[4]); }},
  };
}

std::vector<PublicCall> Attentions() {
  const Shape heads{1, 1, 2, 2}, rows{1, 1, 2};
  const std::vector<Operand> operands = {
      {"query", heads}, {"key", heads}, {"value", heads}, {"mask", heads}};
  std::vector<Operand> backward = operands, into = operands;
  for (const char* more : {"Z", "dZ"}) backward.push_back({more, heads});
  backward.push_back({"log_sum_exp", rows});
  into.push_back({"Z", heads});
  into.push_back({"log_sum_exp", rows});
  std::vector<Operand> backward_into = backward;
  for (const char* more : {"dquery", "dkey", "dvalue"}) backward_into.push_back({more, heads});
  return {
      {"attention", operands, [](A a) { Attention(a[0], a[1], a[2], {}, &a[3]); }},
      {"attention", into,
       [](A a) {
         Attended result{a[4], a[5]};
         AttentionInto(a[0], a[1], a[2], result, {}, &a[3]);
       }},
      {"attention_grad", backward,
       [](A a) {
         AttentionGrad(a[0], a[1], a[2], {a[4], a[6]}, a[5], {}, &a[3]);
       }},
      {"attention_grad", backward_into,
       [](A a) {
         AttentionGradients result{a[7], a[8], a[9]};
         AttentionGradInto(a[0], a[1], a[2], {a[4], a[6]}, a[5], result, {}, &a[3]);
       }},
  };
}

std::vector<PublicCall> Cells() {
  const Shape state{2, 1}, four{2, 4}, three{2, 3};
  return {
      {"lstm_cell", {{"gates", four}, {"cell", state}}, [](A a) { LstmCell(a[0], a[1]); }},
      {"lstm_cell_grad",
       {{"activations", four},
        {"cell", state},
        {"next_cell", state},
        {"output_gradient", state},
        {"next_cell_gradient", state}},
       [](A a) {
         LstmCellGrad(a[1], {a[3], a[2], a[0]}, a[3], &a[4]);
       }},
      {"lstm_step",
       {{"input", state},
        {"hidden", state},
        {"cell", state},
        {"input weights", {4, 1}},
        {"recurrent weights", {4, 1}},
        {"bias", {4}}},
       [](A a) {
         LstmStep(a[0], a[1], a[2], {a[3], a[4], a[5]});
       }},
      {"gru_cell",
       {{"input_gates", three}, {"hidden_gates", three}, {"hidden", state}},
       [](A a) { GruCell(a[0], a[1], a[2]); }},
      {"gru_cell_grad",
       {{"activations", three},
        {"hidden_gates", three},
        {"hidden", state},
        {"next_hidden_gradient", state}},
       [](A a) { GruCellGrad(a[0], a[1], a[2], a[3]); }},
      {"gru_step",
       {{"input", state},
        {"hidden", state},
        {"input weights", {3, 1}},
        {"recurrent weights", {3, 1}},
        {"input bias", {3}},
        {"recurrent bias", {3}}},
       [](A a) {
         GruStep(a[0], a[1], {a[2], a[3], a[4], a[5]});
       }},
  };
}

}  // namespace

void AppendNnCalls(std::vector<PublicCall>* calls) {
  for (const auto& more : {Losses(), AlignmentsAndUpdates(), Images(), Volumes(), Normalizations(),
                           Attentions(), Cells()}) {
    calls->insert(calls->end(), more.begin(), more.end());
  }
}

}  // namespace tidepool
