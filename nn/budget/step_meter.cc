#include "tidepool/nn/budget/step_meter.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/nn/budget/dry_step.h"
#include "tidepool/nn/budget/passed_plans.h"
#include "tidepool/nn/budget/step_trace.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {

ActivationPlan PlanOfLayers(const Network& network, Retention retention) {
  return {.segments = std::vector<ActivationSegment>(network.config()->nodes.size(),
                                                     ActivationSegment{1, retention})};
}

namespace {

StepMemory MemoryOf(Network& network) {
  const WorkspaceStats stats = network.training_workspace().stats();
  return {.live_bytes = static_cast<int64_t>(stats.live_lower_bound_bytes),
          .planned_bytes = static_cast<int64_t>(stats.planned_peak_bytes),
          .requested_bytes = static_cast<int64_t>(stats.requested_bytes)};
}

// Of a step whose workspace and tape are charged to `owner` alone, as budgets count. The tape has all that it took since it was
// released, which is what the first step behind takes.
void AddBeside(Network& network, const StepShape& shape, MemoryOwner& owner, StepMemory* memory) {
  Workspace& workspace = network.training_workspace();
  workspace.Trim();  // blocks that learning cycles took are in no later one
  RunDryStep(network, shape, owner);
  const MemoryBudget& budget = MemoryBudget::Global();
  const Device device = network.device();
  const int64_t pages = budget.Of(workspace.core()->memory_owner, device).taken_bytes;
  *memory = MemoryOf(network);  // better places may have been found meanwhile
  memory->tail_bytes = std::max<int64_t>(0, pages - memory->planned_bytes);
  if (device == Host())  // where the tape is
    memory->tape_bytes = std::max<int64_t>(0, budget.Of(owner, device).taken_bytes - pages);
}

// An owner for dry steps alone: others measure theirs on other threads, and the workspaces of networks that were measured
// are charged where they were. Nodes are used again, as whatever is made in a step leaves some below them for ever.
class DryOwner {
 public:
  explicit DryOwner(Device device) : number_(Take(device)), node_(NodeOf(number_)) {}
  ~DryOwner() {
    const std::lock_guard<std::mutex> lock(Mutex());
    InUse().erase(number_);
  }
  DryOwner(const DryOwner&) = delete;
  DryOwner& operator=(const DryOwner&) = delete;
  MemoryOwner& operator*() const { return node_; }

 private:
  static std::mutex& Mutex() {
    static auto* const mutex = new std::mutex;
    return *mutex;
  }
  static std::set<int>& InUse() {
    static auto* const in_use = new std::set<int>;
    return *in_use;
  }
  static MemoryOwner& NodeOf(int number) {
    return OwnerBesideBudgets().Child(absl::StrCat("step ", number));
  }
  // The first that nobody uses and nothing is charged to.
  static int Take(Device device) {
    const std::lock_guard<std::mutex> lock(Mutex());
    const auto is_free = [device](int number) {
      const MemoryOwner& node = NodeOf(number);
      const MemoryBudget& budget = MemoryBudget::Global();
      return node.is_shared() ||
             (budget.Of(node, Host()).taken_bytes == 0 && budget.Of(node, device).taken_bytes == 0);
    };
    int number = 1;
    while (InUse().contains(number) || !is_free(number)) ++number;
    InUse().insert(number);
    return number;
  }

  const int number_;
  MemoryOwner& node_;
};

// Batches of the other sizes, in the workspace that knows the largest, within its pages as far as they fit: plans that begin alike are
// made for each other there.
void LearnOthers(Network& network, const StepShape& shape, MemoryOwner& owner,
                 absl::Span<const BatchMade> ways, StepMemory* memory) {
  if (shape.other_batches.empty()) return;
  network.training_workspace().core()->KeepWithinPages();
  StepShape other = shape;
  for (const BatchMade made : ways) {
    for (const int64_t batch : shape.other_batches) {
      other.batch = batch;
      for (int i = 0; i < kCycles; ++i) RunDryStep(network, other, owner, made);
      memory->planned_bytes = std::max(memory->planned_bytes, MemoryOf(network).planned_bytes);
    }
  }
  RunDryStep(network, shape, owner);  // which is expected first
}

// A step's requests begin with those of who makes its batch. The workspace learns steps that make features first, as is expected,
// and those whose batch comes from elsewhere, which may be planned around the others, and take more than them. (Other orders: OrdersOf.)
StepMemory LearnStep(Network& network, const StepShape& shape, MemoryOwner& owner) {
  int64_t planned = 0;
  for (const BatchMade made : WaysOfBatches(network)) {
    for (int i = 0; i < kCycles; ++i) RunDryStep(network, shape, owner, made);
    network.training_workspace().FinishPlanSearch();
    RunDryStep(network, shape, owner, made);
    planned = std::max(planned, MemoryOf(network).planned_bytes);
  }
  RunDryStep(network, shape, owner);
  StepMemory memory = MemoryOf(network);
  memory.planned_bytes = std::max(memory.planned_bytes, planned);
  return memory;
}

}  // namespace

StepMemory MeasureStep(Network& network, const StepShape& shape, const ActivationPlan& plan,
                       const std::shared_ptr<SpillFile>& file, int64_t limit, bool counts_all) {
  network.SetActivationPlan(plan, file);
  network.ReleaseTape();
  const RestoredWorkspace restored(network);
  const DryOwner owner(network.device());
  const absl::Cleanup release = [&] { network.ReleaseTape(); };  // its records are that owner's
  RenewWorkspace(network, network.training_workspace().config(), *owner);
  for (int i = 0; i < kCycles; ++i) RunDryStep(network, shape, *owner);
  StepMemory memory;
  AddBeside(network, shape, *owner, &memory);
  const int64_t tape = counts_all ? memory.tape_bytes : 0,
                tail = counts_all ? memory.tail_bytes : 0;
  if (memory.planned_bytes + tape + tail > limit && memory.live_bytes + tape <= limit) {
    network.training_workspace().FinishPlanSearch();
    RunDryStep(network, shape, *owner);
    AddBeside(network, shape, *owner, &memory);
  }
  if (memory.planned_bytes <= limit) {
    LearnOthers(network, shape, *owner, {BatchMade::kFeaturesFirst}, &memory);
  }
  return memory;
}

StepMemory PrepareStep(Network& network, const StepShape& shape, const ActivationPlan& plan,
                       const std::shared_ptr<SpillFile>& file, const WorkspaceConfig& config) {
  network.SetActivationPlan(plan, file);
  network.ReleaseTape();
  const DryOwner owner(network.device());
  const absl::Cleanup release = [&] { network.ReleaseTape(); };
  RenewWorkspace(network, config, *owner);
  StepMemory memory = LearnStep(network, shape, *owner);
  const int64_t planned = memory.planned_bytes;
  AddBeside(network, shape, *owner, &memory);
  memory.tail_bytes -=
      std::min(memory.tail_bytes, std::max<int64_t>(0, planned - memory.planned_bytes));
  memory.planned_bytes = std::max(memory.planned_bytes, planned);
  const std::vector<BatchMade> ways = WaysOfBatches(network);
  LearnOthers(network, shape, *owner, ways, &memory);
  if (PassPlansOn(network, shape, config)) return memory;
  network.set_training_workspace(network.training_mode(), config);
  StepMemory learned = LearnStep(network, shape, MemoryOwner::Current());
  LearnOthers(network, shape, MemoryOwner::Current(), ways, &learned);
  memory.live_bytes = learned.live_bytes;
  memory.planned_bytes = learned.planned_bytes;
  memory.requested_bytes = learned.requested_bytes;
  return memory;
}

namespace {

ActivationProblem MeasureWhole(Network& network, StepShape shape) {
  const RestoredWorkspace restored(network);
  shape.trainer = nullptr;  // what it makes is behind all layers
  StepTrace trace(network);
  network.SetActivationPlan(PlanOfLayers(network, Retention::kKeep), nullptr, &trace);
  const absl::Cleanup forget = [&] { network.SetActivationPlan({}); };
  RenewWorkspace(network);
  for (int i = 0; i < kCycles; ++i) RunDryStep(network, shape);
  trace.BeginCycle();
  RunDryStep(network, shape);
  trace.EndCycle();
  return trace.Problem();
}

// Numbers chains of layers that can be sliced; of how many examples all of them can, 0: there is none.
int64_t FindChains(Network& network, ActivationProblem* problem) {
  const auto layers = static_cast<int>(problem->layers.size());
  const std::vector<LayerParameters> parameters = network.trained_by_layer();
  const auto alignment = static_cast<int64_t>(network.training_workspace().core()->alignment());
  int64_t examples = 0;
  int chains = 0;
  for (int begin = 0; begin < layers;) {
    int length = 0;
    int64_t of_chain = 0;
    while (begin + length < layers) {
      const int64_t longer = network.SliceOf(begin, length + 1);
      if (longer == 0) break;
      of_chain = longer;
      ++length;
    }
    for (int i = begin; i < begin + length; ++i) {
      LayerActivations& layer = problem->layers[static_cast<size_t>(i)];
      layer.chain = chains;
      for (const int p : parameters[static_cast<size_t>(i)].parameters) {
        const NDArray& value = network.named_parameters()[static_cast<size_t>(p)].value;
        layer.parameter_bytes += AlignedSize(
            value.NumElements() * static_cast<int64_t>(DTypeBytes(value.dtype())), alignment);
      }
    }
    if (length > 0) {
      ++chains;
      examples = examples == 0 ? of_chain : std::lcm(examples, of_chain);
    }
    begin += std::max(length, 1);
  }
  return examples;
}

}  // namespace

ActivationProblem MeasureActivations(Network& network, const StepShape& shape) {
  ActivationProblem problem = MeasureWhole(network, shape);
  constexpr int kSizes = 3;  // of slices, each twice the one before
  int64_t examples = FindChains(network, &problem);
  for (int k = 0; k < kSizes && examples > 0 && examples < shape.batch; ++k, examples *= 2) {
    StepShape slice = shape;
    slice.batch = examples;
    ActivationProblem of_slice = MeasureWhole(network, slice);
    if (of_slice.arrays.size() != problem.arrays.size()) break;  // a step of so few is another one
    SlicedActivations sliced{.examples = examples, .layers = std::move(of_slice.layers)};
    for (const ActivationArray& array : of_slice.arrays) sliced.array_bytes.push_back(array.bytes);
    problem.slices.push_back(std::move(sliced));
  }
  return problem;
}

}  // namespace tidepool::nn
