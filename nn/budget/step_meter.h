// What a training step of a network takes: by dry runs (KernelsOffScope) in its own training workspace, which has learned the
// step's plan afterwards, and by the clock. Dry steps take addresses, which are on the ledger as "dry runs" and in no budget (memory/accounting/unbudgeted_owner.h).
#ifndef TIDEPOOL_NN_BUDGET_STEP_METER_H_
#define TIDEPOOL_NN_BUDGET_STEP_METER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/budget/activation_problem.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/activation_plan.h"

namespace tidepool::nn {

class Trainer;

// Batches that steps are given, and what becomes of their gradients.
struct StepShape {
  int64_t batch = 1;  // examples of the largest batch
  // Of other batches that will come, as an epoch's last one is: what they take is planned too, so that they keep to the budget from
  // their first coming on. Others are planned when they have come.
  std::vector<int64_t> other_batches = {};
  // Shape of an example's labels and their type, one for each array that the loss takes. Steps that are measured have zeros there, or
  // what the network's Loss takes instead (Loss::WriteSomeLabels).
  std::vector<InputConfig> labels = {{"label", {}, DType::kInt64}};
  // Of a loss that is a program's function and does not take zeros: writes what it takes into the labels of that number, zeros of any
  // batch on the heap. It is called before each step that is measured, for all labels; what it throws ends the measuring. None: as above.
  std::function<void(size_t number, NDArray& labels)> write_labels = nullptr;
  // Of masks of features, by input, and of labels, by output (NetworkInputs): shape of an example's ({length}) and the mask's own
  // type; none for what has none, or fewer.
  std::vector<std::optional<InputConfig>> features_masks = {}, labels_masks = {};
  // Who updates the parameters in the step, of the same network; it outlives what the shape is given to. Arrays that it makes there (norms that
  // gradients are clipped by, marks of a loss scale) are in the plan then, and a step that it has captured goes for each plan. Null: it
  // makes none, and captures none.
  const Trainer* trainer = nullptr;
};

struct StepMemory {
  int64_t live_bytes = 0;       // most bytes alive at once
  int64_t planned_bytes = 0;    // the workspace's planned peak
  int64_t requested_bytes = 0;  // sum of all requests
  // What a limit of MemoryBudget counts beside it: pages to the end of the last one, and the tape's records, which are the host's (0 for
  // networks of devices).
  int64_t tail_bytes = 0, tape_bytes = 0;
};

// By dry steps, in a workspace of its own that costs no memory. Places are searched for where the first ones are beyond
// `limit` and what is alive is not, with tape and tail where `counts_all`. Throws as SetActivationPlan and steps do.
StepMemory MeasureStep(Network& network, const StepShape& shape, const ActivationPlan& plan,
                       const std::shared_ptr<SpillFile>& file, int64_t limit,
                       bool counts_all = false);
// The same, and the network has the plan and a workspace of that configuration from here on, which has learned it and takes no
// memory before the first step. The search for better places is waited for, a step's batch may be made features first, labels first
// or outside of the workspace, of a network of a device also there; the first of these is returned, the second takes as much, the
// third less.
StepMemory PrepareStep(Network& network, const StepShape& shape, const ActivationPlan& plan,
                       const std::shared_ptr<SpillFile>& file, const WorkspaceConfig& config);

// All of the problem but for times and the file. Everything is kept afterwards.
ActivationProblem MeasureActivations(Network& network, const StepShape& shape);

// Times of layers, in the order of their calls, with the loss behind them.
struct StepTimes {
  std::vector<double> forward_seconds, backward_seconds;
  std::vector<double> remake_seconds;  // empty where no layer can
  std::vector<double> again_seconds;   // of layers alone, as LayerActivations has them
  // Of the problem's slices that are smaller than the batch: forwards and of gradients, times those of the whole batch.
  std::vector<std::pair<double, double>> slice_factors;
  int64_t batch =
      0;  // that they were measured with; they are those of the shape's batch all the same
};
// Runs steps whose layers keep nothing but their inputs, with fewer examples where their planned peak would be more than `limit`, and
// others in which a part of the layers keeps all, each once, where an eighth of them may. Gradients are those of numbers at random
// afterwards; parameters, running averages and random numbers stay, and no page of the steps does.
StepTimes MeasureTimes(Network& network, const StepShape& shape, const ActivationProblem& problem,
                       int64_t limit);

// Each layer by itself, in that way.
ActivationPlan PlanOfLayers(const Network& network, Retention retention);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_STEP_METER_H_
