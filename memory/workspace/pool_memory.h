// PoolMemory: what the workspaces of a pool have in common instead of pages of their own.
//
// A cycle takes one range of it, as large as its plan, and gives it back at its end; so what is
// held is what the cycles that are open at once need, not what each workspace ever needed. Ranges
// are cut best fit out of few spans of addresses that grow at their end. What is not in a range
// comes from blocks(), whose chunks are free ranges as far as there are any, else the system's.
//
// Ranges of many sizes leave gaps that the next one does not fit. Addresses cost nothing: before
// memory is taken for one that fits none of them, gaps go back to the system until what is held is
// a twelfth and 64 KiB more than what was out at once, and addresses without memory get it again
// as ranges come to lie there. So it grows by gaps where most is out at once, and only there.
//
// What nobody uses goes back to the system: chunks that were not used in the last 32 to 40 cycles,
// and all that are free before a span grows; of a span what was not reached in the last 256 to 512
// cycles, half of it with every 256th (the last 8 MiB at once), but for an eighth more than was
// reached. Each time that the system is asked again soon after, they are kept for twice as long, up
// to 1,024 and 4,096 to 8,192 cycles (retention.h), so that what comes again and again stays.
// Trim() and the Reclaimer give back all that no open cycle uses, also below ranges that are open:
// from 1 MiB on there are holes then, whole pages as far as the device can do that. So do 256 to
// 512 cycles during which less than half of what is held, and 8 MiB less, was open at once (more
// where it was needed again soon, as above).
//
// Bytes are on the ledger as the owner's; what of them is in use is on the accounts of the workspaces.
// The lock is not held while the system, a budget or the Reclaimer is asked, whose callbacks may let go of
// arrays of this pool and of others, and read its numbers. A span that is resized meanwhile gives and takes
// ranges as before; who needs more of it waits until that is done, but for callbacks, which take from a span
// of their own.
//
// Threads: any. Cost: one lock and a look into a trie of sizes; where it grows, system calls. Memory is
// touched at first use.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_POOL_MEMORY_H_
#define TIDEPOOL_MEMORY_WORKSPACE_POOL_MEMORY_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/resource/memory_resource.h"
#include "tidepool/memory/resource/pool.h"
#include "tidepool/memory/resource/resource_stack.h"
#include "tidepool/memory/sync/single_writer.h"
#include "tidepool/memory/workspace/free_ranges.h"
#include "tidepool/memory/workspace/owned_bytes.h"
#include "tidepool/memory/workspace/retention.h"
#include "tidepool/memory/workspace/unlocked_chunks.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

class PoolMemory {
 public:
  struct Range {
    std::byte* data = nullptr;
    size_t bytes = 0;  // rounded up to the alignment
    uint32_t span = 0;
    FreeRanges::Range range = FreeRanges::Range::kNone;
    bool is_taken() const { return range != FreeRanges::Range::kNone; }
  };
  struct Usage {
    size_t held_bytes = 0;        // from the system, blocks included
    size_t range_bytes = 0;       // in ranges that are out
    size_t most_range_bytes = 0;  // at once, ever
    size_t ranges = 0;            // out
  };

  // `id` is the pool's, for messages. The config, the provider and the owner must live as long.
  PoolMemory(const std::string& id, const WorkspaceConfig& config, size_t alignment,
             DeviceProvider& provider, MemoryOwner& owner);
  // Nothing of it is out.
  ~PoolMemory();
  // `owner` owns it, and may go in a callback while the Reclaimer is at it, which keeps it for as
  // long.
  void SetOwner(std::weak_ptr<const void> owner) {
    Lock lock(mutex_);
    owner_ = std::move(owner);
    has_owner_ = true;
  }
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;

  // `bytes`: more than 0. Throws OutOfMemoryError and std::bad_alloc, nothing changed.
  Range Take(size_t bytes);
  // At the end of a cycle. `range` may be none, where the cycle had blocks alone.
  void Give(const Range& range) noexcept;
  // Blocks of any size, in chunks of temp_block_size: free ranges, or else the system's.
  MemoryResource& blocks() { return blocks_; }

  // Of blocks, as Pool::TakeChunksOfOne().
  void TakeChunksOfOne() noexcept;
  // Gives back what is not in use. Returns bytes.
  size_t Trim() noexcept;
  Usage usage() const;
  // Without the lock, for whoever watches: each number as it was at some moment, bytes held as of when they
  // were last put on the ledger.
  Usage usage_in_passing() const noexcept;

 private:
  using Lock = std::unique_lock<std::mutex>;
  struct Span {
    Span(const PagesOptions& options, DeviceProvider& provider, size_t unit)
        : pages(options, provider), ranges(unit) {}
    Pages pages;  // while `resizing` that thread's, without the lock
    FreeRanges ranges;
    bool resizing = false;
    bool moves = false;  // nothing is in it, and nothing may be until it was resized
    // Of the pages, as of when they were last resized.
    std::byte* base = nullptr;
    size_t reserved_bytes = 0;
    size_t held_bytes = 0;
    size_t hole_end = 0;
    // Ranges without memory: nobody has them.
    std::vector<FreeRanges::Range> holes;
    size_t reached = 0;         // in the uses of memory that are counted together
    size_t reached_before = 0;  // in as many before
    size_t kept = 0;            // as of then; more goes in steps
  };
  // A free range that is taken so that its memory may go.
  struct Gap {
    FreeRanges::Range range;
    size_t offset;
    size_t bytes;
    bool splits;
    bool gone;
  };
  class Blocks final : public MemoryResource {
   public:
    explicit Blocks(PoolMemory& memory) : memory_(memory) {}
    Allocation Allocate(size_t bytes, size_t alignment) override;
    void Release(void* token, size_t bytes, size_t alignment) noexcept override;
    Device device() const override { return memory_.chunks_.device(); }
    std::string Describe() const override { return memory_.chunks_.Describe(); }
    size_t FootprintBytes(size_t bytes, size_t alignment) const override {
      return memory_.chunks_.FootprintBytes(bytes, alignment);
    }

   private:
    PoolMemory& memory_;
  };
  // Free ranges, without growing for it; else chunks of what it wraps. With the lock.
  class Chunks final : public ResourceWrapper {
   public:
    Chunks(MemoryResource& upstream, PoolMemory& memory)
        : ResourceWrapper(upstream), memory_(memory) {}
    Allocation Allocate(size_t bytes, size_t alignment) override;
    void Release(void* token, size_t bytes, size_t alignment) noexcept override;
    std::string Describe() const override { return upstream().Describe(); }
    // Whether that one is a range.
    static bool IsRange(void* token) noexcept;

   private:
    struct Chunk;
    PoolMemory& memory_;
  };

  // With the lock; those that are given it give it up meanwhile.
  Range TakeFromAny(size_t bytes);
  Range TakeFrom(uint32_t span, size_t bytes) noexcept;
  Range TakeFromBlocks(size_t bytes);
  Range Grow(Lock& lock, size_t bytes);
  Range GrowInHoles(Lock& lock, size_t bytes);
  Range PlaceOverHoles(uint32_t span, size_t bytes);
  void Extend(Lock& lock, Span& span, size_t bytes);
  void CountOpen(size_t bytes) noexcept;
  std::vector<Gap> GapsToGive(Span& span, size_t lacks, size_t bytes, bool above) noexcept;
  bool TakeGap(Span& span, size_t bytes, bool splits, std::vector<Gap>& gaps) noexcept;
  size_t InUse() const { return range_bytes_ + chunk_range_bytes_; }
  void Resize(Lock& lock, Span& span, size_t bytes);
  template <typename Change>
  void ChangePages(Lock& lock, Span& span, std::vector<Gap> gaps, const Change& change);
  size_t Shrink(Lock& lock, Span& span, size_t end) noexcept;
  size_t MakeHoles(Lock& lock, Span& span) noexcept;
  bool DropHolesAtTop(Span& span) noexcept;
  void EndUseOfBlocks() noexcept;
  void EndUseOfRanges(Lock& lock) noexcept;
  size_t TrimAll(Lock& lock) noexcept;
  size_t HeldInSpans() const;
  size_t Held() const;
  void Report() noexcept;
  // Without it.
  Lock LockUnlessLeftLocked() noexcept;  // none: it is, by a thread of before a fork()
  int64_t Reclaim(ReclaimDepth depth) noexcept;

  const size_t unit_;
  const uint64_t forks_behind_ = ForksBehind();
  const PagesOptions options_;
  DeviceProvider& provider_;
  mutable std::mutex mutex_;
  std::condition_variable resized_;
  int waiting_ = 0;  // for it
  std::vector<std::unique_ptr<Span>> spans_;
  ResourceStack chunks_;          // outlived by the spans
  UnlockedChunks* taken_chunks_;  // of these, at the bottom
  Pool* pool_;                    // at the top
  Blocks blocks_{*this};
  uint64_t given_ = 0;  // ranges, and ends of cycles without
  Retention keeps_blocks_;
  uint64_t chunks_before_ = 0;  // taken by the end of the last use
  Retention keeps_ranges_;
  bool grew_ = false;             // in this use
  int uses_counted_ = 0;          // together
  size_t most_open_ = 0;          // bytes in ranges at once, in these
  size_t most_open_before_ = 0;   // in as many before
  size_t chunk_range_bytes_ = 0;  // of ranges that blocks have
  size_t most_in_use_ = 0;        // with these, at once, as far as that is not long ago
  uint64_t given_at_periodic_reclaim_ = UINT64_MAX;
  std::weak_ptr<const void> owner_;
  bool has_owner_ = false;
  // Changed with the lock.
  SingleWriter<size_t> ranges_;
  SingleWriter<size_t> range_bytes_;
  SingleWriter<size_t> most_range_bytes_;
  SingleWriter<size_t> reported_bytes_;
  MemoryAccount account_;
  OwnedBytes all_owned_{account_};
  OwnedBytes::Part owned_{all_owned_};
  Reclaimer::Registration reclaimer_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_POOL_MEMORY_H_
