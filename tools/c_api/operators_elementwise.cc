// Operators of elements, and reductions.
#include <limits>

#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/bitwise.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/statistics.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/tools/c_api/operator_table.h"

namespace tidepool::c_api {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

using OfOne = NDArray (*)(const NDArray&);
using OfTwo = NDArray (*)(const NDArray&, const NDArray&);
using IntoOfOne = void (*)(const NDArray&, NDArray&);
using IntoOfTwo = void (*)(const NDArray&, const NDArray&, NDArray&);

// Families of operators that are alike come from their lists (ndarray/kernel/operator_list.inc).
void AddOfOne(std::vector<NamedOperator>& table, const char* name, const char* inputs,
              const char* outputs, OfOne run, IntoOfOne into) {
  table.push_back({name, inputs, outputs, [=](Attributes&) {
                     return One([=](Inputs in) { return run(*in[0]); },
                                [=](Inputs in, NDArray& z) { into(*in[0], z); });
                   }});
}
void AddOfTwo(std::vector<NamedOperator>& table, const char* name, const char* inputs,
              const char* outputs, OfTwo run, IntoOfTwo into) {
  table.push_back({name, inputs, outputs, [=](Attributes&) {
                     return One([=](Inputs in) { return run(*in[0], *in[1]); },
                                [=](Inputs in, NDArray& z) { into(*in[0], *in[1], z); });
                   }});
}

void AddFamilies(std::vector<NamedOperator>& table) {
#define TIDEPOOL_OPERATOR(Code, name, inputs, outputs, ...)         \
  AddOfTwo(table, name, inputs, outputs, static_cast<OfTwo>(&Code), \
           static_cast<IntoOfTwo>(&Code##Into));
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#include "tidepool/ndarray/kernel/operators/bits.inc"
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
#include "tidepool/ndarray/kernel/operators/logic.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Code, name, inputs, outputs, ...)         \
  AddOfOne(table, name, inputs, outputs, static_cast<OfOne>(&Code), \
           static_cast<IntoOfOne>(&Code##Into));
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#include "tidepool/ndarray/kernel/operators/functions.inc"
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
#undef TIDEPOOL_OPERATOR
}

void AddOthers(std::vector<NamedOperator>& table) {
  AddOfOne(table, "logical_not", "X", "Z", &LogicalNot, &LogicalNotInto);
  AddOfOne(table, "bitwise_not", "X", "Z", &BitwiseNot, &BitwiseNotInto);
  table.push_back({"copy", "X", "Z", [](Attributes&) {
                     return One([](Inputs in) { return in[0]->Dup(); },
                                [](Inputs in, NDArray& z) { CopyInto(*in[0], z); });
                   }});
  table.push_back({"cast", "X", "Z", [](Attributes& a) {
                     const DType dtype = a.Type("dtype");
                     return One([=](Inputs in) { return Cast(*in[0], dtype); },
                                [](Inputs in, NDArray& z) { CopyInto(*in[0], z); });
                   }});
  table.push_back({"scale_shift", "X", "Z", [](Attributes& a) {
                     const double scale = a.Number("scale", 1), shift = a.Number("shift", 0);
                     return One(
                         [=](Inputs in) { return ScaleShift(*in[0], scale, shift); },
                         [=](Inputs in, NDArray& z) { ScaleShiftInto(*in[0], scale, shift, z); });
                   }});
  table.push_back({"where", "condition,X,Y", "Z", [](Attributes&) {
                     return One(
                         [](Inputs in) { return Where(*in[0], *in[1], *in[2]); },
                         [](Inputs in, NDArray& z) { WhereInto(*in[0], *in[1], *in[2], z); });
                   }});
  table.push_back({"clip", "X", "Z", [](Attributes& a) {
                     const double low = a.Number("low", -kInfinity),
                                  high = a.Number("high", kInfinity);
                     return One([=](Inputs in) { return Clip(*in[0], low, high); },
                                [=](Inputs in, NDArray& z) { ClipInto(*in[0], low, high, z); });
                   }});
  table.push_back({"leaky_relu", "X", "Z", [](Attributes& a) {
                     const double alpha = a.Number("alpha", 0.01);
                     return One([=](Inputs in) { return LeakyRelu(*in[0], alpha); },
                                [=](Inputs in, NDArray& z) { LeakyReluInto(*in[0], alpha, z); });
                   }});
  table.push_back({"elu", "X", "Z", [](Attributes& a) {
                     const double alpha = a.Number("alpha", 1);
                     return One([=](Inputs in) { return Elu(*in[0], alpha); },
                                [=](Inputs in, NDArray& z) { EluInto(*in[0], alpha, z); });
                   }});
  table.push_back({"gelu", "X", "Z", [](Attributes& a) {
                     const GeluForm form =
                         a.Flag("tanh_form", false) ? GeluForm::kTanh : GeluForm::kErf;
                     return One([=](Inputs in) { return Gelu(*in[0], form); },
                                [=](Inputs in, NDArray& z) { GeluInto(*in[0], form, z); });
                   }});
  table.push_back(
      {"leaky_relu_grad", "X,dZ", "dX", [](Attributes& a) {
         const double alpha = a.Number("alpha", 0.01);
         return One([=](Inputs in) { return LeakyReluGrad(*in[0], *in[1], alpha); },
                    [=](Inputs in, NDArray& dx) { LeakyReluGradInto(*in[0], *in[1], alpha, dx); });
       }});
  table.push_back({"elu_grad", "X,dZ", "dX", [](Attributes& a) {
                     const double alpha = a.Number("alpha", 1);
                     return One(
                         [=](Inputs in) { return EluGrad(*in[0], *in[1], alpha); },
                         [=](Inputs in, NDArray& dx) { EluGradInto(*in[0], *in[1], alpha, dx); });
                   }});
  table.push_back(
      {"gelu_grad", "X,dZ", "dX", [](Attributes& a) {
         const GeluForm form = a.Flag("tanh_form", false) ? GeluForm::kTanh : GeluForm::kErf;
         return One([=](Inputs in) { return GeluGrad(*in[0], *in[1], form); },
                    [=](Inputs in, NDArray& dx) { GeluGradInto(*in[0], *in[1], form, dx); });
       }});
  table.push_back({"softmax", "X", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", -1);
                     return One([=](Inputs in) { return Softmax(*in[0], axis); });
                   }});
  table.push_back({"log_softmax", "X", "Z", [](Attributes& a) {
                     const int axis = a.Axis("axis", -1);
                     return One([=](Inputs in) { return LogSoftmax(*in[0], axis); });
                   }});
  table.push_back({"softmax_grad", "Z,dZ", "dX", [](Attributes& a) {
                     const int axis = a.Axis("axis", -1);
                     return One([=](Inputs in) { return SoftmaxGrad(*in[0], *in[1], axis); });
                   }});
  table.push_back({"log_softmax_grad", "Z,dZ", "dX", [](Attributes& a) {
                     const int axis = a.Axis("axis", -1);
                     return One([=](Inputs in) { return LogSoftmaxGrad(*in[0], *in[1], axis); });
                   }});
  table.push_back(
      {"dropout", "X", "Z", [](Attributes& a) {
         const double rate = a.Number("rate", 0.5);
         const uint64_t seed = a.Unsigned("seed", 0), stream = a.Unsigned("stream", 0);
         return One([=](Inputs in) { return Dropout(*in[0], rate, seed, stream); },
                    [=](Inputs in, NDArray& z) { DropoutInto(*in[0], rate, seed, stream, z); });
       }});
}

using Reduction = NDArray (*)(const NDArray&, const Axes&, bool);
using WithDdof = NDArray (*)(const NDArray&, const Axes&, int64_t, bool);
using OfOneAxis = NDArray (*)(const NDArray&, int, bool);

void AddReductions(std::vector<NamedOperator>& table) {
  const std::pair<const char*, Reduction> reductions[] = {{"sum", &Sum},
                                                          {"prod", &Prod},
                                                          {"mean", &Mean},
                                                          {"norm1", &Norm1},
                                                          {"norm2", &Norm2},
                                                          {"norm_inf", &NormInf},
                                                          {"log_sum_exp", &LogSumExp},
                                                          {"max", &Max},
                                                          {"min", &Min},
                                                          {"any", &Any},
                                                          {"all", &All},
                                                          {"median", &Median},
                                                          {"nan_sum", &NanSum},
                                                          {"nan_mean", &NanMean},
                                                          {"nan_max", &NanMax},
                                                          {"nan_min", &NanMin}};
  for (const auto& [name, run] : reductions) {
    table.push_back({name, "X", "Z", [run = run](Attributes& a) {
                       const Axes axes = a.Axes("axes");
                       const bool keep_dims = a.Flag("keep_dims", false);
                       return One([=](Inputs in) { return run(*in[0], axes, keep_dims); });
                     }});
  }
  for (const auto& [name, run] :
       {std::pair<const char*, WithDdof>{"variance", &Variance}, {"std", &Std}}) {
    table.push_back({name, "X", "Z", [run = run](Attributes& a) {
                       const Axes axes = a.Axes("axes");
                       const int64_t ddof = a.Int("ddof", 0);
                       const bool keep_dims = a.Flag("keep_dims", false);
                       return One([=](Inputs in) { return run(*in[0], axes, ddof, keep_dims); });
                     }});
  }
  for (const auto& [name, run] :
       {std::pair<const char*, OfOneAxis>{"argmax", &ArgMax}, {"argmin", &ArgMin}}) {
    table.push_back({name, "X", "Z", [run = run](Attributes& a) {
                       const int axis = a.Axis("axis", -1);
                       const bool keep_dims = a.Flag("keep_dims", false);
                       return One([=](Inputs in) { return run(*in[0], axis, keep_dims); });
                     }});
  }
  table.push_back({"quantile", "X", "Z", [](Attributes& a) {
                     const double q = a.Number("q");
                     const Axes axes = a.Axes("axes");
                     const bool keep_dims = a.Flag("keep_dims", false);
                     const auto method =
                         a.Choice("method", {"linear", "lower", "higher", "nearest", "midpoint"},
                                  QuantileMethod::kLinear);
                     return One(
                         [=](Inputs in) { return Quantile(*in[0], q, axes, keep_dims, method); });
                   }});
}

}  // namespace

void AddElementwiseOperators(std::vector<NamedOperator>& table) {
  AddFamilies(table);
  AddOthers(table);
  AddReductions(table);
}

}  // namespace tidepool::c_api
