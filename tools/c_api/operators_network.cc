// Operators of networks: products, convolutions, pooling, normalisation, attention, losses, updates.
#include <cstdint>

#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/convolution.h"
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
#include "tidepool/ndarray/ops/updaters.h"
#include "tidepool/tools/c_api/operator_table.h"

namespace tidepool::c_api {
namespace {

Conv1dAttributes Conv1dOf(Attributes& a) {
  Conv1dAttributes c;
  c.stride = a.Int("stride", 1);
  c.pad_before = a.Int("pad_before", 0);
  c.pad_behind = a.Int("pad_behind", 0);
  c.dilation = a.Int("dilation", 1);
  c.relu = a.Flag("relu", false);
  c.groups = a.Int("groups", 1);
  return c;
}

Conv2dAttributes Conv2dOf(Attributes& a) {
  Conv2dAttributes c;
  const std::vector<int64_t> stride = a.IntsPerAxis("stride", 2, 1),
                             before = a.IntsPerAxis("pad_before", 2, 0),
                             behind = a.IntsPerAxis("pad_behind", 2, 0),
                             dilation = a.IntsPerAxis("dilation", 2, 1);
  c.stride_height = stride[0], c.stride_width = stride[1];
  c.pad_top = before[0], c.pad_left = before[1];
  c.pad_bottom = behind[0], c.pad_right = behind[1];
  c.dilation_height = dilation[0], c.dilation_width = dilation[1];
  c.relu = a.Flag("relu", false);
  c.filter_is_constant = a.Flag("filter_is_constant", false);
  c.groups = a.Int("groups", 1);
  return c;
}

Conv3dAttributes Conv3dOf(Attributes& a) {
  Conv3dAttributes c;
  const std::vector<int64_t> stride = a.IntsPerAxis("stride", 3, 1),
                             before = a.IntsPerAxis("pad_before", 3, 0),
                             behind = a.IntsPerAxis("pad_behind", 3, 0),
                             dilation = a.IntsPerAxis("dilation", 3, 1);
  for (int i = 0; i < 3; ++i) {
    c.stride[i] = stride[i], c.pad_before[i] = before[i], c.pad_behind[i] = behind[i],
    c.dilation[i] = dilation[i];
  }
  c.relu = a.Flag("relu", false);
  c.groups = a.Int("groups", 1);
  return c;
}

Pool2dAttributes Pool2dOf(Attributes& a, bool is_average) {
  Pool2dAttributes p;
  const std::vector<int64_t> kernel = a.IntsPerAxis("kernel", 2, 2),
                             stride = a.IntsPerAxis("stride", 2, 2),
                             before = a.IntsPerAxis("pad_before", 2, 0),
                             behind = a.IntsPerAxis("pad_behind", 2, 0);
  p.kernel_height = kernel[0], p.kernel_width = kernel[1];
  p.stride_height = stride[0], p.stride_width = stride[1];
  p.pad_top = before[0], p.pad_left = before[1];
  p.pad_bottom = behind[0], p.pad_right = behind[1];
  if (is_average) p.count_include_pad = a.Flag("count_include_pad", true);
  return p;
}

void AddProducts(std::vector<NamedOperator>& table) {
  table.push_back({"matmul", "X,Y,bias?", "Z", [](Attributes& a) {
                     MatMulAttributes m;
                     m.transpose_x = a.Flag("transpose_x", false);
                     m.transpose_y = a.Flag("transpose_y", false);
                     m.relu = a.Flag("relu", false);
                     m.y_is_constant = a.Flag("y_is_constant", false);
                     return One(
                         [=](Inputs in) { return MatMul(*in[0], *in[1], m, in[2]); },
                         [=](Inputs in, NDArray& z) { MatMulInto(*in[0], *in[1], z, m, in[2]); });
                   }});
  constexpr char kConvolution[] = "input,filter,bias?";
  table.push_back({"conv1d", kConvolution, "output", [](Attributes& a) {
                     return One(
                         [c = Conv1dOf(a)](Inputs in) { return Conv1d(*in[0], *in[1], in[2], c); });
                   }});
  table.push_back({"conv2d", kConvolution, "output", [](Attributes& a) {
                     return One(
                         [c = Conv2dOf(a)](Inputs in) { return Conv2d(*in[0], *in[1], in[2], c); });
                   }});
  table.push_back({"conv3d", kConvolution, "output", [](Attributes& a) {
                     return One(
                         [c = Conv3dOf(a)](Inputs in) { return Conv3d(*in[0], *in[1], in[2], c); });
                   }});
  table.push_back({"conv1d_transpose", kConvolution, "output", [](Attributes& a) {
                     const int64_t padding = a.Int("output_padding", 0);
                     return One([=, c = Conv1dOf(a)](Inputs in) {
                       return Conv1dTranspose(*in[0], *in[1], in[2], c, padding);
                     });
                   }});
  table.push_back({"conv2d_transpose", kConvolution, "output", [](Attributes& a) {
                     const std::vector<int64_t> padding = a.IntsPerAxis("output_padding", 2, 0);
                     return One([=, c = Conv2dOf(a)](Inputs in) {
                       return Conv2dTranspose(*in[0], *in[1], in[2], c, {padding[0], padding[1]});
                     });
                   }});
  table.push_back(
      {"conv3d_transpose", kConvolution, "output", [](Attributes& a) {
         const std::vector<int64_t> padding = a.IntsPerAxis("output_padding", 3, 0);
         return One([=, c = Conv3dOf(a)](Inputs in) {
           return Conv3dTranspose(*in[0], *in[1], in[2], c, {padding[0], padding[1], padding[2]});
         });
       }});
  table.push_back({"max_pool2d", "input", "output", [](Attributes& a) {
                     return One(
                         [p = Pool2dOf(a, false)](Inputs in) { return MaxPool2d(*in[0], p); });
                   }});
  table.push_back({"average_pool2d", "input", "output", [](Attributes& a) {
                     return One(
                         [p = Pool2dOf(a, true)](Inputs in) { return AveragePool2d(*in[0], p); });
                   }});
  table.push_back({"resize2d", "input", "output", [](Attributes& a) {
                     const int64_t height = a.Int("height"), width = a.Int("width");
                     ResizeAttributes r;
                     r.mode = a.Choice("mode", {"nearest", "linear", "cubic"}, ResizeMode::kLinear);
                     r.align_corners = a.Flag("align_corners", false);
                     return One([=](Inputs in) { return Resize2d(*in[0], height, width, r); });
                   }});
}

Results OfNormalized(Normalized normalized) {
  return Results{std::move(normalized.output), std::move(normalized.mean),
                 std::move(normalized.inverse_deviation)};
}

void AddNormalization(std::vector<NamedOperator>& table) {
  constexpr char kOutputs[] = "Z,mean,inverse_deviation";
  table.push_back(
      {"batch_norm", "X,scale,shift", kOutputs, [](Attributes& a) {
         const NormalizationAttributes n{a.Number("epsilon", 1e-5)};
         return Many([=](Inputs in) { return OfNormalized(BatchNorm(*in[0], *in[1], *in[2], n)); });
       }});
  table.push_back({"batch_norm_inference", "X,scale,shift,mean,variance", "Z", [](Attributes& a) {
                     const NormalizationAttributes n{a.Number("epsilon", 1e-5)};
                     return One([=](Inputs in) {
                       return BatchNormInference(*in[0], *in[1], *in[2], *in[3], *in[4], n);
                     });
                   }});
  table.push_back(
      {"layer_norm", "X,scale,shift", kOutputs, [](Attributes& a) {
         const NormalizationAttributes n{a.Number("epsilon", 1e-5)};
         return Many([=](Inputs in) { return OfNormalized(LayerNorm(*in[0], *in[1], *in[2], n)); });
       }});
  table.push_back(
      {"group_norm", "X,scale,shift", kOutputs, [](Attributes& a) {
         const GroupNormAttributes n{a.Number("epsilon", 1e-5), a.Int("groups", 1)};
         return Many([=](Inputs in) { return OfNormalized(GroupNorm(*in[0], *in[1], *in[2], n)); });
       }});
  table.push_back(
      {"rms_norm", "X,scale", "Z,inverse_rms", [](Attributes& a) {
         const NormalizationAttributes n{a.Number("epsilon", 1e-5)};
         return Many([=](Inputs in) {
           RmsNormalized normalized = RmsNorm(*in[0], *in[1], n);
           return Results{std::move(normalized.output), std::move(normalized.inverse_rms)};
         });
       }});
  table.push_back({"attention", "query,key,value,mask?", "Z,log_sum_exp", [](Attributes& a) {
                     AttentionAttributes attention;
                     attention.scale = a.Number("scale", 0);
                     attention.causal = a.Flag("causal", false);
                     attention.first_query = a.Int("first_query", 0);
                     return Many([=](Inputs in) {
                       Attended attended = Attention(*in[0], *in[1], *in[2], attention, in[3]);
                       return Results{std::move(attended.output), std::move(attended.log_sum_exp)};
                     });
                   }});
  table.push_back({"lstm_cell", "gates,cell", "output,next_cell,activations", [](Attributes&) {
                     return Many([](Inputs in) {
                       LstmStepResult step = LstmCell(*in[0], *in[1]);
                       return Results{std::move(step.output), std::move(step.cell),
                                      std::move(step.activations)};
                     });
                   }});
  table.push_back(
      {"gru_cell", "input_gates,hidden_gates,hidden", "next_hidden,activations", [](Attributes&) {
         return Many([](Inputs in) {
           GruCellResult step = GruCell(*in[0], *in[1], *in[2]);
           return Results{std::move(step.output), std::move(step.activations)};
         });
       }});
}

Results OfCrossEntropy(CrossEntropy entropy) {
  return Results{std::move(entropy.loss), std::move(entropy.probabilities)};
}

void AddLosses(std::vector<NamedOperator>& table) {
  table.push_back(
      {"softmax_cross_entropy", "logits,labels", "loss,probabilities", [](Attributes&) {
         return Many([](Inputs in) { return OfCrossEntropy(SoftmaxCrossEntropy(*in[0], *in[1])); });
       }});
  table.push_back(
      {"dense_cross_entropy", "logits,targets", "loss,probabilities", [](Attributes&) {
         return Many([](Inputs in) { return OfCrossEntropy(DenseCrossEntropy(*in[0], *in[1])); });
       }});
  using OfTwo = NDArray (*)(const NDArray&, const NDArray&);
  for (const auto& [name, run] : {std::pair<const char*, OfTwo>{"squared_error", &MeanSquaredError},
                                  {"binary_cross_entropy", &BinaryCrossEntropy},
                                  {"absolute_error", &MeanAbsoluteError}}) {
    table.push_back({name, "predictions,targets", "loss", [run = run](Attributes&) {
                       return One([run](Inputs in) { return run(*in[0], *in[1]); });
                     }});
  }
  table.push_back({"huber_error", "predictions,targets", "loss", [](Attributes& a) {
                     const double delta = a.Number("delta", 1);
                     return One([=](Inputs in) { return HuberError(*in[0], *in[1], delta); });
                   }});
  table.push_back({"ctc_loss", "log_probabilities,labels,input_lengths,label_lengths", "loss",
                   [](Attributes& a) {
                     const CtcAttributes c{a.Int("blank", 0), a.Flag("zero_infinity", false)};
                     return One(
                         [=](Inputs in) { return CtcLoss(*in[0], *in[1], *in[2], *in[3], c); });
                   }});
}

void AddUpdates(std::vector<NamedOperator>& table) {
  table.push_back(
      {"sgd_update", "gradient", "parameters", [](Attributes& a) {
         SgdAttributes u;
         u.learning_rate = a.Number("learning_rate", u.learning_rate);
         u.l2 = a.Number("l2", 0), u.l1 = a.Number("l1", 0), u.clip = a.Number("clip", 0);
         return InPlace([=](Inputs in, absl::Span<NDArray> out) { SgdUpdate(*in[0], out[0], u); });
       }});
  table.push_back({"nesterovs_update", "gradient", "parameters,velocity", [](Attributes& a) {
                     NesterovsAttributes u;
                     u.learning_rate = a.Number("learning_rate", u.learning_rate),
                     u.momentum = a.Number("momentum", u.momentum);
                     u.l2 = a.Number("l2", 0), u.l1 = a.Number("l1", 0),
                     u.clip = a.Number("clip", 0);
                     return InPlace([=](Inputs in, absl::Span<NDArray> out) {
                       NesterovsUpdate(*in[0], out[0], out[1], u);
                     });
                   }});
  table.push_back({"adagrad_update", "gradient", "parameters,sum", [](Attributes& a) {
                     AdaGradAttributes u;
                     u.learning_rate = a.Number("learning_rate", u.learning_rate),
                     u.epsilon = a.Number("epsilon", u.epsilon);
                     u.l2 = a.Number("l2", 0), u.l1 = a.Number("l1", 0),
                     u.clip = a.Number("clip", 0);
                     return InPlace([=](Inputs in, absl::Span<NDArray> out) {
                       AdaGradUpdate(*in[0], out[0], out[1], u);
                     });
                   }});
  table.push_back({"rms_prop_update", "gradient", "parameters,mean_square", [](Attributes& a) {
                     RmsPropAttributes u;
                     u.learning_rate = a.Number("learning_rate", u.learning_rate),
                     u.decay = a.Number("decay", u.decay);
                     u.epsilon = a.Number("epsilon", u.epsilon);
                     u.l2 = a.Number("l2", 0), u.l1 = a.Number("l1", 0),
                     u.clip = a.Number("clip", 0);
                     return InPlace([=](Inputs in, absl::Span<NDArray> out) {
                       RmsPropUpdate(*in[0], out[0], out[1], u);
                     });
                   }});
  table.push_back(
      {"adam_update", "gradient", "parameters,first_moment,second_moment", [](Attributes& a) {
         AdamAttributes u;
         u.learning_rate = a.Number("learning_rate", u.learning_rate);
         u.beta1 = a.Number("beta1", u.beta1), u.beta2 = a.Number("beta2", u.beta2);
         u.epsilon = a.Number("epsilon", u.epsilon), u.step = a.Int("step", 1);
         u.weight_decay = a.Number("weight_decay", 0);
         u.l2 = a.Number("l2", 0), u.l1 = a.Number("l1", 0), u.clip = a.Number("clip", 0);
         return InPlace([=](Inputs in, absl::Span<NDArray> out) {
           AdamUpdate(*in[0], out[0], out[1], out[2], u);
         });
       }});
}

}  // namespace

void AddNetworkOperators(std::vector<NamedOperator>& table) {
  AddProducts(table);
  AddNormalization(table);
  AddLosses(table);
  AddUpdates(table);
}

}  // namespace tidepool::c_api
