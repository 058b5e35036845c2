// Layers by their kind, for networks that are read from files.
#ifndef TIDEPOOL_NN_LAYERS_LAYER_KINDS_H_
#define TIDEPOOL_NN_LAYERS_LAYER_KINDS_H_

#include <memory>
#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// A layer whose fields VisitFields() is to fill in.
using LayerFactory = std::unique_ptr<Layer> (*)();

// Makes a kind of one's own known to files, before the first of them is read: at the start of the program. The kind is that
// of the layers made. Throws kInvalidArgument for one that is known already or says another kind. Threads: any.
void RegisterLayer(const std::string& kind, LayerFactory factory);
template <typename L>
void RegisterLayer(const std::string& kind) {
  RegisterLayer(kind, [] { return std::unique_ptr<Layer>(std::make_unique<L>()); });
}

// Null where there is no such kind.
std::unique_ptr<Layer> NewLayer(const std::string& kind);
// In alphabetical order.
std::vector<std::string> LayerKinds();

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_LAYER_KINDS_H_
