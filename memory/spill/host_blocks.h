// Bytes of a device's buffer that wait in memory of the host: copied there and back beside the device's kernels. The host waits for
// neither copy, so that it goes on queueing work.
//
//   HostBlocks blocks;
//   HostWait wait(buffer, blocks);     // begins behind what is queued to write it by now
//   wait.LetGo();                      // the buffer may go: its memory is used again behind the copy
//   wait.BeginBack(other);             // into another one, of the same size
//   wait.Arrive();                     // what is queued from here on comes behind
//
// A wait is counted in the tier of the host's memory (tier_counters.h): it came when it began, waits there until its end, and has returned
// once it begins to go back.
//
// Threads: one at a time; each call is in the queue of the device that the thread has then (DeviceQueue::Here), which may be another each time.
#ifndef TIDEPOOL_MEMORY_SPILL_HOST_BLOCKS_H_
#define TIDEPOOL_MEMORY_SPILL_HOST_BLOCKS_H_

#include <cstddef>
#include <vector>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/spill/tier_counters.h"

namespace tidepool {

// Memory of the host (host_block.h) that is kept from one round of waits to the next, as page-locked memory is dear.
class HostBlocks {
 public:
  HostBlocks() = default;
  HostBlocks(const HostBlocks&) = delete;
  HostBlocks& operator=(const HostBlocks&) = delete;
  // Waits for copies that still use some. All waits are over.
  ~HostBlocks();

  // What was not taken since the last call goes, once copies have come by.
  void EndRound() noexcept;
  // Of all that there are, in use or kept.
  size_t bytes() const { return bytes_; }

 private:
  friend class HostWait;
  struct Block {
    BufferHandle memory;
    Device device = Host();
    QueuePoint used;     // of the device: copies use it until then
    bool taken = false;  // in this round
  };
  // A kept one of that size, or a new one. Throws OutOfMemoryError.
  Block Take(Device device, size_t bytes);
  void GiveBack(Block block) noexcept;
  void Release(Block& block) noexcept;

  std::vector<Block> kept_;
  size_t in_use_ = 0, bytes_ = 0;
};

class HostWait {
 public:
  // Nobody writes to `from`, and it stays, until LetGo() or the end of this. `blocks` outlives this. Throws OutOfMemoryError, and
  // kInternal where the device refuses; nothing is queued then.
  HostWait(Buffer& from, HostBlocks& blocks);
  HostWait(HostWait&& other) noexcept;
  HostWait& operator=(HostWait&&) = delete;
  // What it was copied to or from is used again behind the copies.
  ~HostWait();

  // Each throws kInternal where the device refuses, and may be called again then; BeginBack() but with the same buffer.
  void LetGo();
  void BeginBack(Buffer& to);
  void Arrive();

 private:
  DeviceProvider& provider_;
  HostBlocks& blocks_;
  HostBlocks::Block block_;
  size_t bytes_ = 0;
  internal::WaitingInTier waiting_;  // on the host
  QueuePoint queued_;                // the end of the copy that was queued last
  int queue_ = 0;                    // that is noted as the user of what is copied
  bool ordered_ = false;             // that queue continues behind it
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_HOST_BLOCKS_H_
