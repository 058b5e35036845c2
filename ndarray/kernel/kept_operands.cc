#include "tidepool/ndarray/kernel/kept_operands.h"

#include <atomic>

namespace tidepool {
namespace {

std::atomic<const OperandKeeper*> keepers{nullptr};

}  // namespace

OperandKeeper::OperandKeeper(Forget forget) noexcept : forget_(forget), next_(keepers.load()) {
  while (!keepers.compare_exchange_weak(next_, this)) {
  }
}

void ForgetKeptOperand(uint64_t buffer_id) noexcept {
  for (const OperandKeeper* each = keepers.load(std::memory_order_acquire); each != nullptr;
       each = each->next_) {
    each->forget_(buffer_id);
  }
}

}  // namespace tidepool
