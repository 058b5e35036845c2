#include "tidepool/nn/inference/quantisation_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/nn/inference/freeze.h"
#include "tidepool/nn/inference/quantise.h"

namespace tidepool::nn {
namespace {

constexpr int64_t kBatch = 32;

double RelativeError(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0, size = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    const double difference = static_cast<double>(found[i]) - expected[i];
    error += difference * difference;
    size += static_cast<double>(expected[i]) * expected[i];
  }
  return size > 0 ? std::sqrt(error / size) : std::sqrt(error);
}

std::vector<int64_t> LargestOfRows(const std::vector<float>& values, int64_t columns) {
  std::vector<int64_t> result;
  for (auto row = values.begin(); row != values.end(); row += columns) {
    result.push_back(std::max_element(row, row + columns) - row);
  }
  return result;
}

double PartEqual(const std::vector<int64_t>& a, absl::Span<const int64_t> b) {
  int64_t equal = 0;
  for (size_t i = 0; i < a.size(); ++i) equal += a[i] == b[i];
  return static_cast<double>(equal) / static_cast<double>(a.size());
}

// Whether the operator, or that which begins its layer, computes in 8 bits.
bool IsQuantised(const FrozenGraph& graph, const FrozenOp& op) {
  if (op.is_quantised()) return true;
  return std::any_of(graph.ops.begin(), graph.ops.end(), [&](const FrozenOp& other) {
    const bool is_of_it = &other == &op || std::find(op.layers.begin(), op.layers.end(),
                                                     other.begun_layer) != op.layers.end();
    return is_of_it && other.has_dynamic_range;
  });
}

int64_t ConstantBytes(const FrozenGraph& graph) {
  int64_t bytes = 0;
  for (const FrozenOp& op : graph.ops) bytes += op.constant_bytes();
  return bytes;
}

}  // namespace

QuantisationReport ReportQuantisation(const Network& network, const FrozenOptions& options,
                                      const NDArray& samples, absl::Span<const int64_t> labels) {
  if (options.type != FrozenType::kInt8)
    ThrowInvalidArgument("quantisation report: type is not int8");
  if (network.output_shape().rank() != 1) {
    ThrowInvalidArgument(absl::StrCat("quantisation report: the network's output is ",
                                      network.output_shape().ToString(), ", expected one axis"));
  }
  network.CheckFeatures(samples);
  if (!labels.empty() && static_cast<int64_t>(labels.size()) != samples.dim(0)) {
    ThrowInvalidArgument(absl::StrCat("quantisation report: ", labels.size(),
                                      " labels, expected none or ", samples.dim(0)));
  }
  const FrozenGraph whole = GraphOf(network, options, EngineForFreezing());
  const auto layers = static_cast<int>(network.config()->nodes.size());
  const bool is_dynamic = options.ranges == QuantisedRanges::kDynamic;
  const std::vector<Quantisation> values =
      is_dynamic ? std::vector<Quantisation>() : Calibrate(network, options);
  const auto quantise = [&](const std::vector<int>& float_layers) {
    return is_dynamic ? DynamicallyQuantised(whole, layers, float_layers)
                      : Quantised(whole, values, float_layers);
  };
  const auto run = [&](const FrozenGraph& graph) {
    return FrozenNetwork(graph, {.batches = {std::min(kBatch, samples.dim(0))}})
        .Run(samples)
        .ToVector<float>();
  };
  const FrozenGraph quantised =
      is_dynamic ? QuantisedAs(options, network, whole) : quantise(options.float_layers);
  const std::vector<float> expected = run(whole), found = run(quantised);

  QuantisationReport report;
  report.samples = samples.dim(0);
  report.float_weight_bytes = ConstantBytes(whole);
  report.weight_bytes = ConstantBytes(quantised);
  report.error = RelativeError(found, expected);
  const int64_t classes = network.output_shape()[0];
  const std::vector<int64_t> expected_classes = LargestOfRows(expected, classes),
                             classes_found = LargestOfRows(found, classes);
  report.agreement = PartEqual(classes_found, expected_classes);
  if (!labels.empty()) {
    report.float_accuracy = PartEqual(expected_classes, labels);
    report.accuracy = PartEqual(classes_found, labels);
  }
  double worst = -1;
  for (size_t i = 0; i < quantised.ops.size(); ++i) {
    const FrozenOp& op = quantised.ops[i];
    if (op.layers.empty()) continue;
    std::vector<int> others;
    for (int other = 0; other < layers; ++other) {
      if (std::find(op.layers.begin(), op.layers.end(), other) == op.layers.end())
        others.push_back(other);
    }
    const FrozenGraph alone = quantise(others);
    report.layers.push_back({op.name, op.layers.back(), IsQuantised(quantised, op),
                             alone.ops[i].range, RelativeError(run(alone), expected)});
    if (report.layers.back().error_alone > worst) {
      worst = report.layers.back().error_alone;
      report.worst_layer = op.layers.back();
    }
  }
  return report;
}

std::string QuantisationReport::ToString() const {
  std::string text;
  const auto fixed = [&](const char* before, double value, int digits, const char* behind) {
    text += before;
    AppendFixed(&text, value, digits);
    text += behind;
  };
  absl::StrAppend(&text, "8 bits beside f32 on ", samples, " samples");
  fixed(": relative error ", error, 4, "");
  fixed(", ", 100 * agreement, 2, " % agree");
  if (accuracy.has_value()) {
    fixed(", accuracy ", 100 * *accuracy, 2, " %");
    fixed(" (f32 ", 100 * *float_accuracy, 2, " %)");
  }
  absl::StrAppend(&text, "; weights ", weight_bytes, " bytes (f32 ", float_weight_bytes, ")\n");
  for (const Layer& layer : layers) {
    absl::StrAppend(&text, "  ", layer.name);
    fixed(": alone ", layer.error_alone, 4, "");
    if (layer.output.scale > 0) {
      text += ", output in steps of ";
      AppendGeneral(&text, layer.output.scale, 3);
    }
    absl::StrAppend(&text, layer.is_quantised ? "" : ", stays f32",
                    layer.number == worst_layer ? " (worst)\n" : "\n");
  }
  return text;
}

}  // namespace tidepool::nn
