// What a layer computes for one example, by its shapes and fields alone.
#ifndef TIDEPOOL_NN_NETWORK_LAYER_COST_H_
#define TIDEPOOL_NN_NETWORK_LAYER_COST_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/ndarray/shape.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// Multiply-adds, or comparisons and the like, of a forward pass: to tell milliseconds from hours
// before anything runs. Parameters count at each place of the output that they make (of the input,
// where steps follow one another), a window without parameters by its size, attention by pairs of
// steps. Of a layer of one's own too. `parameters`: elements of all of them. A double, because no
// number of them overflows it.
double OperationsOf(const Layer& layer, absl::Span<const Shape> inputs, const Shape& output,
                    int64_t parameters);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_LAYER_COST_H_
