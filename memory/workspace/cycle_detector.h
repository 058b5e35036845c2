// What goes wrong between cycles, found and reported: arrays that outlive their cycle, memory that
// grows with every cycle, scopes that wind around each other.
//
//   SetLeakSink([](const LeakReport& report) { std::cerr << report.ToString(); });
//
// Leaked arrays and blocks are always counted (WorkspaceStats::leaked_arrays, leaked_blocks); the rest needs use_cycle_detector.
// Without a sink the first finding of a workspace is a line on stderr. A workspace in guard mode
// throws its first finding when it is entered next. The cycle of a ring's batch ends when the batch
// is discarded or its last lease goes; what has no sink, and what guard mode throws, is the first
// finding of the ring, whose slots are one workspace here: opening any of them throws it.
//
// Threads: sinks may be set on any thread and are called on the workspace's, at the end of the cycle,
// when it may not be entered (of a batch: on whichever thread its last lease goes), without locks of
// the runtime held; what they throw is dropped. Cost: some compares per cycle.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_DETECTOR_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_DETECTOR_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/memory/sync/single_writer.h"

namespace tidepool {

// An array that outlived its cycle.
struct LeakedArray {
  uint32_t request = 0;  // its number within the cycle
  size_t bytes = 0;      // of its buffer
  std::string owner;     // "network #layer conv2"; empty without MemoryTracing
  std::string site;      // call stack, innermost first; empty without MemoryTracing
};

// What outlived one cycle.
struct LeakReport {
  std::string workspace;    // its id, or the ring's
  uint64_t generation = 0;  // of the cycle
  int64_t count = 0;        // arrays
  int64_t bytes = 0;        // of these arrays
  // Blocks of containers and raw bytes (memory/pmr), as large as they were served.
  int64_t blocks = 0;
  int64_t block_bytes = 0;
  // The first kMostArrays of them; some, in no order, where requests were not written down because planning waits.
  std::vector<LeakedArray> arrays;

  static constexpr int kMostArrays = 8;  // that are listed
  std::string ToString() const;          // the first line says all but the arrays
};

// What was found.
enum class CycleFindingKind {
  kLeakedArrays,
  kLeakedBlocks,         // of containers (memory/pmr), without arrays
  kReentry,              // entered again from inside another workspace's scope
  kGrowingSpills,        // bytes outside the pages, in each of the last kGrowingCycles cycles
  kGrowingExternal,      // kExternal bytes of the device
  kGrowingUnreferenced,  // pages and kept blocks of the workspace
  kGrowingWorkspaces,    // in the thread's registry
  kNeverLeft,            // destroyed while open
  kCannotLearn,          // an error that is not for want of memory
};
inline constexpr int kGrowingCycles = 8;  // one behind the other, until growth is a finding

// A finding, as sinks get it; lives as long as the call.
struct CycleFinding {
  CycleFindingKind kind;    // what it is about
  std::string workspace;    // its id, or the ring's
  uint64_t generation = 0;  // of the cycle it was found in
  std::string text;         // one line
};

// An empty function: back to stderr.
void SetLeakSink(std::function<void(const LeakReport&)> sink);
// Every finding, leaks too.
void SetCycleFindingSink(std::function<void(const CycleFinding&)> sink);

// What is made of the first finding of a workspace, or of all slots of a ring.
// Threads: any.
class FirstFinding {
 public:
  // True for the first one, which is to be told on stderr when no sink takes it.
  bool Tell() { return !told_.exchange(true, std::memory_order_relaxed); }
  // Keeps the first one for Take().
  void Keep(const std::string& text);
  // It, once; empty when there is none or it was taken.
  std::string Take();

  // Whether Take() would give one.
  bool has() const { return has_.load(std::memory_order_acquire); }

 private:
  std::atomic<bool> told_{false};
  std::atomic<bool> has_{false};
  std::mutex mutex_;
  bool taken_ = false;  // these two guarded by mutex_
  std::string text_;
};

// One workspace's. Used by WorkspaceCore, on the thread that has it open.
class CycleDetector {
 public:
  // What may grow from cycle to cycle.
  struct Levels {
    int64_t spilled = 0;       // bytes outside the pages, in the cycle
    int64_t unreferenced = 0;  // bytes of pages and kept blocks
    int64_t workspaces = 0;    // in the thread's registry
    int64_t external = 0;      // bytes of kExternal on the device
  };

  CycleDetector(const std::string& workspace, bool enabled)
      : workspace_(workspace), enabled_(enabled) {}

  // Tells the sinks; a finding only where the detector is enabled.
  void OnLeaks(const LeakReport& report) noexcept;
  // Whether OnCycleEnd could find anything: with the ledger as it was, only spills may have grown.
  bool IsNews(int64_t spilled, uint64_t ledger_change) const {
    return enabled_ && (ledger_change != ledger_change_ || spilled != last_.spilled || growing_);
  }
  // `ledger_change`: MemoryTracker::changes(); `external()` is asked when that moved.
  template <typename External>
  void OnCycleEnd(uint64_t generation, Levels levels, uint64_t ledger_change,
                  const External& external) noexcept {
    if (!enabled_) return;
    levels.external = ledger_change == ledger_change_ ? last_.external : external();
    ledger_change_ = ledger_change;
    if (levels.spilled <= last_.spilled && levels.unreferenced <= last_.unreferenced &&
        levels.workspaces <= last_.workspaces && levels.external <= last_.external) {
      last_ = levels;
      if (growing_) EndStreaks();
      return;
    }
    Compare(generation, levels);
  }
  // Findings of these kinds. `through`: the workspace in between; `why`: the error's message.
  void OnReentry(uint64_t generation, const std::string& through) noexcept;
  void OnNeverLeft(uint64_t generation) noexcept;
  void OnCannotLearn(uint64_t generation, const std::string& why) noexcept;

  uint64_t findings() const { return findings_; }  // from any thread

  // Its own, or the one that it shares.
  FirstFinding& first() { return *first_; }
  // Another's from here on, which lives as long: before the first cycle.
  void ShareFirst(FirstFinding& first) { first_ = &first; }

 private:
  void Compare(uint64_t generation, const Levels& levels) noexcept;
  void EndStreaks() noexcept;
  void Find(CycleFindingKind kind, uint64_t generation, std::string text) noexcept;

  const std::string& workspace_;
  const bool enabled_;
  Levels last_;
  uint64_t ledger_change_ = 0;
  bool growing_ = false;
  int streaks_[4] = {};
  SingleWriter<uint64_t> findings_;
  FirstFinding own_first_;
  FirstFinding* first_ = &own_first_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_DETECTOR_H_
