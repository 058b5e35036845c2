#include "tidepool/nn/network/layer_cost.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "tidepool/nn/layers/field_visitor.h"

namespace tidepool::nn {
namespace {

// The fields, also of a layer within the layer, that make it cost more than its elements and
// parameters. Changes none.
class CostFields final : public FieldVisitor {
 public:
  void Field(const char* name, int64_t& value, Presence) override {
    const std::string_view field = name;
    if (field == "kernel") window *= static_cast<double>(value);
    has_pairs |= field == "heads";
    is_lookup |= field == "entries";
  }
  void Field(const char* name, std::vector<int64_t>& value, Presence) override {
    if (std::string_view(name) != "kernel") return;
    for (const int64_t size : value) window *= static_cast<double>(size);
  }
  void Field(const char*, double&, Presence) override {}
  void Field(const char*, bool&, Presence) override {}
  void Field(const char*, std::string&, Presence) override {}
  void Field(const char*, AnyLayer& value, Presence) override {
    if (value) const_cast<Layer&>(*value).VisitFields(*this);
  }

  double window = 1;
  bool has_pairs = false;  // attention
  bool has_steps = false;  // one after the other, though only the last may be in the output
  bool is_lookup = false;  // of rows of its parameters

 protected:
  void ChoiceIndex(const char* name, int&, absl::Span<const char* const>) override {
    has_steps |= std::string_view(name) == "output";
  }
};

double Elements(const Shape& shape) {
  double elements = 1;
  for (const int64_t size : shape.span()) elements *= static_cast<double>(size);
  return elements;
}

double LastOf(const Shape& shape) {
  return shape.rank() == 0 ? 1 : static_cast<double>(std::max<int64_t>(1, shape[shape.rank() - 1]));
}

}  // namespace

double OperationsOf(const Layer& layer, absl::Span<const Shape> inputs, const Shape& output,
                    int64_t parameters) {
  CostFields fields;
  // Visitors that change nothing leave a layer as it is: there is one function for both directions.
  const_cast<Layer&>(layer).VisitFields(fields);
  double read = 0, steps = Elements(output) / LastOf(output);
  double all_steps = steps;
  for (const Shape& input : inputs) {
    read += Elements(input);
    all_steps = std::max(all_steps, Elements(input) / LastOf(input));
  }
  if (fields.has_steps) steps = all_steps;
  const auto held = static_cast<double>(fields.is_lookup ? 0 : parameters);
  double operations =
      read + Elements(output) * (parameters == 0 ? fields.window : 1) + steps * held;
  if (fields.has_pairs)
    operations += all_steps * all_steps * (LastOf(output) + held / LastOf(output));
  return operations;
}

}  // namespace tidepool::nn
