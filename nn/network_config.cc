#include "tidepool/nn/network_config.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace tidepool::nn {

NetworkConfig NetworkConfig::Sequential(Shape input, std::vector<AnyLayer> layers) {
  return Sequential(InputConfig{"input", std::move(input)}, std::move(layers));
}

NetworkConfig NetworkConfig::Sequential(InputConfig input, std::vector<AnyLayer> layers) {
  NetworkConfig config;
  config.inputs.push_back(std::move(input));
  std::string last = config.inputs[0].name;
  for (AnyLayer& layer : layers) last = config.Add(std::move(layer), {last});
  config.outputs = {last};
  return config;
}

std::string NetworkConfig::AddInput(std::string name, Shape shape, DType dtype) {
  inputs.push_back({std::move(name), std::move(shape), dtype});
  return inputs.back().name;
}

std::string NetworkConfig::Add(AnyLayer layer, std::vector<std::string> inputs_of_node,
                               std::string name) {
  if (name.empty())
    name = absl::StrCat(nodes.size(), layer ? absl::StrCat(".", layer->Kind()) : "");
  nodes.push_back({std::move(name), std::move(layer), std::move(inputs_of_node), {}});
  return nodes.back().name;
}

}  // namespace tidepool::nn
