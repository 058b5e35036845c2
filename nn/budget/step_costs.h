// Of step_budget.cc: what the parts of a step cost, by what is given and by the clock.
#ifndef TIDEPOOL_NN_BUDGET_STEP_COSTS_H_
#define TIDEPOOL_NN_BUDGET_STEP_COSTS_H_

#include <cstdint>

#include "tidepool/memory/device.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/nn/budget/activation_problem.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/budget/step_meter.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// Throws kInvalidArgument, which names the field, for numbers that are no costs of that network.
void CheckCosts(const Network& network, const StepCosts& costs);
// Those that were checked.
void TakeGivenCosts(const StepCosts& costs, ActivationProblem* problem);

// Takes times of steps within `limit`, and returns with what batch. 0: not even one example fits into the budgets there are, so that
// all layers cost the same.
int64_t TakeTimes(Network& network, const StepShape& shape, int64_t limit,
                  ActivationProblem* problem);
// The file's speed, by so many bytes that are written and read.
void MeasureFile(SpillFile& file, int64_t bytes, ActivationProblem* problem);

// The speed of copies between `device` and the host's memory in which its arrays wait, by an array of so many bytes there. As it was where
// there is no memory for that.
void MeasureHostCopies(Device device, int64_t bytes, ActivationProblem* problem);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_STEP_COSTS_H_
