// What training on one machine and on many have in common: flags, and what is said of them.
#ifndef TIDEPOOL_TOOLS_COMMANDS_TRAIN_SETUP_H_
#define TIDEPOOL_TOOLS_COMMANDS_TRAIN_SETUP_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/flags/declare.h"
#include "tidepool/memory/device.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/training/updater.h"

ABSL_DECLARE_FLAG(std::string, data);
ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(int, epochs);
ABSL_DECLARE_FLAG(std::string, updater);
ABSL_DECLARE_FLAG(uint64_t, seed);
ABSL_DECLARE_FLAG(bool, graphs);
ABSL_DECLARE_FLAG(std::string, trace_file);
ABSL_DECLARE_FLAG(std::string, memory_log);
ABSL_DECLARE_FLAG(std::string, memory_profile);
ABSL_DECLARE_FLAG(std::string, memory_budget);
ABSL_DECLARE_FLAG(std::string, budget_strategy);
ABSL_DECLARE_FLAG(std::string, spill_folder);
ABSL_DECLARE_FLAG(std::string, spill_compression);
ABSL_DECLARE_FLAG(std::string, save);

namespace tidepool::tools {

// Throw kInvalidArgument naming the flag.
nn::UpdaterConfig UpdaterOfFlags();
// Over so many steps.
nn::Schedule ScheduleOfFlags(int64_t steps);
// Of batches; 0: none.
int PrefetchOfFlags();
// Flags that only jobs have are not set.
void CheckNoFlagsOfJobs();

// `batches`, or with a prefetch `ahead`, which makes them ahead from where they are.
nn::DataSetIterator& MadeAhead(nn::ImageBatches& batches, int prefetch, Device device,
                               std::optional<nn::AsyncDataSetIterator>& ahead);

// Where the pool got fewer threads than were asked for, and goes on with those.
void TellRefusedThreads();

// train --distributed, as one rank of a job.
int RunTrainDistributed();

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_COMMANDS_TRAIN_SETUP_H_
