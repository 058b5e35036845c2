// Convolutions and poolings one behind the other that are computed a slice of the batch at a time, forwards and again in the backward
// pass, so that a step takes the memory of a slice of what they make and not of all of it.
//
// Bits are those of the whole batch: images are computed each by itself, filter gradients are added in the order that
// ndarray/kernel/example_sums.h says, and of the biases' gradients the sums of each image are kept until the last slice.
//
// Threads: values; a call is of one.
#ifndef TIDEPOOL_NN_NETWORK_SLICED_CHAIN_H_
#define TIDEPOOL_NN_NETWORK_SLICED_CHAIN_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

class SlicedChain {
 public:
  // `shapes`: of an example, the input's and those of each layer's output. Of layers that cannot be sliced nothing can be run.
  SlicedChain(absl::Span<const Layer* const> layers, absl::Span<const Shape> shapes);

  // Empty: they can. Otherwise which layer is in the way, and why: a kind that looks at several examples at once or says nothing of it, groups,
  // kernels that promise no order of sums.
  const std::string& why_not() const { return why_not_; }
  // Slices have a multiple of so many examples.
  int64_t examples_at_once() const { return examples_at_once_; }

  // The output for `input` [batch, ...] in the current place, recorded by a tape of the thread as one function. `parameters`: of
  // all layers, in their order. Memory beside the output: what the layers make of `slice` examples.
  NDArray Run(const NDArray& input, absl::Span<const NDArray> parameters, int64_t slice) const;

 private:
  struct Step {
    bool is_convolution = false;
    bool has_bias = false;
    int filter = 0;       // its place among the parameters; the bias is behind it
    Shape input, output;  // of an example
    int64_t kernel_height = 0, kernel_width = 0;  // of a convolution
    Conv2dAttributes convolution;
    Pool2dAttributes pooling;
  };
  struct Gradient;
  static bool IsPromisedBy(const Step& step, int64_t batch);
  bool IsPromisedFor(int64_t batch) const;
  static std::vector<NDArray> Outputs(absl::Span<const Step> steps, const NDArray& input,
                                      absl::Span<const NDArray> parameters, bool keeps);

  std::vector<Step> steps_;
  int64_t examples_at_once_ = 1;
  std::string why_not_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_SLICED_CHAIN_H_
