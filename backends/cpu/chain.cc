// Chains of elementwise operators in blocks that stay in the cache, by the vector loops of the
// operators: an array is read and written once, whatever the number of steps.
#include <cstdint>

#include "tidepool/ndarray/kernel/chain_blocks.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kGrain = 4;  // blocks of a task

void Run(const KernelCall& call) {
  const ChainBlocks blocks(call, "cpu");
  const int64_t work =
      call.outputs[0].NumElements() * call.attrs<ElementwiseChainAttributes>().count;
  ParallelFor(call.threads, blocks.count(), kGrain, work, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) blocks.Run(block);
  });
}

constexpr Kernel Chain(DType dtype) {
  return {OpCode::kElementwiseChain, DeviceType::kHost, dtype, "cpu", 10, &Run, nullptr, nullptr,
          /*strided=*/true};
}

const KernelRegistrar registrar({Chain(DType::kFloat32), Chain(DType::kFloat64),
                                 Chain(DType::kFloat16), Chain(DType::kBFloat16)});

}  // namespace
}  // namespace tidepool::cpu
