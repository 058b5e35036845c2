// MirroredBuffer: one logical buffer with a copy in device memory and one in host memory.
//
//   MirroredBuffer mirror(std::move(buffer));
//   Fill(mirror.OverwriteOnHost());                  // no copy
//   Launch(mirror.ReadOnDevice());                   // copies to the device, once
//   Print(mirror.ReadOnHost());                      // no copy: the host's is current
//
// The host copy is made at the first host access, page-locked where the device has such memory, and
// counted in the ledger as allocated host memory. Each access says what it will do, and bytes move
// only when the side asked for is out of date. Who writes to the device copy by other means raises
// Buffer::version, which makes the host copy out of date. Memory the host can read needs no second
// copy: both sides are the same bytes.
//
// Pointers hold until the next access of the other side, and as long as the buffer's cycle.
// Errors: kFailedPrecondition when the buffer is closed or of a cycle that has ended, when its
// workspace keeps device memory only (MirroringPolicy::kDisabled), or when both sides were written;
// OutOfMemoryError without memory for the host copy; kInternal when the device fails to copy. Both
// sides are as they were then. Threads: one at a time. Cost: a few compares when nothing is stale.
#ifndef TIDEPOOL_MEMORY_MIRRORING_MIRRORED_BUFFER_H_
#define TIDEPOOL_MEMORY_MIRRORING_MIRRORED_BUFFER_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/memory/buffer.h"

namespace tidepool {

class DeviceProvider;

// The host may use the addresses of its bytes.
bool IsHostReadable(const Buffer& buffer);

class MirroredBuffer {
 public:
  struct Counters {
    int64_t copies_to_host = 0;
    int64_t copies_to_device = 0;
    int64_t bytes_to_host = 0;
    int64_t bytes_to_device = 0;
  };

  // `buffer`'s bytes are current. Throws kUnimplemented without a provider of its device.
  explicit MirroredBuffer(BufferHandle buffer);
  // What only the host copy holds is lost.
  ~MirroredBuffer();
  MirroredBuffer(const MirroredBuffer&) = delete;
  MirroredBuffer& operator=(const MirroredBuffer&) = delete;

  // Current bytes to read, to read and write, or room for new bytes that replace all of them. After
  // the latter two the other side is out of date.
  const std::byte* ReadOnHost();
  std::byte* WriteOnHost();
  std::byte* OverwriteOnHost();
  const std::byte* ReadOnDevice();
  std::byte* WriteOnDevice();
  std::byte* OverwriteOnDevice();

  // Gives the host copy's memory back, after bringing the device copy up to date.
  void DropHostCopy();

  bool host_is_current() const;
  bool device_is_current() const { return !device_stale_; }
  bool has_host_copy() const { return host_ != nullptr; }
  const Counters& counters() const { return counters_; }
  Buffer* buffer() const { return buffer_.get(); }

 private:
  void Check(bool on_host) const;
  void MakeHostCopy();
  void ToHost();
  void ToDevice();
  void HostWritten();
  void ReleaseHostCopy() noexcept;

  BufferHandle buffer_;
  DeviceProvider* device_;
  DeviceProvider* host_memory_;
  bool shared_;  // one copy is both
  std::byte* host_ = nullptr;
  uint32_t host_version_ = 0;  // of the buffer when the host copy was current
  bool host_valid_ = false;    // it ever was
  bool device_stale_ = false;  // the host copy is newer
  Counters counters_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_MIRRORING_MIRRORED_BUFFER_H_
