// Tidepool's side of train_benchmark.
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_TIDEPOOL_SIDE_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_TIDEPOOL_SIDE_H_

#include <memory>

#include "tidepool/tools/benchmarks/step_server.h"

namespace tidepool::tools {

std::unique_ptr<StepSide> NewTidepoolSide();

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_TIDEPOOL_SIDE_H_
