// What a layer takes for one example in inference, by shapes and fields alone.
#ifndef TIDEPOOL_NN_LAYERS_LAYER_COST_H_
#define TIDEPOOL_NN_LAYERS_LAYER_COST_H_

#include "absl/types/span.h"
#include "tidepool/ndarray/shape.h"
#include "tidepool/nn/layers/initializer.h"

namespace tidepool::nn {

// To tell milliseconds from hours, and megabytes from all there are, before anything runs: right
// within some times. Doubles, because no number of operations overflows one.
struct LayerCost {
  double operations = 0;  // multiply-adds, or comparisons and the like
  double elements = 0;    // of the arrays that it makes, its output among them

  LayerCost& operator+=(const LayerCost& other) {
    operations += other.operations;
    elements += other.elements;
    return *this;
  }
};
inline LayerCost operator*(double times, const LayerCost& cost) {
  return {times * cost.operations, times * cost.elements};
}

// Of attention, beside the products with queries and values: what makes a share of a score.
inline constexpr double kOperationsOfScore = 8;

double ElementsOf(const Shape& shape);
// How many vectors along the last axis there are: steps of a sequence, pixels of an image.
double PlacesOf(const Shape& shape);
double ElementsOf(absl::Span<const ParameterSpec> parameters);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_LAYER_COST_H_
