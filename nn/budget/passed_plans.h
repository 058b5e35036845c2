// Of step_meter.cc and step_times.cc: what a workspace has learned by dry steps goes to the one in which steps are done.
#ifndef TIDEPOOL_NN_BUDGET_PASSED_PLANS_H_
#define TIDEPOOL_NN_BUDGET_PASSED_PLANS_H_

#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/nn/budget/step_meter.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// The network's training workspace is another one, of that configuration: it has what the one before has learned, whatever order a
// batch's arrays are made in, and no memory yet. It is charged to MemoryOwner::Current(). False: there is no folder for the file by
// which plans are passed on, and the workspace is the one before. Throws as Workspace does.
bool PassPlansOn(Network& network, const StepShape& shape, const WorkspaceConfig& config);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_PASSED_PLANS_H_
