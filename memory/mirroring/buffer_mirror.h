// BufferMirror: the host copy of a buffer in device memory, and which side is newer where.
//
// It belongs to the buffer (Buffer::mirror), so all views and handles share it: made at the first
// access of the host, gone with the buffer. The host copy's memory is had when bytes are first needed
// there, page-locked where the device has such memory, and is host memory in the ledger. Freshness is
// kept by range (freshness.h), so a write makes exactly its own range stale on the other side.
//
//   BufferMirror& mirror = BufferMirror::Of(buffer);
//   std::memset(mirror.OnHost(MirrorEvent::kHostOverwrite, 0, 64, "test"), 0, 64);
//   BufferMirror::PrepareForDevice(...);   // queues what is stale; kernels queued now wait for it
//
// Copies to the device are queued beside kernels and begin when the work that was queued when the
// mirror was made, or last used on the device, has passed. Copies to the host are waited for.
// A buffer's version (Buffer::version) is raised by whoever writes; a version of 0 says that nobody
// has, and such bytes are never copied. While a buffer may be written to outside
// (Buffer::MayBeWrittenOutside) the host copy is as of each access: what the device has is fetched anew.
//
// Errors: kFailedPrecondition where the workspace keeps device memory only (MirroringPolicy::kDisabled)
// and where a view is in the way (MirrorLock); OutOfMemoryError without memory for the host copy;
// kInternal when a copy fails. Both sides are as they were then.
// Threads: any, one buffer's accesses at a time by its mutex; who reads bytes that another thread
// writes has a race as ever. Cost: a mutex and a walk over few ranges; what is copied.
#ifndef TIDEPOOL_MEMORY_MIRRORING_BUFFER_MIRROR_H_
#define TIDEPOOL_MEMORY_MIRRORING_BUFFER_MIRROR_H_

#include <atomic>
#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/mirroring/freshness.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

class HostCopiesTogether;
class QueueTurn;

// A view that is alive: while it is, nothing else may touch its range in a way that one of the two
// would not see. Lives in the view.
struct MirrorLock {
  size_t begin = 0, end = 0;
  bool on_host = false, writes = false;
  std::string what;  // for messages: "HostView [3, 4] f32"
  MirrorLock* next = nullptr;
};

class BufferMirror {
 public:
  // What a call does with a range of one buffer on its device.
  struct DeviceUse {
    Buffer* buffer;
    size_t begin, end;
    bool writes;
    const char* operation;  // for messages: "add"
    std::string operand;    // "Z"
  };

  // The buffer's, made if need be. The buffer is alive and of a device whose memory the host cannot
  // read. Throws kUnimplemented without a provider of it.
  //
  // Where another thread may close the buffer, the caller here, in Find and in PrepareForDevice has
  // it pinned (memory/pins.h), found it alive afterwards, and keeps the pin as long as it uses the
  // mirror: who closes a buffer that is not pinned destroys its mirror. A MirrorLock keeps the
  // mirror by itself.
  static BufferMirror& Of(Buffer& buffer);
  static BufferMirror* Find(const Buffer& buffer) {
    return buffer.mirror.load(std::memory_order_acquire);
  }

  // The host copy's first byte, after `event` (of the host's) has happened to [begin, end): that range
  // is up to date unless it is overwritten. `lock` is the view's, registered until EndView.
  std::byte* OnHost(MirrorEvent event, size_t begin, size_t end, const char* who,
                    MirrorLock* lock = nullptr);
  // The bytes, if the host copy has them; no copy from the device. Throws as OnHost where a view writes
  // them.
  bool ReadIfOnHost(size_t begin, size_t bytes, void* out, const char* who);
  // The host copy is as new as the device's; likewise of the device's.
  bool IsFreshOnHost(size_t begin, size_t end);
  bool IsFreshOnDevice(size_t begin, size_t end);

  // Before a kernel or a copy of the device: of the buffers that have mirrors, what is stale on the
  // device is queued together, and the device's next kernels wait for that; what is written makes the
  // host's stale. Of several devices each gets its own.
  static void PrepareForDevice(absl::Span<const DeviceUse> uses);
  // The same for a view of the device memory.
  void LockOnDevice(MirrorLock* lock, const char* who);
  void EndView(MirrorLock* lock) noexcept;

  // Gives the host copy's memory back, after bringing the device copy up to date. Not while there is
  // a host view.
  void DropHostCopy();
  // Somebody else may have written on the device.
  void NoteWrittenOutside();
  bool has_host_copy();
  std::vector<FreshnessMap::Range> ranges();

  // Views keep it beyond its buffer's end.
  void Ref() { references_.fetch_add(1, std::memory_order_relaxed); }
  void Unref() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  explicit BufferMirror(Buffer& buffer);
  ~BufferMirror();
  static void Drop(Buffer* buffer) noexcept;
  bool IsCrowded();

  // These need mutex_ held, and those that send to the device a turn alone, which is taken first.
  void CheckLocks(size_t begin, size_t end, bool writes, const std::string& who) const;
  void AddLock(MirrorLock* lock);
  void MakeHostCopy(const char* who);
  void LookOutside();
  void ReleaseHostCopy() noexcept;
  void Fetch(MirrorEvent event, size_t begin, size_t end);
  QueuePoint PrepareToSend(const QueueTurn& turn, size_t points);
  void Send(const QueueTurn& turn, MirrorEvent event, size_t begin, size_t end,
            std::vector<QueuePoint>* points);
  void SendNow(const QueueTurn& turn, MirrorEvent event, size_t begin, size_t end);
  // What the uses of buffers of one device need.
  static void SendUses(DeviceProvider& device, absl::Span<const DeviceUse> uses);
  // The same of several, by one call of the device's.
  static void SendTogether(const QueueTurn& turn, HostCopiesTogether& device,
                           absl::Span<const DeviceUse> uses, std::vector<QueuePoint>* points);
  void WaitForSent();

  Buffer& buffer_;  // its owner, id and queues; not once the buffer is gone
  const Device device_name_;
  DeviceProvider& device_;
  DeviceProvider& host_memory_;
  const bool keeps_host_copy_;  // page-locked memory is dear
  MemoryOwner* const charged_to_;
  std::byte* const data_;
  const size_t bytes_;
  std::atomic<int> references_{1};
  std::mutex mutex_;
  FreshnessMap freshness_;
  std::byte* host_ = nullptr;
  MirrorLock* locks_ = nullptr;
  QueuePoint ready_;              // behind earlier users of the device memory
  bool used_on_device_ = false;   // since; then it is all that is queued where it was used
  std::vector<QueuePoint> sent_;  // copies that may be under way
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_MIRRORING_BUFFER_MIRROR_H_
