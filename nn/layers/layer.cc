#include "tidepool/nn/layers/layer.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool::nn {
namespace {

// " units=10 activation=relu".
class FieldText final : public FieldVisitor {
 public:
  void Field(const char* name, int64_t& value, Presence) override {
    Add(name, absl::StrCat(value));
  }
  void Field(const char* name, double& value, Presence) override { Add(name, absl::StrCat(value)); }
  void Field(const char* name, bool& value, Presence) override {
    Add(name, value ? "true" : "false");
  }
  void Field(const char* name, std::string& value, Presence) override { Add(name, value); }
  void Field(const char* name, std::vector<int64_t>& value, Presence) override {
    Add(name, absl::StrCat("[", absl::StrJoin(value, ","), "]"));
  }
  void Field(const char* name, AnyLayer& value, Presence) override {
    Add(name, value ? absl::StrCat("[", value->Describe(), "]") : "none");
  }
  std::string text;

 private:
  void ChoiceIndex(const char* name, int& index, absl::Span<const char* const> names) override {
    Add(name, names[index]);
  }
  void Add(const char* name, const std::string& value) {
    absl::StrAppend(&text, " ", name, "=", value);
  }
};

void CheckOneInput(const Layer& layer, size_t inputs) {
  if (inputs == 1) return;
  ThrowInvalidArgument(
      absl::StrCat("layer [", layer.Describe(), "]: ", inputs, " inputs, expected one"));
}

}  // namespace

std::string Layer::Describe() const {
  FieldText fields;
  // The visitor only reads, and fields have one function for both directions.
  const_cast<Layer*>(this)->VisitFields(fields);
  return Kind() + fields.text;
}

void Layer::RefuseInput(const Shape& input, const std::string& expected) const {
  ThrowInvalidArgument(absl::StrCat("layer [", Describe(), "]: input shape ", input.ToString(),
                                    ", expected ", expected));
}

Shape Layer::OutputShape(const Shape&) const {
  ThrowInternal(
      absl::StrCat("layer [", Kind(), "]: it has neither OutputShape() nor OutputShapeOf()"));
}

NDArray Layer::Forward(LayerContext&, const NDArray&) const {
  ThrowInternal(absl::StrCat("layer [", Kind(), "]: it has neither Forward() nor ForwardOf()"));
}

Shape Layer::OutputShapeOf(absl::Span<const Shape> inputs) const {
  CheckOneInput(*this, inputs.size());
  return OutputShape(inputs[0]);
}

std::vector<ParameterSpec> Layer::ParametersOf(absl::Span<const Shape> inputs) const {
  return inputs.size() == 1 ? Parameters(inputs[0]) : std::vector<ParameterSpec>();
}

NDArray Layer::ForwardOf(LayerContext& context, absl::Span<const NDArray> inputs) const {
  CheckOneInput(*this, inputs.size());
  return Forward(context, inputs[0]);
}

LayerCost Layer::CostOf(absl::Span<const Shape> inputs) const {
  double places = PlacesOf(OutputShapeOf(inputs));
  for (const Shape& input : inputs) places = std::max(places, PlacesOf(input));
  return CostWith(inputs, places);
}

LayerCost Layer::CostWith(absl::Span<const Shape> inputs, double times) const {
  const double written = ElementsOf(OutputShapeOf(inputs));
  LayerCost cost{.operations = written + times * ElementsOf(ParametersOf(inputs)),
                 .elements = written};
  for (const Shape& input : inputs) cost.operations += ElementsOf(input);
  return cost;
}

}  // namespace tidepool::nn
