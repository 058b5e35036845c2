// Where the trained parameters of a network and their gradients lie while a pass reads and writes them, when they are not the
// network's own (Network::HostParameters): in parts on many machines, say, and gathered layer by layer
// (distributed/sharded_parameters.h).
#ifndef TIDEPOOL_NN_NETWORK_PARAMETER_HOST_H_
#define TIDEPOOL_NN_NETWORK_PARAMETER_HOST_H_

#include <cstdint>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool::nn {

// Called on the thread of the pass. What it throws ends the pass; End() follows whenever Begin() returned.
class ParameterHost {
 public:
  enum class Pass : uint8_t { kInference, kTraining };

  // A forward pass is next, and in training a backward pass, in the current place.
  virtual void Begin(Pass pass) = 0;
  // By number of Network::named_parameters(), of trained ones: the same arrays from Begin() to End(), to be read and written between
  // EnterForward() and EnterBackward() of a layer that has the parameter and that of the next layer.
  virtual const NDArray& value(int parameter) const = 0;
  virtual const NDArray& gradient(int parameter) const = 0;
  // That layer, by its number in the configuration, is next, and those before it are done.
  virtual void EnterForward(int layer) = 0;
  virtual void EnterBackward(int layer) = 0;
  // As GradientListener has it.
  virtual void GradientIsFinal(int parameter) = 0;
  virtual void End() noexcept = 0;

 protected:
  ~ParameterHost() = default;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_PARAMETER_HOST_H_
