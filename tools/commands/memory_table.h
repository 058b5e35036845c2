// The memory table that training ends with.
#ifndef TIDEPOOL_TOOLS_COMMANDS_MEMORY_TABLE_H_
#define TIDEPOOL_TOOLS_COMMANDS_MEMORY_TABLE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/workspace/workspace.h"

namespace tidepool::tools {

// What steps asked of the system, each counted around the step alone.
class StepCounters {
 public:
  // Switches the counting of memory system calls on.
  void Start();
  void BeginStep();
  void EndStep();
  // "steps counted, tensor allocations, page faults, memory system calls", in all and per step.
  // `which`: the steps that were counted.
  std::string Report(const char* which = "after the first two") const;

  int64_t steps() const { return steps_; }
  int64_t allocations() const { return allocations_; }
  int64_t faults() const { return faults_; }
  int64_t system_calls() const { return system_calls_; }  // -1: not counted here

 private:
  int64_t steps_ = 0, allocations_ = 0, faults_ = 0, system_calls_ = 0;
  int64_t allocations_before_ = 0, faults_before_ = 0, system_calls_before_ = 0;
  std::string why_not_;
};

// One block per device with its kinds, one line per workspace.
std::string MemoryTable(const std::vector<const Workspace*>& workspaces);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_MEMORY_TABLE_H_
