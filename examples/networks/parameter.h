// Parameters of networks that are written with operators alone, and what an updater does with them.
#ifndef TIDEPOOL_EXAMPLES_NETWORKS_PARAMETER_H_
#define TIDEPOOL_EXAMPLES_NETWORKS_PARAMETER_H_

#include <cmath>
#include <cstdint>
#include <deque>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/updaters.h"

namespace tidepool::examples {

struct Parameter {
  NDArray value, gradient;
};

// On the device's heap, as they outlive every step. References stay valid.
class Parameters {
 public:
  Parameters(uint64_t seed, Device device) : seed_(seed), device_(device) {}

  // Uniform, scaled so that the variance is kept through a ReLU (He et al. 2015).
  Parameter& Weights(const Shape& shape, int64_t inputs) {
    const double bound = std::sqrt(6.0 / static_cast<double>(inputs));
    return Own(RandomUniform(shape, -bound, bound, seed_, stream_++, Place::On(device_)));
  }
  Parameter& Constant(const Shape& shape, double value) {
    return Own(Full(shape, value, DType::kFloat32, Place::On(device_)));
  }
  void ZeroGradients() {
    for (Parameter& parameter : all_) FillInto(0, parameter.gradient);
  }
  void Update(double learning_rate) {
    for (Parameter& parameter : all_) {
      SgdUpdate(parameter.gradient, parameter.value, {.learning_rate = learning_rate});
    }
  }

 private:
  Parameter& Own(NDArray value) {
    NDArray gradient =
        Zeros(value.shape(), DType::kFloat32, Place::On(device_, MemoryKind::kGradientStandard));
    all_.push_back({std::move(value), std::move(gradient)});
    return all_.back();
  }

  std::deque<Parameter> all_;
  uint64_t seed_, stream_ = 0;
  Device device_;
};

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_NETWORKS_PARAMETER_H_
