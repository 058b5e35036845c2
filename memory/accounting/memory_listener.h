// What a recording of memory is made from: each change of the ledger, each array outside of workspaces, each
// request and each end of a cycle (memory/profile records them).
//
// There is at most one listener. Without one this costs a load for each array on the heap and nothing on the way of
// a planned request: workspaces tell of the cycles that they trace anyway (MemoryTracing), and the ledger of its
// changes where somebody observes it.
//
// Threads: all calls come from any thread, several at once, and may still come for a moment after the listener was
// taken off; so it lives as long as the process. They may not throw, nor take memory that the ledger counts.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LISTENER_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LISTENER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/types/span.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/device.h"

namespace tidepool {

struct Buffer;
class MemoryOwner;

// A request of a workspace's cycle.
struct RecordedCycleRequest {
  uint64_t workspace;   // WorkspaceCore::number()
  uint64_t generation;  // which cycle
  uint32_t slot;        // which request of it, from 0
  const Buffer* buffer;
  size_t rounded_bytes;
  int64_t offset;  // in the pages; -1: outside
  bool missed;     // a plan existed for it and could not be followed
};

struct RecordedCycle {
  static constexpr uint32_t kAlive = UINT32_MAX;

  uint64_t workspace;
  uint64_t generation;
  std::string_view name;  // of the workspace
  const MemoryOwner* owner;
  Device device;
  // By request: after how many requests of the cycle it was released; kAlive: not before its end.
  absl::Span<const uint32_t> released_after;
  bool failed;          // left by an exception
  bool owned;           // what is alive is closed by the cycle's owner, so it is not leaked
  size_t pages_bytes;   // offered to requests
  size_t blocks_bytes;  // kept for blocks of containers
};

class MemoryListener {
 public:
  // Null: nobody listens.
  static MemoryListener* Current() noexcept { return current_.load(std::memory_order_acquire); }
  // Null: from here on nobody. Returns who did before.
  static MemoryListener* Exchange(MemoryListener* listener) noexcept {
    return current_.exchange(listener, std::memory_order_acq_rel);
  }

  // Under the lock of the ledger. Bytes that came (or went, below 0) outside of workspaces.
  virtual void Added(Device device, MemoryKind kind, int64_t bytes,
                     const MemoryOwner& owner) noexcept = 0;
  // Likewise, pages and blocks of a workspace or pool, in use or not.
  virtual void Owned(Device device, int64_t bytes, const MemoryOwner& owner) noexcept = 0;

  static void TellOwned(Device device, int64_t bytes, const MemoryOwner& owner) noexcept {
    if (MemoryListener* const listener = Current()) listener->Owned(device, bytes, owner);
  }

  // An array outside of workspaces. The ledger has been told.
  virtual void Made(const Buffer& buffer) noexcept = 0;
  // Before its bytes go; also of ones that were made before anybody listened.
  virtual void Gone(const Buffer& buffer) noexcept = 0;

  virtual void Requested(const RecordedCycleRequest& request) noexcept = 0;
  // Before what is alive is dropped.
  virtual void Ended(const RecordedCycle& cycle) noexcept = 0;

  // The operator `op` is about to write `what` ("f32 [2, 3]") into an array: the first to do so made it.
  virtual void Written(const Buffer& buffer, const char* op, std::string_view what) noexcept = 0;

 protected:
  ~MemoryListener() = default;

 private:
  static std::atomic<MemoryListener*> current_;
};

namespace internal {

// Set by the array layer: the calling thread has made an array that is recorded, so its operators tell what they
// write from here on. Null: there is none.
extern std::atomic<void (*)() noexcept> tell_operators_of_thread;

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LISTENER_H_
