// n / d and n % d of device code, fast where the numbers are below 2^31.
#ifndef TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_DIVIDER_H_
#define TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_DIVIDER_H_

#include <cstdint>

#include "tidepool/backends/cuda/framework/strided_layout.h"

namespace tidepool::cuda {

class Divider {
 public:
  // Of numbers up to `most`.
  Divider(int64_t divisor, int64_t most)
      : divisor_(divisor), wide_(most >= int64_t{1} << 31 || divisor >= int64_t{1} << 31) {
    if (!wide_) fast_ = FastDivisor(static_cast<uint32_t>(divisor));
  }
  __device__ __forceinline__ int64_t Divide(int64_t n, int64_t* rest) const {
    const int64_t quotient = wide_ ? n / divisor_ : fast_.Divide(static_cast<uint32_t>(n));
    *rest = n - quotient * divisor_;
    return quotient;
  }

 private:
  int64_t divisor_;
  FastDivisor fast_;
  bool wide_;
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_FRAMEWORK_DIVIDER_H_
