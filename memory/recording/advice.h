// What a workspace would do for a recorded program, and which one: an advice for each kind of cycle.
//
//   const Advice advice = Advise(ReadRecord("trace.rec"));
//   std::fputs(advice.ToString().c_str(), stdout);
//
// Cycles are those of recorded_cycles.h. What is said of bytes is computed from the record; what time
// it takes is for replay.h to measure.
//
// Threads: values. Cost: MatchBlocks, FindCycles and a greedy plan for each kind of cycle.
#ifndef TIDEPOOL_MEMORY_RECORDING_ADVICE_H_
#define TIDEPOOL_MEMORY_RECORDING_ADVICE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

// Of the cycles of one name; of one thread, where they were found by their period.
struct CycleAdvice {
  // What a workspace is of use for.
  enum class Use : uint8_t {
    kPlans,       // arrays, one kind of cycle: WorkspaceConfig::Training()
    kManyPlans,   // arrays, a plan for each kind: WorkspaceConfig::Inference()
    kContainers,  // cycles that are never the same, or of small blocks: memory/pmr, nothing planned
    kNothing,     // too few cycles, or hardly anything ends with them
  };
  std::string name;                 // empty: found by its period
  uint32_t thread = 0;              // of one thread's: which; else 0
  uint64_t cycles = 0;              // how many there were
  uint64_t kinds = 0;               // of cycles: the same sizes in the same order
  uint64_t cycles_that_repeat = 0;  // those of kinds that came more than once
  uint64_t requests = 0;            // of all its cycles
  uint64_t requests_within = 0;     // released in the cycle that made them
  uint64_t outliving = 0;           // the others
  uint64_t outliving_bytes = 0;     // of the others, as asked for
  uint64_t small_requests = 0;      // of up to 512 bytes, among requests_within
  // Of the cycle with the most of each, requests rounded up to 64 bytes:
  uint64_t requested_bytes = 0;  // what one behind the other would take
  uint64_t live_bound = 0;       // alive at once: no placement takes less
  uint64_t planned_bytes = 0;    // by a greedy plan

  // What that comes to.
  Use use = Use::kNothing;
  WorkspaceConfig config;         // of kPlans, kManyPlans, kContainers
  std::vector<std::string> code;  // lines to paste
  std::string why;                // in a line
};

// Of a whole record.
struct Advice {
  uint64_t threads = 0, requests = 0, cycles = 0;  // how many there were
  uint64_t live_bound = 0;                         // the most bytes that were alive at once
  uint64_t outside = 0;                            // requests that no cycle made
  bool by_marks = false;               // cycles are those that the program marked, as workspaces do
  uint32_t period = 0;                 // allocations, where not by marks
  std::vector<CycleAdvice> of_cycles;  // most requests first

  std::string ToString() const;        // some lines for each kind of cycle
  void AddTo(JsonWriter& json) const;  // members of an object
};

// Throws what planning does: std::bad_alloc.
Advice Advise(const Record& record);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RECORDING_ADVICE_H_
