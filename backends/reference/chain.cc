// Chains of elementwise operators, step by step by the operators' own kernels.
#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/ndarray/kernel/chain_blocks.h"

namespace tidepool {
namespace {

template <typename T>
void RunChain(const KernelCall& call) {
  const ChainBlocks blocks(call, "reference");
  for (int64_t block = 0; block < blocks.count(); ++block) blocks.Run(block);
}

const KernelRegistrar registrar({TIDEPOOL_FLOAT_KERNELS(OpCode::kElementwiseChain, RunChain)});

}  // namespace
}  // namespace tidepool
