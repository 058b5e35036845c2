// Attention of f16 and bf16 by tensor cores: what attention.cu and attention_grad.cu hand on.
#ifndef TIDEPOOL_BACKENDS_CUDA_ATTENTION_HALF_ATTENTION_H_
#define TIDEPOOL_BACKENDS_CUDA_ATTENTION_HALF_ATTENTION_H_

#include "tidepool/backends/cuda/attention/attention_geometry.h"

namespace tidepool::cuda {

// Widest heads that these take.
inline constexpr int64_t kWidestHalfHeads = 128;

template <typename T>
void QueueHalfAttention(const AttentionCall<T>& call, cudaStream_t stream);
template <typename T>
void QueueHalfAttentionGrad(const AttentionGradCall<T>& call, cudaStream_t stream);

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_ATTENTION_HALF_ATTENTION_H_
