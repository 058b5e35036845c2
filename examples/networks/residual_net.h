// A residual network (He et al. 2015, for small images) trained with operators alone: forward keeps what
// backward needs in handles, and lets go of each as soon as it has been used.
#ifndef TIDEPOOL_EXAMPLES_NETWORKS_RESIDUAL_NET_H_
#define TIDEPOOL_EXAMPLES_NETWORKS_RESIDUAL_NET_H_

#include <cstdint>
#include <vector>

#include "tidepool/examples/networks/parameter.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/convolution.h"

namespace tidepool::examples {

class ResidualNet {
 public:
  // `channels`: of each stage, two blocks a stage; every stage but the first halves the image.
  ResidualNet(int64_t image_channels, const std::vector<int64_t>& channels, int64_t classes,
              uint64_t seed, Device device = Host());

  // One training step on images [batch, height, width, channels] and labels [batch] i64; the mean loss.
  // All arrays are on the
  // network's device. What it makes is in the current place: call it inside a scope of a workspace there.
  double Step(const NDArray& images, const NDArray& labels, double learning_rate);

 private:
  // Convolution without bias, then batch normalisation, then ReLU if asked for.
  struct Unit {
    Parameter *filter, *scale, *shift;
    Conv2dAttributes attributes;
    bool relu;
    // Of the step under way:
    NDArray input, convolved, mean, inverse_deviation, output;

    NDArray Forward(const NDArray& x);
    // `gradient` is used up. The result is not defined unless wanted.
    NDArray Backward(NDArray gradient, bool wants_input_gradient);
  };
  struct Block {
    Unit first, second;
    bool projects;  // the shortcut has another shape
    Unit shortcut;
    NDArray output;
  };
  Unit MakeUnit(int64_t inputs, int64_t outputs, int64_t kernel, int64_t stride, bool relu);

  Parameters parameters_;
  Unit stem_;
  std::vector<Block> blocks_;
  Parameter *weights_, *bias_;
};

}  // namespace tidepool::examples

#endif  // TIDEPOOL_EXAMPLES_NETWORKS_RESIDUAL_NET_H_
