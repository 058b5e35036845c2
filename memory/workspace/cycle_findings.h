// What a workspace finds wrong when a cycle ends: arrays that outlived it, with where they were made,
// and what the cycle detector compares from cycle to cycle.
//
// Threads: the workspace's; DescribeOrigin() from any.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_FINDINGS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_FINDINGS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/cycle_detector.h"

namespace tidepool {

struct RecordedCycleRequest;

class CycleFindings {
 public:
  // `workspace` is its name and must live as long.
  CycleFindings(const std::string& workspace, bool use_detector)
      : workspace_(workspace), detector_(workspace, use_detector) {}

  CycleDetector& detector() { return detector_; }
  const CycleDetector& detector() const { return detector_; }

  // ---- a cycle ------------------------------------------------------------------------------
  // Whether MemoryTracing was on when it began: then where each request was made is kept; or its
  // requests are recorded (memory/recording).
  void BeginCycle() { watches_ = MemoryTracing::watches(); }
  bool tracing() const { return watches_ != 0; }
  // Memory for the trace of request `slot`. Throws std::bad_alloc.
  void Reserve(uint32_t slot, size_t slots) {
    if (keeps_sites() && slot >= traces_.size()) traces_.resize(slots);
  }
  void Trace(uint32_t slot) {
    if (keeps_sites()) traces_[slot].Capture();
  }
  // Of a cycle that is watched, to who listens.
  void TellRequest(const RecordedCycleRequest& request) const noexcept;
  // A recorded cycle of this owner begins and ends. The end of one that was not told to begin is not told.
  void TellBegin(const MemoryOwner& owner, uint64_t generation) noexcept;
  void TellEnd(const MemoryOwner& owner, uint64_t generation) noexcept;
  // A buffer outlives its cycle: errors that use it will say where it was made, if that was traced.
  void Outlives(const Buffer& buffer) noexcept;
  // And that is a mistake.
  void Leaks(const Buffer& buffer) noexcept;
  // Blocks without records, of containers.
  void LeaksBlocks(int64_t blocks, int64_t bytes) noexcept {
    leaks_.blocks += blocks;
    leaks_.block_bytes += bytes;
  }
  // What was learned could not be made use of, for another reason than lack of memory.
  void CannotLearn(const char* why) noexcept;
  // The record of a buffer that outlived its cycle goes.
  void Forget(const Buffer& buffer) noexcept {
    if (has_origins_.load(std::memory_order_relaxed)) Erase(buffer);
  }

  // ---- the end of a cycle ---------------------------------------------------------------------
  // Whether Report() would find anything to compare or to tell.
  bool HasNews(int64_t spilled_bytes, uint64_t ledger_change) const {
    return leaks_.count > 0 || leaks_.blocks > 0 || !cannot_learn_.empty() ||
           detector_.IsNews(spilled_bytes, ledger_change);
  }
  // Tells the sinks. `memory_device` is the one the workspace's memory is on.
  void Report(uint64_t generation, CycleDetector::Levels levels, Device memory_device) noexcept;

  // For whom and where a buffer that outlived its cycle was made; empty when that is not known.
  std::string DescribeOrigin(const Buffer& buffer) const;
  size_t state_bytes() const { return traces_.capacity() * sizeof(AllocationTrace); }

 private:
  void Erase(const Buffer& buffer) noexcept;
  bool keeps_sites() const { return (watches_ & MemoryTracing::kTraces) != 0; }

  const std::string& workspace_;
  CycleDetector detector_;
  uint8_t watches_ = 0;  // MemoryTracing's when the cycle began
  bool told_begin_ = false;
  std::vector<AllocationTrace> traces_;  // by request number, while tracing
  LeakReport leaks_;                     // of the cycle that ends
  std::string cannot_learn_;             // from it
  // Of buffers that outlived their cycle, by id, while handles of them are left.
  std::map<uint64_t, AllocationTrace> origins_;  // guarded by origins_mutex_
  mutable std::mutex origins_mutex_;
  std::atomic<bool> has_origins_{false};
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_FINDINGS_H_
