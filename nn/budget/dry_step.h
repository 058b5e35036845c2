// Of step_meter.cc and step_times.cc: steps of a network that are run to see what they take.
#ifndef TIDEPOOL_NN_BUDGET_DRY_STEP_H_
#define TIDEPOOL_NN_BUDGET_DRY_STEP_H_

#include <cstdint>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/unbudgeted_owner.h"
#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/nn/budget/step_meter.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

constexpr int kCycles = 4;  // until a step is the same each time

// How a program makes its batch: a step's requests begin with that. Outside: on the heap, before the step, from where what belongs on
// a device is copied in the step. OnDevice: there, before the step.
enum class BatchMade : uint8_t { kFeaturesFirst, kOutside, kOnDevice };
// Those that a network's steps may have.
std::vector<BatchMade> WaysOfBatches(const Network& network);

// The network counts no step. Dry: kernels are off, and features are what the memory has. A batch that is made OnDevice is dry.
void RunStep(Network& network, const StepShape& shape, bool dry,
             BatchMade made = BatchMade::kFeaturesFirst);
// For `owner`, beside the budgets.
void RunDryStep(Network& network, const StepShape& shape, MemoryOwner& owner = OwnerBesideBudgets(),
                BatchMade made = BatchMade::kFeaturesFirst);

// A workspace for dry steps: it costs no memory. Of the host no page of it is touched, and timed steps may run in it; of a device it
// has addresses alone (memory/provider/addresses_only.h).
void RenewWorkspace(Network& network, WorkspaceConfig config,
                    MemoryOwner& owner = OwnerBesideBudgets());
// A training workspace of that configuration, or where it cannot be had one that learns its size: never the one of addresses, where kernels
// of steps have no access.
void RestoreWorkspace(Network& network, const WorkspaceConfig& config) noexcept;
// At its end the network has such a workspace, where it was to be of a device; its first size is learned, as nobody has used it yet.
class RestoredWorkspace {
 public:
  explicit RestoredWorkspace(Network& network)
      : network_(network), config_(network.training_workspace().config()) {}
  ~RestoredWorkspace() {
    WorkspaceConfig config = config_;
    config.initial_size = 0;
    if (network_.device() != Host()) RestoreWorkspace(network_, config);
  }
  RestoredWorkspace(const RestoredWorkspace&) = delete;
  RestoredWorkspace& operator=(const RestoredWorkspace&) = delete;

 private:
  Network& network_;
  const WorkspaceConfig config_;
};

inline void RenewWorkspace(Network& network) {
  RenewWorkspace(network, network.training_workspace().config());
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_DRY_STEP_H_
