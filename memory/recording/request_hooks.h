// Where the runtime tells a recorder (record_requests.h) what is asked of it. For memory/ only.
//
// Nothing is told unless somebody records: the short ways of requests and releases do not look at
// this. Recorded buffers carry Buffer::kTraced, which sends their last release the long way.
#ifndef TIDEPOOL_MEMORY_RECORDING_REQUEST_HOOKS_H_
#define TIDEPOOL_MEMORY_RECORDING_REQUEST_HOOKS_H_

#include <atomic>
#include <cstdint>

namespace tidepool {

struct Buffer;
class MemoryOwner;

namespace internal {

struct RequestHooks {
  // Of a workspace's cycle or of the heap. The hook notes Buffer::kTraced.
  void (*made)(Buffer& buffer) noexcept;
  // Its bytes go: the last handle did, it was closed, or its cycle has ended. Any thread; where two
  // of those meet, maybe twice.
  void (*gone)(const Buffer& buffer) noexcept;
  // On the thread whose cycle it is; a ring's batch ends on any.
  void (*cycle)(const MemoryOwner& workspace, uint64_t generation, bool begins) noexcept;
};

extern std::atomic<const RequestHooks*> request_hooks;  // null: nobody records

// Tells that the bytes of a recorded buffer go, if they had not gone before.
void TellRequestGone(const Buffer& buffer) noexcept;

}  // namespace internal
}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RECORDING_REQUEST_HOOKS_H_
