// What a network is made of, before it exists: inputs, layers with the names of what they take, outputs. A value, which can be
// written to JSON and read back (network_json.h).
//
//   NetworkConfig config = NetworkConfig::Sequential({28, 28, 1}, {Conv2D(20, 5, 5, Activation::kRelu), MaxPool2D(), Dense(10)});
//
//   NetworkConfig graph;
//   const std::string x = graph.AddInput("image", {28, 28, 1});
//   const std::string a = graph.Add(Conv2D(16, 3, 3, Activation::kRelu, Conv2D::SamePadding(3)), {x}, "stem");
//   const std::string b = graph.Add(Conv2D(16, 3, 3, Activation::kIdentity, Conv2D::SamePadding(3)), {a}, "branch");
//   graph.Add(Merge(MergeKind::kAdd), {a, b}, "sum");
//   graph.Add(Dense(10), {"sum"}, "classes");
//   graph.outputs = {"classes"};
//
// Nothing is checked before a network is made of it: see Network's constructors.
#ifndef TIDEPOOL_NN_NETWORK_CONFIG_H_
#define TIDEPOOL_NN_NETWORK_CONFIG_H_

#include <map>
#include <string>
#include <vector>

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/shape.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// An input of a network.
struct InputConfig {
  std::string name;  // unique among inputs and nodes
  Shape shape;       // of one example
  // Of floats the network's own type is meant; integers are what embeddings take.
  DType dtype = DType::kFloat32;
};

// A layer in a network, and what it reads.
struct NodeConfig {
  std::string name;                 // unique among inputs and nodes
  AnyLayer layer;                   // of any kind
  std::vector<std::string> inputs;  // names of inputs and nodes
  // Parameters that are another node's: from this layer's name of one ("weight") to "node.parameter", of the same shape.
  std::map<std::string, std::string> tied;
};

struct NetworkConfig {
  std::vector<InputConfig> inputs;   // in the order in which the network is given them
  std::vector<NodeConfig> nodes;     // in any order; it is that of parameters and of initial values
  std::vector<std::string> outputs;  // names of nodes, in the order in which it gives them

  // Layers one behind the other, named "0.conv2d", "1.max_pool2d" ...; the last one is the output.
  static NetworkConfig Sequential(Shape input, std::vector<AnyLayer> layers);
  static NetworkConfig Sequential(InputConfig input, std::vector<AnyLayer> layers);

  // Return the name. Without one a node is called by its place and kind.
  std::string AddInput(std::string name, Shape shape, DType dtype = DType::kFloat32);
  std::string Add(AnyLayer layer, std::vector<std::string> inputs, std::string name = "");
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_CONFIG_H_
