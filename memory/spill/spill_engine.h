// The thread of a spill file: copies or packs blocks into page-aligned memory and out of it, checks them, and
// keeps as many of them under way as there is such memory.
//
// Reads come first, because somebody waits for them, but each fourth block is of a write as long as any
// waits. Within each the order is that of their beginnings. Threads: any, but what is said to be the thread's own.
#ifndef TIDEPOOL_MEMORY_SPILL_SPILL_ENGINE_H_
#define TIDEPOOL_MEMORY_SPILL_SPILL_ENGINE_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/spill/file_queue.h"
#include "tidepool/memory/spill/spill_counters.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spill_packer.h"
#include "tidepool/memory/spill/spill_space.h"

namespace tidepool::internal {

// Kept by its SpillTransfer, and by the engine as long as a block of it waits or is under way.
struct SpillRequest {
  bool writes = false;
  const std::byte* from = nullptr;
  std::byte* to = nullptr;
  SpilledBytes kept;                 // of a write
  std::vector<SpilledBlock> blocks;  // of both; their checksums are those to be
  std::vector<size_t> starts;        // of each, in the memory
  std::chrono::steady_clock::time_point begun;
  int64_t bytes() const {
    int64_t sum = 0;
    for (const SpilledBlock& block : blocks) sum += static_cast<int64_t>(block.bytes);
    return sum;
  }
  int64_t stored_bytes() const {
    int64_t sum = 0;
    for (const SpilledBlock& block : blocks) sum += static_cast<int64_t>(block.stored);
    return sum;
  }
  // Guarded by the engine's mutex:
  size_t handed_in = 0;
  size_t under_way = 0;
  bool copying = false;    // the engine is at the caller's memory
  bool abandoned = false;  // and may not be again
  bool is_asked_for = false;
  bool done = false;
  std::exception_ptr error;
  std::condition_variable changed;
};

class SpillEngine {
 public:
  using Clock = std::chrono::steady_clock;

  // Options that were checked.
  SpillEngine(const SpillFileOptions& options, std::shared_ptr<SpillSpace> space);
  // Waits for what is under way.
  ~SpillEngine();
  SpillEngine(const SpillEngine&) = delete;
  SpillEngine& operator=(const SpillEngine&) = delete;

  void Begin(const std::shared_ptr<SpillRequest>& request);
  // Throws what became of it, kDeadlineExceeded too.
  void Await(const std::shared_ptr<SpillRequest>& request);
  bool IsDone(const SpillRequest& request) const;
  // Its memory is not touched after this.
  void Abandon(SpillRequest& request) noexcept;

  size_t block_bytes() const { return block_bytes_; }
  // Blocks may be packed, and get their places here.
  bool packs() const { return packer_.packs(); }
  void AddTo(SpillFileStats& stats) const;

 private:
  struct Slot {
    std::shared_ptr<SpillRequest> request;  // null: free
    std::byte* data = nullptr;
    size_t block = 0;
    size_t bytes = 0;  // whole pages
    size_t moved = 0;  // of these
    int tries = 0;     // that moved nothing
    Clock::time_point since;
  };

  // With the lock.
  void WaitUntilDone(std::unique_lock<std::mutex>& lock,
                     const std::shared_ptr<SpillRequest>& request);
  void Run() noexcept;
  void RunUntilTheEnd();
  // The thread's own, with the lock.
  bool HandInOne(std::unique_lock<std::mutex>& lock);
  std::shared_ptr<SpillRequest> Next();
  std::optional<FileQueue::Done> WaitForDevice(bool is_under_way);
  // Without the lock.
  void Fill(const Slot& slot, SpilledBlock* block);
  void Empty(const Slot& slot);
  void Finish(std::unique_lock<std::mutex>& lock, const FileQueue::Done& done);
  void Receive(std::unique_lock<std::mutex>& lock, Slot& slot);
  void EndBlock(Slot& slot, std::exception_ptr error) noexcept;
  void EndRequest(SpillRequest& request) noexcept;
  // Of the file and of all files.
  void Count(const SpillRequest& request, const SpillWayCounters& change) noexcept;
  void CountFailure() noexcept;
  void Submit(size_t number);
  [[noreturn]] void ThrowErrorOf(const Slot& slot, int64_t result) const;
  std::string Where(const SpillRequest& request, size_t block) const;

  const std::shared_ptr<SpillSpace> space_;
  const size_t block_bytes_;
  const std::chrono::nanoseconds limit_;  // 0: none
  MemoryOwner& owner_;
  Pages memory_;
  int64_t memory_bytes_ = 0;  // on the ledger
  SpillPacker packer_;        // the thread's own
  std::unique_ptr<FileQueue> queue_;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  std::vector<Slot> slots_;
  std::array<std::deque<std::shared_ptr<SpillRequest>>, 2> waiting_;  // [writes]
  int reads_in_turn_ = 0;
  size_t under_way_ = 0;
  bool ends_ = false;
  std::exception_ptr broken_;    // the queue failed; nothing goes any more
  Clock::time_point last_done_;  // a block
  Clock::time_point busy_since_;
  SpillFileStats stats_;

  std::thread thread_;
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_SPILL_SPILL_ENGINE_H_
