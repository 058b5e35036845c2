// Runs a record again on another allocator: the same requests on as many threads, each in its own
// order; a block that another thread releases is waited for, and a cycle ends when all of its blocks
// were released that the record has released in it. No other order between threads is kept, so what
// was bounded by waiting may run ahead.
//
//   const ReplayScript script(ReadRecord("trace.rec"));
//   const ReplayResult result = Replay(script, "workspace", {.runs = 5});
//   std::printf("%.3f ms\n", result.runs[0].seconds * 1e3);
//
// Each run is in a process of its own (fork), so the caller has no other threads. One byte of each page
// of a block is written, as a program does.
//
// Allocators: "workspace" (//memory/workspace: cycles of the record are its cycles, what outlives them
// and what is made outside of them is on the heap), "raw" (the same as bytes without records, memory/pmr),
// "pool" (memory/resource/pool.h, one for all threads, under a lock), "heap" (NewHeapBuffer), and
// general ones of the machine: "glibc", "tcmalloc", "mimalloc", "jemalloc".
#ifndef TIDEPOOL_MEMORY_RECORDING_REPLAY_H_
#define TIDEPOOL_MEMORY_RECORDING_REPLAY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/recorded_blocks.h"
#include "tidepool/memory/recording/recorded_cycles.h"

namespace tidepool {

inline constexpr uint32_t kMostReplayThreads = 1024;  // of a record that can be replayed

// What the threads of a replay do.
class ReplayScript {
 public:
  // One thing that a thread does.
  struct Step {
    // As RecordEvent::What.
    enum class What : uint8_t { kAllocate, kFree, kCycleBegin, kCycleEnd };
    What what;       // to do
    uint32_t index;  // of the block or the cycle
  };
  // One request.
  struct Block {
    uint64_t bytes;          // as asked for
    uint8_t alignment_log2;  // 0: none was asked for
    bool in_cycle;           // released in the cycle that made it
    uint32_t wakes;          // the cycle that waits for its release on another thread; kNone
  };
  // One cycle, on one thread.
  struct Cycle {
    uint32_t name;         // index into names()
    uint32_t other_frees;  // blocks of it that other threads release
    size_t alignment;      // of its blocks, 64 at least, as far as workspaces have it
  };
  static constexpr uint32_t kNone = UINT32_MAX;  // no cycle

  // Throws kResourceExhausted for more than kMostReplayThreads threads, or a record that had more
  // alive at once than half of the machine's memory.
  explicit ReplayScript(const Record& record);

  // Steps of each thread in their order, and what they name; how many events the record had.
  const std::vector<std::vector<Step>>& threads() const { return threads_; }
  const std::vector<Block>& blocks() const { return blocks_; }
  const std::vector<Cycle>& cycles() const { return cycles_; }
  const std::vector<std::string>& names() const { return names_; }
  uint64_t events() const { return events_; }
  uint64_t live_bound() const { return live_bound_; }  // without what was there before
  uint64_t left_open() const { return left_open_; }    // blocks that nobody releases

  // Cycles are those that the program marked; else they were found by their period.
  bool cycles_by_marks() const { return by_marks_; }

 private:
  std::vector<std::vector<Step>> threads_;
  std::vector<Block> blocks_;
  std::vector<Cycle> cycles_;
  std::vector<std::string> names_;
  uint64_t events_ = 0, live_bound_ = 0, left_open_ = 0;
  bool by_marks_ = false;
};

// What one run took.
struct ReplayRun {
  double seconds = 0;  // from when all threads are ready until the last is done
  // The most memory the process had beyond what it had before; on a device what its ledger had.
  int64_t peak_bytes = 0;

  int64_t page_faults = 0;                   // of the process
  int64_t refused = 0;                       // requests
  int64_t hits = 0, misses = 0, spills = 0;  // of workspaces
  int64_t plans = 0;                         // that they made
};

// What Replay() measured.
struct ReplayResult {
  std::string allocator;        // as it was asked for
  std::string absent;           // why it is not there; then there are no runs
  std::vector<ReplayRun> runs;  // by time, the shortest first
  // Of all threads, of one further run, as StartCountingMemorySystemCalls; below 0: not counted, `why`.
  int64_t system_calls = -1;
  std::string why;
  // Of that run too: what begins and ends of cycles took that made a plan, summed over threads. Below 0: not measured.
  double planning_seconds = -1;

  // By time. Only where there are runs.
  const ReplayRun& median() const { return runs[runs.size() / 2]; }
};

// How to measure.
struct ReplayOptions {
  int runs = 5;                    // at least 1
  Device device = Host();          // of workspace, pool and heap; others are the host's
  bool count_system_calls = true;  // by one further run, which also tells what planning takes
};

// Names of all allocators there are anywhere.
std::vector<std::string> ReplayAllocators();
// Throws kInvalidArgument for a name that is none of them, kInternal when a run ends before its time.
ReplayResult Replay(const ReplayScript& script, const std::string& allocator,
                    const ReplayOptions& options = {});

// In this process, with threads of its own: one run. For tests and for who measures otherwise.
ReplayRun ReplayHere(const ReplayScript& script, const std::string& allocator, Device device);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RECORDING_REPLAY_H_
