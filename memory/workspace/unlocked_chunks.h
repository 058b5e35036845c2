// What the blocks of a pool take their chunks from: the lock of whoever uses it is not held while the
// system, a budget or the Reclaimer is asked, because these call back (memory_events.h, reclaimer.h).
//
// Allocate() gives the lock up until what it wraps has answered. What is released is noted, and goes back
// where GiveBack() is called, or before more is taken. Of chunks for many small blocks one is taken at a
// time: who finds that another thread is at it is refused, waits, and looks again for a block.
//
// Threads: whoever has the lock, which is the same one in all calls.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_UNLOCKED_CHUNKS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_UNLOCKED_CHUNKS_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class UnlockedChunks final : public ResourceWrapper {
 public:
  // Chunks that take as much as one of `shared_bytes` are for many blocks.
  UnlockedChunks(MemoryResource& upstream, std::mutex& mutex, size_t shared_bytes, size_t alignment)
      : ResourceWrapper(upstream),
        mutex_(mutex),
        shared_bytes_(upstream.FootprintBytes(shared_bytes, alignment)) {}
  // Nothing of it is out, and the lock is not held.
  ~UnlockedChunks() override { Release(std::exchange(released_, nullptr)); }

  Allocation Allocate(size_t bytes, size_t alignment) override;
  void Release(void* token, size_t bytes, size_t alignment) noexcept override;
  std::string Describe() const override { return upstream().Describe(); }

  // It was refused because another thread takes a chunk.
  bool WasBusy(const Allocation& refused) const { return !refused && refused.refused_by == this; }
  // Until that one has it, or has been refused.
  void AwaitOther();
  // What has been released, without the lock meanwhile. Returns bytes.
  size_t GiveBack() noexcept;
  // From the system, what is being given back included.
  size_t held_bytes() const { return held_bytes_; }
  // Chunks, ever.
  uint64_t taken() const { return taken_; }

 private:
  struct Chunk {
    void* token;  // of upstream
    size_t bytes;
    size_t alignment;
    size_t footprint;
    Chunk* next;
  };

  // Without the lock.
  size_t Release(Chunk* chunks) noexcept;

  std::mutex& mutex_;
  const size_t shared_bytes_;
  std::condition_variable answered_;
  bool takes_shared_ = false;
  size_t held_bytes_ = 0;
  uint64_t taken_ = 0;
  Chunk* released_ = nullptr;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_UNLOCKED_CHUNKS_H_
