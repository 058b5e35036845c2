// Tidepool's side of train_benchmark.
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_TIDEPOOL_SIDE_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_TIDEPOOL_SIDE_H_

#include <memory>

#include "tidepool/memory/device.h"
#include "tidepool/tools/benchmarks/step_server.h"

namespace tidepool::tools {

// Trains on `device`, by captured graphs if `graphs` (a device that has them).
std::unique_ptr<StepSide> NewTidepoolSide(Device device, bool graphs);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_TIDEPOOL_SIDE_H_
