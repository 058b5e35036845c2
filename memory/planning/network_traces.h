// Cycles of networks, for tests and benchmarks of planning and allocation: what one training step
// requests and when it lets go.
//
// mlp and lenet (testdata/traces) are recorded: `tidepool train --model lenet --batch 64
// --trace_file lenet.csv`. The residual net and the LSTM follow from the shapes of their layers:
// forward keeps what backward needs, each operator has scratch, each gradient lives until the
// layer before has used it.
#ifndef TIDEPOOL_MEMORY_PLANNING_NETWORK_TRACES_H_
#define TIDEPOOL_MEMORY_PLANNING_NETWORK_TRACES_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool {

// Lifetimes are counted in requests. f32.
// ResNet-18's blocks for 32x32 images: four stages of two blocks, 64 to 512 channels, NHWC.
std::vector<LifetimeBuffer> ResidualNetTrace(int64_t batch);
// Two layers of `units` over `steps` time steps, gates kept, gradients in reverse.
std::vector<LifetimeBuffer> LstmTrace(int64_t batch, int64_t units, int64_t steps);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PLANNING_NETWORK_TRACES_H_
