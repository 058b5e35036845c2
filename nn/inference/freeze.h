// From a network to the graph that an engine runs.
#ifndef TIDEPOOL_NN_INFERENCE_FREEZE_H_
#define TIDEPOOL_NN_INFERENCE_FREEZE_H_

#include <string>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/nn/inference/frozen_options.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// kInvalidArgument of weights as they are now, whatever the options: written to again they may fit.
class UnfitWeightsError : public Error {
 public:
  explicit UnfitWeightsError(std::string message)
      : Error(absl::StatusCode::kInvalidArgument, std::move(message)) {}
};

// The linked engine. Throws kUnimplemented naming what to link, or why it does not run here.
FrozenEngine& EngineForFreezing();

// A copy of the network that `engine` runs, in f32, or in 16-bit floats where the options say so. Throws as FrozenNetwork.
FrozenGraph GraphOf(const Network& network, const FrozenOptions& options,
                    const FrozenEngine& engine);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_FREEZE_H_
