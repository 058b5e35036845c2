// Copies of buffers' bytes between two devices. Neither goes through pageable memory.
//
// Peer to peer, where a PeerCopies of the devices' type says that it can: the copy is queued beside the
// compute queues. It begins behind what uses the source's bytes, and behind the earlier uses of the
// target's; the thread's queues of both devices continue behind it, and the host does not wait.
// Staged otherwise, so between devices of any types: through page-locked memory of the source's, else of the
// target's, else of ordinary host memory where neither has any. In pieces of at most kStagedBytes, while one is
// fetched the one before it is sent; the host waits for both.
//
// Which it is for two devices is decided at the first copy between them, one for each direction, and
// for good. Threads: any. No lock is taken for the way. Cost: peer to peer a few driver calls and a turn of each device's queues
// (device_queue.h); staged, two blocks of the host's and a wait for each piece.
#ifndef TIDEPOOL_MEMORY_DEVICE_COPY_H_
#define TIDEPOOL_MEMORY_DEVICE_COPY_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

inline constexpr size_t kStagedBytes = size_t{4} << 20;  // of a piece; two are under way

// Bytes at `from`, which lie in `source`, to `to` in `target`, on two devices that are not the host, else kInvalidArgument. The caller has both
// pinned (pins.h), their mirrors prepared (buffer_mirror.h) and raised the target's version. Throws kInternal when a device fails: peer to peer
// nothing has been written then; staged, pieces may have been. OutOfMemoryError without staging memory.
void CopyBetweenDevices(Buffer& target, std::byte* to, Buffer& source, const std::byte* from,
                        size_t bytes);

// Of the way from one device to another, since the process began.
struct DeviceCopyCounters {
  bool decided = false;           // false: nothing was copied yet, and all else is empty
  std::string why_staged;         // empty: peer to peer
  int64_t copies = 0, bytes = 0;  // that were made or queued
  int64_t pieces = 0;             // of staged copies
};
// kInvalidArgument for devices that there cannot be.
DeviceCopyCounters DeviceCopiesBetween(Device from, Device to);
// "simulated:0 to simulated:1: peer to peer, 3 copies, 4096 bytes", a line for each two between which copies were made.
std::string DescribeDeviceCopies();
// Decides and counts anew. While nothing is copied.
void ForgetDeviceCopiesForTesting();

// One copy that a backend is to queue; begins behind both points.
struct PeerCopy {
  Device from_device, to_device;  // two of the backend's type
  const std::byte* from;          // memory of from_device
  std::byte* to;                  // memory of to_device
  size_t bytes;                   // to copy, more than 0
  QueuePoint after;               // of from_device
  QueuePoint after_there;         // of to_device
  int to_queue;                   // of to_device: continues behind the copy
};

// What a backend has that copies directly between its devices. Threads: any.
class PeerCopies {
 public:
  // Why not from the one to the other; empty: it can, and memory of theirs may be accessed from here on. Called under no lock,
  // by several threads at a time where they copy first; where it throws, the copy does, and the next one asks again.
  virtual std::string WhyNot(Device from, Device to) = 0;
  // Returns the point of from_device behind it; what is queued later between the two passes later. Throws kInternal; nothing is queued then.
  virtual QueuePoint Queue(const PeerCopy& copy) = 0;

 protected:
  ~PeerCopies() = default;
};

// Those of the type; null: it has none.
PeerCopies* FindPeerCopies(DeviceType type);
// Puts `peers` in their place and returns them. While nothing is copied.
PeerCopies* SwapPeerCopiesForTesting(DeviceType type, PeerCopies* peers);

// Makes `peers` those of the type: a static variable of the backend's.
class PeerCopiesRegistrar {
 public:
  // `peers` is never destroyed. A second one of a type ends the program.
  PeerCopiesRegistrar(DeviceType type, PeerCopies* peers);
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_DEVICE_COPY_H_
