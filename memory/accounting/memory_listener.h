// What a recording of memory is made from: each change of the ledger, each array outside of workspaces, each
// request, each begin and end of a cycle (memory/profile and memory/recording write them down).
//
// There is at most one listener for each purpose. Without them this costs two loads for each array on the heap and
// nothing on the way of a planned request: workspaces tell of the cycles that they watch anyway (MemoryTracing), and the
// ledger of its changes where somebody observes it.
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
  Buffer* buffer;
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
  enum Purpose : uint8_t {
    kProfile,
    kRecord,  // is told of the releases of requests one by one, of cycles that are recorded (MemoryTracing::kRecords)
  };

  // Null: nobody listens.
  static MemoryListener* Current(Purpose purpose) noexcept {
    return current_[purpose].load(std::memory_order_acquire);
  }
  // Null: from here on nobody. Returns who did before.
  static MemoryListener* Exchange(Purpose purpose, MemoryListener* listener) noexcept {
    return current_[purpose].exchange(listener, std::memory_order_acq_rel);
  }
  template <typename Tell>
  static void Each(const Tell& tell) noexcept {
    for (const std::atomic<MemoryListener*>& current : current_) {
      MemoryListener* const listener = current.load(std::memory_order_acquire);
      if (listener != nullptr) [[unlikely]]
        tell(*listener);
    }
  }

  // Under the lock of the ledger. Bytes that came (or went, below 0) outside of workspaces.
  virtual void Added(Device /*device*/, MemoryKind /*kind*/, int64_t /*bytes*/,
                     const MemoryOwner& /*owner*/) noexcept {}
  // Likewise, pages and blocks of a workspace or pool, in use or not.
  virtual void Owned(Device /*device*/, int64_t /*bytes*/, const MemoryOwner& /*owner*/) noexcept {}

  static void TellOwned(Device device, int64_t bytes, const MemoryOwner& owner) noexcept {
    Each([&](MemoryListener& listener) { listener.Owned(device, bytes, owner); });
  }

  // An array outside of workspaces. The ledger has been told.
  virtual void Made(Buffer& /*buffer*/) noexcept {}
  // Before its bytes go, on any thread; also of ones that were made before anybody listened. Of requests of cycles only while
  // they carry Buffer::kTraced, which a listener sets. May be told more than once.
  virtual void Gone(const Buffer& /*buffer*/) noexcept {}

  // A recorded cycle begins; it has ended, with what was alive in it. On the thread whose cycle it is; a ring's batch ends on any.
  virtual void Began(const MemoryOwner& /*workspace*/, uint64_t /*generation*/) noexcept {}
  virtual void Left(const MemoryOwner& /*workspace*/, uint64_t /*generation*/) noexcept {}
  virtual void Requested(const RecordedCycleRequest& /*request*/) noexcept {}
  // Before what is alive is dropped.
  virtual void Ended(const RecordedCycle& /*cycle*/) noexcept {}

  // The operator `op` is about to write `what` ("f32 [2, 3]") into an array: the first to do so made it.
  virtual void Written(const Buffer& /*buffer*/, const char* /*op*/,
                       std::string_view /*what*/) noexcept {}

 protected:
  ~MemoryListener() = default;

 private:
  static constexpr int kPurposes = 2;
  static std::atomic<MemoryListener*> current_[kPurposes];
};

namespace internal {

// Set by the array layer: the calling thread has made an array that is recorded, so its operators tell what they
// write from here on. Null: there is none.
extern std::atomic<void (*)() noexcept> tell_operators_of_thread;

}  // namespace internal

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LISTENER_H_
