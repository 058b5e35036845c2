#include "tidepool/memory/accounting/memory_listener.h"

namespace tidepool {

constinit std::atomic<MemoryListener*> MemoryListener::current_[kPurposes] = {};

namespace internal {
constinit std::atomic<void (*)() noexcept> tell_operators_of_thread{nullptr};
}  // namespace internal

}  // namespace tidepool
