// Configurations of networks as JSON, both ways.
//
//   {"inputs": [{"name": "image", "shape": [28, 28, 1]}],
//    "layers": [{"kind": "conv2d", "filters": 20, "kernel": [5, 5], "activation": "relu"},
//               {"kind": "max_pool2d"},
//               {"kind": "dense", "units": 10, "name": "classes"}],
//    "outputs": ["classes"]}
//
// A layer's other fields are those of its VisitFields(). "name", "inputs" (of a layer: without them it takes what the layer before
// it makes, the first one the first input), "outputs" (the last layer), an input's "type" ("f32"; "i64" and "i32" of indices)
// and "tied" ({"weight": "embedding.table"}) may be left out.
#ifndef TIDEPOOL_NN_NETWORK_JSON_H_
#define TIDEPOOL_NN_NETWORK_JSON_H_

#include <string>

#include "absl/strings/string_view.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::nn {

// `indent`: spaces for each level; -1: all on one line. Throws kInvalidArgument for a null layer, and for what no
// network could be read from: numbers that are not finite, fields of a layer that are called alike or "name", "inputs" or "kind".
std::string NetworkToJson(const NetworkConfig& config, int indent = 2);

// Throws kInvalidArgument naming the place, what was found and what was expected: "network JSON: layers[2].filters: found "x", expected
// a whole number". Unknown and doubled fields, unknown kinds and numbers beyond 2^31 are errors; so that a file which is not
// trusted may be given, nothing is made of what it says before a Network is. Whether layers fit together shows there.
NetworkConfig NetworkFromJson(absl::string_view text);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_JSON_H_
