// A chain of elementwise operators on the host: block after block that stays in the cache, each step by
// the registered kernel of its operator. So the bits are those of the operators one after the other.
#ifndef TIDEPOOL_NDARRAY_KERNEL_CHAIN_BLOCKS_H_
#define TIDEPOOL_NDARRAY_KERNEL_CHAIN_BLOCKS_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/ndarray/kernel/attributes_chain.h"
#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

class ChainBlocks {
 public:
  static constexpr size_t kBlockBytes = 16384;  // of each operand, at most

  // Of a call of elementwise_chain, which must outlive it. Steps run on kernels of `provider`, those it
  // lacks on the first that is linked; throws kUnimplemented where there is none.
  ChainBlocks(const KernelCall& call, const char* provider);

  int64_t count() const { return outer_ * row_blocks_ * column_blocks_; }
  // Threads: blocks may run at the same time.
  void Run(int64_t block) const;

 private:
  static constexpr int kOperands = 4;  // X, Y, W, Z
  static constexpr int kZ = 3;

  const KernelCall& call_;
  const ElementwiseChainAttributes& chain_;
  const Kernel* kernels_[kMaxChainSteps] = {};
  // Merged axes, innermost last; of the last two a block is a part.
  int rank_ = 0;
  int64_t dims_[kMaxRank + 2];
  int64_t strides_[kOperands][kMaxRank + 2];
  int64_t outer_ = 1, row_blocks_ = 1, column_blocks_ = 1, block_rows_ = 1, block_columns_ = 1;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_CHAIN_BLOCKS_H_
