// Checks gradients by central differences.
//
//   std::string problem = GradientProblem([&] { return Loss(x); }, x, dx);
//   EXPECT_EQ(problem, "");
#ifndef TIDEPOOL_NDARRAY_TESTING_GRADIENT_CHECK_H_
#define TIDEPOOL_NDARRAY_TESTING_GRADIENT_CHECK_H_

#include <cstdint>
#include <functional>
#include <string>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct GradientCheckOptions {
  // A power of two, so that adding it to values about 1 is exact. Piecewise linear functions need
  // their kinks further away than this from every element of the point.
  double step = 0x1p-7;
  double relative = 2e-3;
  double absolute = 5e-4;
  int64_t most_elements = 200;  // evenly spread; the loss is evaluated twice for each
};

// `point` is a dense f32 array that `loss` reads; its elements are moved one at a time and put
// back. `gradient` is the loss's gradient with respect to it. Empty when they agree; else the
// element where they differ most, with both numbers.
std::string GradientProblem(const std::function<double()>& loss, NDArray& point,
                            const NDArray& gradient, const GradientCheckOptions& options = {});

// Sum of weights * x in double: a loss whose gradient with respect to x is `weights`.
double WeightedSum(const NDArray& x, const NDArray& weights);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_GRADIENT_CHECK_H_
