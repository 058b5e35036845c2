// GraphBody: what it tells of its layers.
#include <vector>

#include "tidepool/nn/network/graph_body.h"

namespace tidepool::nn {

LayerCost GraphBody::cost_of_example() const {
  LayerCost sum;
  for (size_t i = 0; i < inputs_.size(); ++i) sum.elements += ElementsOf(shapes_[i]);
  std::vector<Shape> inputs;
  for (const Node& node : nodes_) {
    inputs.clear();
    for (const int value : node.inputs) inputs.push_back(shapes_[value]);
    sum += node.layer->CostOf(inputs);
  }
  return sum;
}

std::vector<LayerParameters> GraphBody::layer_parameters() const {
  std::vector<LayerParameters> layers;
  for (const int i : order_) layers.push_back({i, nodes_[static_cast<size_t>(i)].parameters});
  return layers;
}

std::vector<AnyLayer> GraphBody::chain() const {
  if (inputs_.size() != 1 || outputs_.size() != 1) return {};
  std::vector<AnyLayer> layers;
  int value = 0;
  for (int i : order_) {
    if (nodes_[i].inputs != std::vector<int>{value} || !config_.nodes[i].tied.empty()) return {};
    value = 1 + i;
    layers.push_back(config_.nodes[i].layer);
  }
  if (outputs_[0] != value) return {};
  return layers;
}

bool GraphBody::IsFrozen(const Node& node, const std::vector<bool>& frozen) const {
  FrozenLayer layer;
  for (int p : node.parameters)
    layer.Add(frozen[static_cast<size_t>(p)], parameters_[static_cast<size_t>(p)].spec);
  return layer.is_frozen();
}

std::vector<bool> GraphBody::MovedBeside(const std::vector<bool>& frozen) const {
  std::vector<bool> moved(parameters_.size(), false);
  for (const Node& node : nodes_) {
    if (!frozen.empty() && IsFrozen(node, frozen)) continue;
    for (int p : node.parameters)
      moved[static_cast<size_t>(p)] = !parameters_[static_cast<size_t>(p)].spec.is_trained;
  }
  return moved;
}

}  // namespace tidepool::nn
