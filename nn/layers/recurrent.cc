#include "tidepool/nn/layers/recurrent.h"

#include <algorithm>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/layers/recurrent_cell.h"
#include "tidepool/nn/layers/recurrent_run.h"

namespace tidepool::nn {
namespace {

constexpr const char* kOutputs[] = {"sequence", "last"};

std::vector<double> Zeros(int gates) {
  return std::vector<double>(static_cast<size_t>(gates), 0.0);
}

}  // namespace

void RecurrentLayer::VisitFields(FieldVisitor& visitor) {
  visitor.Field("units", units_, Presence::kRequired);
  visitor.Choice("output", options_.output, kOutputs);
  visitor.Field("reversed", options_.reversed);
  VisitInitializer(visitor, "input_initializer", options_.input_initializer);
  VisitInitializer(visitor, "recurrent_initializer", options_.recurrent_initializer);
}

std::string RecurrentLayer::Describe() const {
  return absl::StrCat(Kind(), " ", units_, options_.output == RecurrentOutput::kLast ? " last" : "",
                      options_.reversed ? " reversed" : "");
}

Shape RecurrentLayer::OutputShape(const Shape& input) const {
  if (units_ < 1 || input.rank() != 2 || input[0] < 1 || input[1] < 1) {
    RefuseInput(input, "[length, width], and at least one unit");
  }
  if (options_.output == RecurrentOutput::kLast) return {units_};
  return {input[0], units_};
}

std::vector<ParameterSpec> RecurrentLayer::Parameters(const Shape& input) const {
  const int gates = Cell().gates();
  const auto weight = [&](const char* name, int64_t columns, Initializer initializer) {
    ParameterSpec spec{name, {gates * units_, columns}, initializer, columns, units_};
    spec.of_runs.assign(static_cast<size_t>(gates), initializer);
    return spec;
  };
  std::vector<ParameterSpec> specs = {
      weight("input_weight", input[1], options_.input_initializer.Or(Initializer::GlorotUniform())),
      weight("recurrent_weight", units_,
             options_.recurrent_initializer.Or({InitializerKind::kOrthogonal, 1}))};
  for (const auto& [name, starts] : Biases()) {
    ParameterSpec spec{.name = name, .shape = {gates * units_}, .decays = false};
    if (std::any_of(starts.begin(), starts.end(), [](double start) { return start != 0; })) {
      for (double start : starts) spec.of_runs.push_back(Initializer::Constant(start));
    }
    specs.push_back(std::move(spec));
  }
  return specs;
}

std::vector<Shape> RecurrentLayer::CarriedShapes(const Shape&) const {
  return std::vector<Shape>(static_cast<size_t>(Cell().states()), Shape{units_});
}

LayerCost RecurrentLayer::CostOf(absl::Span<const Shape> inputs) const {
  // A step is some calls of operators, however little they compute.
  constexpr double kOperationsOfStep = 4096, kMostRowsOfRun = 256;
  const auto steps = static_cast<double>(inputs[0][0]), units = static_cast<double>(units_);
  LayerCost cost = CostWith(inputs, steps);
  cost.operations += steps * kOperationsOfStep;
  cost.elements += std::min(steps, kMostRowsOfRun) * units * (Cell().gates() + 2);
  return cost;
}

NDArray RecurrentLayer::Forward(LayerContext& context, const NDArray& input) const {
  return Run(context, input, options_.reversed);
}
NDArray RecurrentLayer::ForwardTurned(LayerContext& context, const NDArray& input) const {
  return Run(context, input, !options_.reversed);
}

NDArray RecurrentLayer::Run(LayerContext& context, const NDArray& input, bool reversed) const {
  return RunSequence(Cell(), Kind().c_str(), options_.output == RecurrentOutput::kLast, reversed,
                     context, input);
}

void Lstm::VisitFields(FieldVisitor& visitor) {
  RecurrentLayer::VisitFields(visitor);
  visitor.Field("forget_bias", forget_bias_);
}
std::vector<std::pair<const char*, std::vector<double>>> Lstm::Biases() const {
  return {{"bias", {0, forget_bias_, 0, 0}}};
}
const RecurrentCell& Lstm::Cell() const { return LstmCellOfLayers(); }

std::vector<std::pair<const char*, std::vector<double>>> Gru::Biases() const {
  return {{"bias", Zeros(3)}, {"recurrent_bias", Zeros(3)}};
}
const RecurrentCell& Gru::Cell() const { return GruCellOfLayers(); }

void SimpleRnn::VisitFields(FieldVisitor& visitor) {
  RecurrentLayer::VisitFields(visitor);
  visitor.Field("relu", relu_);
}
std::vector<std::pair<const char*, std::vector<double>>> SimpleRnn::Biases() const {
  return {{"bias", Zeros(1)}};
}
const RecurrentCell& SimpleRnn::Cell() const { return SimpleCellOfLayers(relu_); }

}  // namespace tidepool::nn
