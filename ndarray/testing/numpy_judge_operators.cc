#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/bitwise.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/einsum.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/rearranging.h"
#include "tidepool/ndarray/ops/searching.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/statistics.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/linked_device.h"
#include "tidepool/ndarray/testing/numpy_judge.h"

namespace tidepool {
namespace {

using In = const std::vector<NDArray>&;

Evaluate OfOne(NDArray (*function)(const NDArray&)) {
  return [function](const Json&, In in) { return function(in[0]); };
}
Evaluate OfTwo(NDArray (*function)(const NDArray&, const NDArray&)) {
  return [function](const Json&, In in) { return function(in[0], in[1]); };
}

Device JudgedDevice() {
  const DeviceType simulated = DeviceType::Named("simulated");
  const bool linked = !KernelRegistry::Find(OpCode::kAdd, simulated, DType::kFloat32).empty();
  return linked ? Device{simulated, 0} : LinkedDevice();
}

NDArray LaidOut(const NDArray& x, int view) {
  if (view == 0 || x.rank() == 0) return x;
  if (view == 1) return x.Transpose().Dup().Transpose();
  std::vector<int64_t> dims(x.shape().span().begin(), x.shape().span().end());
  const int64_t size = dims.back();
  NDArray wide;
  if (view == 2) {
    dims.back() *= 2;
    wide = NDArray(Shape(dims), x.dtype(), Place::CurrentOn(x.device())).Slice(-1, 0, 2 * size, 2);
  } else {
    wide = NDArray(Shape(dims), x.dtype(), Place::CurrentOn(x.device()));
    if (size > 0) wide = wide.Slice(-1, size - 1, -1, -1);
  }
  CopyInto(x, wide);
  return wide;
}

NDArray ScatterCase(const Json& c, In in) {
  static const std::map<std::string, ScatterReduction> reductions = {
      {"none", ScatterReduction::kNone},
      {"add", ScatterReduction::kAdd},
      {"multiply", ScatterReduction::kMultiply},
      {"min", ScatterReduction::kMin},
      {"max", ScatterReduction::kMax}};
  const ScatterReduction reduction = reductions.at(c["reduction"]);
  const int axis = c["axis"];
  const NDArray z = Scatter(in[0], axis, in[1], in[2], reduction);
  NDArray target = in[0];  // the operand itself, as it lies
  ScatterInto(axis, in[1], in[2], reduction, target);
  return z.ToString(INT64_MAX) == target.ToString(INT64_MAX) ? z : NDArray();
}

Axes AxesOf(const Json& c) { return Axes(c["axes"].get<std::vector<int>>()); }
Evaluate Reduction(NDArray (*function)(const NDArray&, const Axes&, bool)) {
  return [function](const Json& c, In in) {
    return function(in[0], AxesOf(c), c["keep"].get<bool>());
  };
}

HistogramResult HistogramCase(const Json& c, In in) {
  if (in.size() > 1) return Histogram(in[0], in[1]);
  const int64_t bins = c["bins"];
  if (c["range"].is_null()) return Histogram(in[0], bins);
  return Histogram(in[0], bins, c["range"][0].get<double>(), c["range"][1].get<double>());
}

NDArray QuantileCase(const Json& c, In in) {
  static const std::map<std::string, QuantileMethod> methods = {
      {"linear", QuantileMethod::kLinear},
      {"lower", QuantileMethod::kLower},
      {"higher", QuantileMethod::kHigher},
      {"nearest", QuantileMethod::kNearest},
      {"midpoint", QuantileMethod::kMidpoint}};
  const QuantileMethod method = methods.at(c["method"]);
  const bool keep = c["keep"];
  if (c["q"].is_number()) return Quantile(in[0], c["q"].get<double>(), AxesOf(c), keep, method);
  return Quantile(in[0], c["q"].get<std::vector<double>>(), AxesOf(c), keep, method);
}

}  // namespace

void LayOut(const Json& views, std::vector<NDArray>* in) {
  for (size_t i = 0; i < in->size(); ++i) (*in)[i] = LaidOut((*in)[i].To(JudgedDevice()), views[i]);
}

Json JudgedFamilies() {
  Json families;
#define TIDEPOOL_OPERATOR(Name, name, ...) family.push_back({#Name, name});
  {
    Json& family = families["arithmetic"];
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
  }
  {
    Json& family = families["bits"];
#include "tidepool/ndarray/kernel/operators/bits.inc"
  }
  {
    Json& family = families["classifiers"];
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
  }
  {
    Json& family = families["comparisons"];
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
  }
  {
    Json& family = families["functions"];
#include "tidepool/ndarray/kernel/operators/functions.inc"
  }
  {
    Json& family = families["logic"];
#include "tidepool/ndarray/kernel/operators/logic.inc"
  }
  {
    Json& family = families["number_functions"];
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
  }
  {
    Json& family = families["real_arithmetic"];
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
  }
#undef TIDEPOOL_OPERATOR
  return families;
}

const std::map<std::string, Evaluate>& MoreJudgedOperators() {
  static const auto* const operators = new std::map<std::string, Evaluate>{
// By their rows.
#define TIDEPOOL_OPERATOR(Name, name, ...) {name, OfOne(&Name)},
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#include "tidepool/ndarray/kernel/operators/functions.inc"
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, ...) {name, OfTwo(&Name)},
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#include "tidepool/ndarray/kernel/operators/bits.inc"
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
#include "tidepool/ndarray/kernel/operators/logic.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
#undef TIDEPOOL_OPERATOR
      {"bitwise_not", OfOne(&BitwiseNot)},
      {"gather_elements",
       [](const Json& c, In in) { return Gather(in[0], c["axis"].get<int>(), in[1]); }},
      {"scatter", &ScatterCase},
      {"nonzero", [](const Json&, In in) { return Stack(NonZero(in[0])); }},
      {"argwhere", OfOne(&ArgWhere)},
      {"unique", OfOne(&Unique)},
      {"unique_values", [](const Json&, In in) { return UniqueAll(in[0]).values; }},
      {"unique_first", [](const Json&, In in) { return UniqueAll(in[0]).first; }},
      {"unique_inverse", [](const Json&, In in) { return UniqueAll(in[0]).inverse; }},
      {"unique_counts", [](const Json&, In in) { return UniqueAll(in[0]).counts; }},
      {"search_sorted",
       [](const Json& c, In in) { return SearchSorted(in[0], in[1], c["right"].get<bool>()); }},
      {"bincount",
       [](const Json& c, In in) {
         const int64_t least = c["least"];
         return in.size() > 1 ? BinCount(in[0], in[1], least) : BinCount(in[0], least);
       }},
      {"histogram", [](const Json& c, In in) { return HistogramCase(c, in).counts; }},
      {"histogram_edges", [](const Json& c, In in) { return HistogramCase(c, in).edges; }},
      {"cumprod", [](const Json& c, In in) { return CumProd(in[0], c["axis"].get<int>()); }},
      {"std",
       [](const Json& c, In in) {
         return Std(in[0], AxesOf(c), c["ddof"].get<int64_t>(), c["keep"].get<bool>());
       }},
      {"median", Reduction(&Median)},
      {"quantile", &QuantileCase},
      {"nan_sum", Reduction(&NanSum)},
      {"nan_mean", Reduction(&NanMean)},
      {"nan_max", Reduction(&NanMax)},
      {"nan_min", Reduction(&NanMin)},
      {"roll",
       [](const Json& c, In in) {
         const auto shifts = c["shifts"].get<std::vector<int64_t>>();
         if (c["axes"].is_null()) return Roll(in[0], shifts[0]);
         const auto axes = c["axes"].get<std::vector<int>>();
         return axes.size() == 1 ? Roll(in[0], shifts[0], axes[0]) : Roll(in[0], shifts, axes);
       }},
      {"diff", [](const Json& c,
                  In in) { return Diff(in[0], c["times"].get<int64_t>(), c["axis"].get<int>()); }},
      {"diagonal",
       [](const Json& c, In in) {
         return in[0].Diagonal(c["offset"].get<int64_t>(), c["axes"][0], c["axes"][1]);
       }},
      {"trace",
       [](const Json& c, In in) {
         return Trace(in[0], c["offset"].get<int64_t>(), c["axes"][0], c["axes"][1]);
       }},
      {"diagonal_matrix",
       [](const Json& c, In in) { return DiagonalMatrix(in[0], c["offset"].get<int64_t>()); }},
      {"repeat_each",
       [](const Json& c, In in) {
         return RepeatEach(in[0], c["counts"].get<std::vector<int64_t>>(), c["axis"].get<int>());
       }},
      {"meshgrid",
       [](const Json& c, In in) {
         return Meshgrid(in, c["rows"].get<bool>() ? GridOrder::kRows
                                                   : GridOrder::kColumns)[c["which"].get<int>()];
       }},
      {"einsum",
       [](const Json& c, In in) { return Einsum(c["subscripts"].get<std::string>(), in); }},
      {"tensordot",
       [](const Json& c, In in) {
         if (c["axes"].is_number()) return TensorDot(in[0], in[1], c["axes"].get<int>());
         return TensorDot(in[0], in[1], c["axes"][0].get<std::vector<int>>(),
                          c["axes"][1].get<std::vector<int>>());
       }},
      {"stack", [](const Json& c, In in) { return Stack(in, c["axis"].get<int>()); }},
      {"concat", [](const Json& c, In in) { return Concat(in, c["axis"].get<int>()); }},
      {"matmul", OfTwo([](const NDArray& x, const NDArray& y) { return MatMul(x, y); })},
      {"outer", OfTwo(&Outer)},
      {"inner", OfTwo(&Inner)},
      {"dot", OfTwo(&Dot)},
      {"kron", OfTwo(&Kron)},
  };
  return *operators;
}

}  // namespace tidepool
