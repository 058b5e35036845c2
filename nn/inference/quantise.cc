#include "tidepool/nn/inference/quantise.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/nn/inference/freeze.h"

namespace tidepool::nn {
namespace {

constexpr int64_t kSamplesAtOnce = 64;
constexpr int kParts = 2048;  // of a range
constexpr double kLowest = -128, kHighest = 127, kSteps = kHighest - kLowest;
// Products are scaled to the output by a factor that XNNPACK wants below 256.
constexpr double kLargestFactor = 255;
// Of a bias in 32 bits, beside which sums need room.
constexpr double kLargestBias = 1 << 30;
// Filters with smaller weights than this part of the largest share its scale; products of scales stay normal numbers.
constexpr double kSmallestScale = 1.0 / (1 << 20);

struct Observed {
  double low = 0, high = 0;  // 0 is always among the values
  std::vector<int64_t> counts;
};

// Calls see(value's number, array) for the input and each layer's output of each part of the samples.
void ForEachValue(const Network& network, const NDArray& samples,
                  absl::FunctionRef<void(size_t, absl::Span<const float>)> see) {
  const auto look = [&](size_t number, const NDArray& array) {
    const NDArray host = array.To(Host());
    HostView<const float> view(host.is_dense() ? host : host.Dup());
    see(number, absl::MakeConstSpan(view.data(), static_cast<size_t>(view.size())));
  };
  for (int64_t begin = 0; begin < samples.dim(0); begin += kSamplesAtOnce) {
    const NDArray part = samples.Slice(0, begin, std::min(begin + kSamplesAtOnce, samples.dim(0)));
    look(0, part);
    network.ForwardByLayers(part, [&](int layer, const NDArray& output) {
      look(static_cast<size_t>(layer) + 1, output);
    });
  }
}

// Mean squared error of values that are clipped to [low, high] and rounded to its steps.
double ErrorOf(double low, double high, const Observed& observed, double clip_low,
               double clip_high) {
  const double width = (high - low) / static_cast<double>(observed.counts.size());
  const double step = (clip_high - clip_low) / kSteps;
  double error = 0;
  for (size_t i = 0; i < observed.counts.size(); ++i) {
    if (observed.counts[i] == 0) continue;
    const double value = low + (static_cast<double>(i) + 0.5) * width;
    const double beyond = std::max({clip_low - value, value - clip_high, 0.0});
    error +=
        static_cast<double>(observed.counts[i]) * (beyond > 0 ? beyond * beyond : step * step / 12);
  }
  return error;
}

double LargestOf(absl::Span<const float> values) {
  double largest = 0;
  for (const float value : values) largest = std::max<double>(largest, std::abs(value));
  return largest;
}

// Weights [begin, begin + count) in 8 bits.
void RoundWeights(FrozenOp& op, size_t begin, size_t count, double scale) {
  for (size_t i = begin; i < begin + count; ++i) {
    op.quantised_weight[i] =
        static_cast<int8_t>(std::clamp(std::nearbyint(op.weight[i] / scale), -kHighest, kHighest));
  }
}

// Of a unit of dynamic ranges: a normal number.
float ScaleOf(double largest) {
  constexpr double kLeast = 2.0 * std::numeric_limits<float>::min();
  return static_cast<float>(std::max(largest / kHighest, kLeast));
}

bool StaysFloat(const FrozenOp& op, const std::vector<int>& float_layers) {
  return std::any_of(float_layers.begin(), float_layers.end(), [&](int layer) {
    return layer == op.begun_layer ||
           std::find(op.layers.begin(), op.layers.end(), layer) != op.layers.end();
  });
}

void CheckLayers(const std::vector<int>& float_layers, int layers) {
  for (const int layer : float_layers) {
    if (layer < 0 || layer >= layers) {
      ThrowInvalidArgument(
          absl::StrCat("frozen network: float_layers has ", layer, ", expected 0 to ", layers - 1));
    }
  }
}

// Weights of `op` in 8 bits. May make its output's steps larger.
void QuantiseConstants(FrozenOp& op) {
  const bool is_by_filter = op.kind == FrozenOp::Kind::kConv2d;
  const size_t filters = op.bias.size(), all = op.weight.size(), each = all / filters;
  const double input = op.input.scale;
  const double largest_of_all = LargestOf(op.weight);
  const double floor =
      largest_of_all > 0 ? largest_of_all / kHighest * kSmallestScale : op.output.scale / input;
  const absl::Span<const float> weights(op.weight);
  op.weight_scales.assign(is_by_filter ? filters : 1, 0);
  for (size_t i = 0; i < op.weight_scales.size(); ++i) {
    const double largest =
        is_by_filter ? LargestOf(weights.subspan(i * each, each)) : largest_of_all;
    const double bias = is_by_filter ? std::abs(op.bias[i]) : LargestOf(op.bias);
    op.weight_scales[i] =
        static_cast<float>(std::max({largest / kHighest, floor, bias / (input * kLargestBias)}));
  }
  const double factor =
      input * *std::max_element(op.weight_scales.begin(), op.weight_scales.end()) / op.output.scale;
  if (factor > kLargestFactor)
    op.output.scale = static_cast<float>(op.output.scale * factor / kLargestFactor);
  op.quantised_weight.resize(all);
  op.quantised_bias.resize(filters);
  for (size_t i = 0; i < filters; ++i) {
    const double scale = op.weight_scales[is_by_filter ? i : 0];
    RoundWeights(op, i * each, each, scale);
    op.quantised_bias[i] = static_cast<int32_t>(std::nearbyint(op.bias[i] / (input * scale)));
  }
  // Their memory, which `= {}` would keep.
  op.weight = FrozenValues<float>();
  op.bias = FrozenValues<float>();
}

// As XNNPACK of 2022 has it: functions but ReLU, averages of windows and softmax stay f32, and scales
// may not be too far apart.
bool MayBeQuantised(const FrozenOp& op, const std::vector<Quantisation>& inputs) {
  const auto is_unknown = [](const Quantisation& q) { return q.scale == 0; };
  if (is_unknown(op.range) || std::any_of(inputs.begin(), inputs.end(), is_unknown)) return false;
  const auto lies = [](double ratio, double low, double high) {
    return ratio >= low && ratio < high;
  };
  switch (op.kind) {
    case FrozenOp::Kind::kDense:
    case FrozenOp::Kind::kConv2d:
    case FrozenOp::Kind::kConv2dTranspose:
    case FrozenOp::Kind::kMaxPool2d:
    case FrozenOp::Kind::kResize2d:
    case FrozenOp::Kind::kReshape:
      return true;
    case FrozenOp::Kind::kGlobalAverage:
      return lies(inputs[0].scale / op.range.scale, 0x1p-8, 0x1p+8);
    case FrozenOp::Kind::kAdd:
      // Sums of a part of several inputs may lie outside of the range that all of them have.
      return inputs.size() == 2 &&
             std::all_of(inputs.begin(), inputs.end(), [&](const Quantisation& q) {
               return lies(q.scale / op.range.scale, 0x1p-10, 0x1p+8);
             });
    case FrozenOp::Kind::kMultiply:
      return inputs.size() == 2 &&
             lies(double{inputs[0].scale} * inputs[1].scale / op.range.scale, 0x1p-16, 0x1p+8);
    default:
      return false;
  }
}

}  // namespace

Quantisation QuantisationOf(double low, double high) {
  low = std::min(low, 0.0);
  high = std::max(high, 0.0);
  // An array of zeros, or nearly, may have any scale.
  if (high - low < 1e-20) return {1.0f / 128, 0};
  const double scale = std::min((high - low) / kSteps, 1e30);
  return {
      static_cast<float>(scale),
      static_cast<int32_t>(std::clamp(std::nearbyint(kLowest - low / scale), kLowest, kHighest))};
}

ValueRange ChooseRange(double low, double high, absl::Span<const int64_t> counts,
                       CalibrationMethod method, double percentile) {
  if (!(high > low) || method == CalibrationMethod::kExtremes) return {low, high};
  const Observed observed{low, high, {counts.begin(), counts.end()}};
  if (method == CalibrationMethod::kMeanSquaredError) {
    ValueRange best{low, high};
    double least = std::numeric_limits<double>::infinity();
    for (int percent = 100; percent >= 10; --percent) {
      const ValueRange range{low * percent / 100, high * percent / 100};
      const double error = ErrorOf(low, high, observed, range.low, range.high);
      if (error < least) least = error, best = range;
    }
    return best;
  }
  // Half of what is left out on each side; where values are on one side of 0 alone, all of it there.
  double total = 0;
  for (const int64_t count : counts) total += static_cast<double>(count);
  const double out = total * (100 - percentile) / 100 / (low < 0 && high > 0 ? 2 : 1);
  const double width = (high - low) / static_cast<double>(counts.size());
  ValueRange range{low, high};
  double seen = 0;
  for (size_t i = 0; low < 0 && i < counts.size(); ++i) {
    seen += static_cast<double>(counts[i]);
    if (seen > out) break;
    range.low = low + static_cast<double>(i + 1) * width;
  }
  seen = 0;
  for (size_t i = counts.size(); high > 0 && i > 0; --i) {
    seen += static_cast<double>(counts[i - 1]);
    if (seen > out) break;
    range.high = low + static_cast<double>(i - 1) * width;
  }
  return {std::min(range.low, 0.0), std::max(range.high, 0.0)};
}

std::vector<Quantisation> Calibrate(const Network& network, const FrozenOptions& options) {
  if (!options.calibration.is_defined()) {
    ThrowInvalidArgument(
        "frozen network: type int8 without calibration samples, expected [samples] + " +
        network.input_shape().ToString());
  }
  if (!(options.percentile > 50 && options.percentile <= 100)) {
    ThrowInvalidArgument(absl::StrCat("frozen network: percentile is ", options.percentile,
                                      ", expected above 50 to 100"));
  }
  network.CheckFeatures(options.calibration);
  std::vector<Observed> observed(network.config()->nodes.size() + 1);
  ForEachValue(network, options.calibration, [&](size_t number, absl::Span<const float> values) {
    Observed& seen = observed[number];
    for (const float value : values) {
      if (!std::isfinite(value)) {
        const std::string what = absl::StrCat(
            "frozen network: calibration: ",
            number == 0 ? "samples have " : absl::StrCat("layer ", number - 1, " makes "), value,
            ", expected finite numbers");
        if (number == 0) ThrowInvalidArgument(what);
        throw UnfitWeightsError(what);
      }
      seen.low = std::min<double>(seen.low, value);
      seen.high = std::max<double>(seen.high, value);
    }
  });
  if (options.method != CalibrationMethod::kExtremes) {
    ForEachValue(network, options.calibration, [&](size_t number, absl::Span<const float> values) {
      Observed& seen = observed[number];
      if (!(seen.high > seen.low)) return;
      seen.counts.resize(kParts);
      for (const float value : values) {
        const double part = (value - seen.low) / (seen.high - seen.low) * kParts;
        ++seen.counts[static_cast<size_t>(std::clamp(part, 0.0, kParts - 1.0))];
      }
    });
  }
  std::vector<Quantisation> result;
  for (const Observed& seen : observed) {
    const ValueRange range =
        ChooseRange(seen.low, seen.high, seen.counts, options.method, options.percentile);
    result.push_back(QuantisationOf(range.low, range.high));
  }
  return result;
}

FrozenGraph Quantised(FrozenGraph graph, const std::vector<Quantisation>& values,
                      const std::vector<int>& float_layers) {
  CheckLayers(float_layers, static_cast<int>(values.size()) - 1);
  graph.input_range = values[0];
  const auto range_of = [&](int value) {
    return value == FrozenOp::kGraphInput ? graph.input_range
                                          : graph.ops[static_cast<size_t>(value)].range;
  };
  for (int i = 0; i < static_cast<int>(graph.ops.size()); ++i) {
    FrozenOp& op = graph.ops[static_cast<size_t>(i)];
    std::vector<Quantisation> inputs;
    for (const int value : graph.InputsOf(i)) inputs.push_back(range_of(value));
    op.input = inputs[0];
    const bool keeps_values = op.kind == FrozenOp::Kind::kMaxPool2d ||
                              op.kind == FrozenOp::Kind::kReshape ||
                              op.kind == FrozenOp::Kind::kResize2d;
    op.range = keeps_values         ? op.input
               : !op.layers.empty() ? values[static_cast<size_t>(op.layers.back()) + 1]
                                    : Quantisation();
    if (StaysFloat(op, float_layers) || !MayBeQuantised(op, inputs)) continue;
    op.output = op.range;
    if (op.has_products()) QuantiseConstants(op);
    op.range = op.output;
  }
  return graph;
}

FrozenGraph DynamicallyQuantised(FrozenGraph graph, int layers,
                                 const std::vector<int>& float_layers) {
  CheckLayers(float_layers, layers);
  for (FrozenOp& op : graph.ops) {
    if (op.kind != FrozenOp::Kind::kDense || StaysFloat(op, float_layers)) continue;
    op.has_dynamic_range = true;
    const size_t units = op.bias.size(), each = op.weight.size() / units;
    const absl::Span<const float> weights(op.weight);
    op.quantised_weight.resize(op.weight.size());
    op.weight_scales.resize(units);
    for (size_t i = 0; i < units; ++i) {
      op.weight_scales[i] = ScaleOf(LargestOf(weights.subspan(i * each, each)));
      RoundWeights(op, i * each, each, op.weight_scales[i]);
    }
    op.weight = FrozenValues<float>();
  }
  return graph;
}

FrozenGraph QuantisedAs(const FrozenOptions& options, const Network& network, FrozenGraph graph) {
  if (options.ranges == QuantisedRanges::kStatic)
    return Quantised(std::move(graph), Calibrate(network, options), options.float_layers);
  if (std::none_of(graph.ops.begin(), graph.ops.end(),
                   [](const FrozenOp& op) { return op.kind == FrozenOp::Kind::kDense; })) {
    ThrowUnimplemented(
        "frozen network: dynamic ranges are those of dense layers, of which the network has none");
  }
  return DynamicallyQuantised(std::move(graph), static_cast<int>(network.config()->nodes.size()),
                              options.float_layers);
}

}  // namespace tidepool::nn
