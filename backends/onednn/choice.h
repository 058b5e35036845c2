// Which calls oneDNN runs by default, by measurement: docs/performance_kernels.md, "Providers".
//
// A call that is right but slower here than on another provider is refused, so that the next one
// runs; under ScopedProvider("onednn") all calls that are right run.
#ifndef TIDEPOOL_BACKENDS_ONEDNN_CHOICE_H_
#define TIDEPOOL_BACKENDS_ONEDNN_CHOICE_H_

#include <cstdint>

#include "tidepool/backends/onednn/convolution.h"

namespace tidepool::onednn {

inline constexpr char kProvider[] = "onednn";
// Above "cpu" (10) and "xnnpack" (20): what it does not refuse, it wins.
inline constexpr int kPriority = 30;

// The calling thread asked for this provider by ScopedProvider.
bool IsForced();

// z[m, n] = op(x)[m, k] op(y)[k, n].
struct ProductShape {
  int64_t m = 0, n = 0, k = 0;
  bool transpose_x = false, transpose_y = false;
};
// Measured on one thread. The answer may not depend on the number of threads: providers round
// differently, and results are the same bits for every number.
bool IsFastest(const ProductShape& shape);
bool IsFastest(const ConvolutionShape& shape);

}  // namespace tidepool::onednn

#endif  // TIDEPOOL_BACKENDS_ONEDNN_CHOICE_H_
