// Whether f32 may be TF32, for .cu files, which do not include cuBLAS.
#ifndef TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TF32_POLICY_H_
#define TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TF32_POLICY_H_

namespace tidepool::cuda {

// The policy of products (Cublas::tf32) as it is now. Threads: any.
bool Tf32IsAllowed();

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_CONVOLUTION_TF32_POLICY_H_
