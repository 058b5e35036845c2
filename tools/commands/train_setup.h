// What training on one machine and on many have in common: flags, and what is said of them.
#ifndef TIDEPOOL_TOOLS_COMMANDS_TRAIN_SETUP_H_
#define TIDEPOOL_TOOLS_COMMANDS_TRAIN_SETUP_H_

#include <cstdint>
#include <string>

#include "absl/flags/declare.h"
#include "tidepool/nn/training/updater.h"

ABSL_DECLARE_FLAG(std::string, data);
ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(int, epochs);
ABSL_DECLARE_FLAG(std::string, updater);
ABSL_DECLARE_FLAG(uint64_t, seed);
ABSL_DECLARE_FLAG(bool, graphs);
ABSL_DECLARE_FLAG(std::string, trace_file);
ABSL_DECLARE_FLAG(std::string, memory_log);
ABSL_DECLARE_FLAG(std::string, memory_budget);
ABSL_DECLARE_FLAG(std::string, save);

namespace tidepool::tools {

// Throw kInvalidArgument naming the flag.
nn::UpdaterConfig UpdaterOfFlags();
// Over so many steps.
nn::Schedule ScheduleOfFlags(int64_t steps);
// Flags that only jobs have are not set.
void CheckNoFlagsOfJobs();

// Where the pool got fewer threads than were asked for, and goes on with those.
void TellRefusedThreads();

// train --distributed, as one rank of a job.
int RunTrainDistributed();

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_TRAIN_SETUP_H_
