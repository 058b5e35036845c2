#include "tidepool/memory/sync/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tidepool {
namespace {

bool Membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

void AsymmetricFence<StdSync>::Register() noexcept {
  static const bool registered = Membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED);
  if (registered) has_barrier.store(true, std::memory_order_relaxed);
}

void AsymmetricFence<StdSync>::Heavy() noexcept {
  StdSync::Fence(std::memory_order_seq_cst);
  // Without effect where no thread has registered: then no thread has passed a Light().
  if (has_barrier.load(std::memory_order_relaxed)) Membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED);
}

}  // namespace tidepool
