#include "tidepool/backends/cuda/convolution/tf32_policy.h"

#include "tidepool/backends/cuda/matmul/cublas.h"

namespace tidepool::cuda {

bool Tf32IsAllowed() { return Cublas::tf32(); }

}  // namespace tidepool::cuda
