#include "tidepool/memory/accounting/callbacks.h"

#include "tidepool/memory/accounting/memory_owner.h"

namespace tidepool::internal {

thread_local constinit int callbacks_here = 0;
std::atomic<void (*)(absl::FunctionRef<void()>)> around_callbacks{nullptr};

void CallBack(absl::FunctionRef<void()> call) noexcept {
  const auto guarded = [&] {
    try {
      call();
    } catch (...) {
      // What the callback is called in the middle of goes on as it would have.
    }
  };
  ++callbacks_here;
  const MemoryOwnerScope nobodys(MemoryOwner::Process());  // what it makes is not the request's
  const auto around = around_callbacks.load(std::memory_order_acquire);
  if (around != nullptr) {
    around(guarded);
  } else {
    guarded();
  }
  --callbacks_here;
}

}  // namespace tidepool::internal
