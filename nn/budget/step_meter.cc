#include "tidepool/nn/budget/step_meter.h"

#include <stdlib.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/plan_file.h"
#include "tidepool/memory/workspace/plan_set.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/nn/budget/dry_step.h"
#include "tidepool/nn/budget/step_trace.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {
namespace {

// The plan of the same step whose batch of so many arrays is made in the opposite order: the same places. Null: they do not stay to
// the end, or it is the same order.
std::shared_ptr<const CyclePlan> InOppositeOrder(PlacedRequests placed, size_t arrays) {
  const auto end = static_cast<int64_t>(placed.requests.size());
  if (arrays < 2 || placed.requests.size() < arrays) return nullptr;
  for (size_t i = 0; i < arrays; ++i) {
    if (placed.requests[i].upper < end) return nullptr;
  }
  bool differs = false;
  for (size_t i = 0, j = arrays - 1; i < j; ++i, --j) {
    differs = differs || placed.requests[i].size != placed.requests[j].size;
    std::swap(placed.requests[i].size, placed.requests[j].size);
    std::swap(placed.offsets[i], placed.offsets[j]);
  }
  if (!differs) return nullptr;
  placed.pins.clear();
  return MakeCyclePlan(std::move(placed), SIZE_MAX);
}

// Adds that to a file of plans, whose first one is of features first.
void AddOppositeOrder(const std::string& path, size_t arrays, size_t alignment) {
  ParsedPlans parsed = ReadPlans(path, alignment);
  if (parsed.cycles.empty()) return;
  const std::shared_ptr<const CyclePlan> opposite = InOppositeOrder(parsed.cycles[0], arrays);
  if (opposite == nullptr) return;
  std::vector<std::shared_ptr<LearnedCycle>> cycles;
  for (PlacedRequests& cycle : parsed.cycles)
    cycles.push_back(std::make_shared<LearnedCycle>(MakeCyclePlan(std::move(cycle), SIZE_MAX)));
  cycles.push_back(std::make_shared<LearnedCycle>(opposite));
  AtomicFile file(path);
  file.Append(FormatPlans(cycles, alignment));
  file.Commit();
}

// A workspace of that configuration has what the one before has learned, and no memory yet. False: there is no folder for the file.
bool PassPlansOn(Network& network, const StepShape& shape, const WorkspaceConfig& config) {
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error) / "tidepool_plans_XXXXXX";
  if (error || mkdtemp(folder.data()) == nullptr) return false;
  const absl::Cleanup remove = [&] { std::filesystem::remove_all(folder, error); };
  const std::string path = folder + "/plans";
  try {
    network.training_workspace().SavePlans(path);
    AddOppositeOrder(path, network.inputs().size() + shape.labels.size(),
                     network.training_workspace().config().alignment);
  } catch (const Error&) {
    return false;
  }
  network.set_training_workspace(network.training_mode(), config);
  network.training_workspace().LoadPlans(path);  // but one that no budget has room for
  return true;
}

}  // namespace

ActivationPlan PlanOfLayers(const Network& network, Retention retention) {
  return {.segments = std::vector<ActivationSegment>(network.config()->nodes.size(),
                                                     ActivationSegment{1, retention})};
}

namespace {

StepMemory MemoryOf(Network& network) {
  const WorkspaceStats stats = network.training_workspace().stats();
  return {.live_bytes = static_cast<int64_t>(stats.live_lower_bound_bytes),
          .planned_bytes = static_cast<int64_t>(stats.planned_peak_bytes)};
}

// Of a step whose workspace and tape are charged to `owner` alone, as budgets count.
void AddBeside(Network& network, const StepShape& shape, MemoryOwner& owner, StepMemory* memory) {
  Workspace& workspace = network.training_workspace();
  workspace.Trim();  // blocks that learning cycles took are in no later one
  RunDryStep(network, shape, owner);
  const MemoryBudget& budget = MemoryBudget::Global();
  const int64_t pages = budget.Of(workspace.core()->memory_owner, Host()).taken_bytes;
  memory->tail_bytes = std::max<int64_t>(0, pages - MemoryOf(network).planned_bytes);
  memory->tape_bytes = std::max<int64_t>(0, budget.Of(owner, Host()).taken_bytes - pages);
}

// An owner for dry steps alone: others measure theirs on other threads, and the workspaces of networks that were measured
// are charged where they were. Nodes are used again, as whatever is made in a step leaves some below them for ever.
class DryOwner {
 public:
  DryOwner() : number_(Take()), node_(NodeOf(number_)) {}
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
  static int Take() {
    const std::lock_guard<std::mutex> lock(Mutex());
    const auto is_free = [](int number) {
      const MemoryOwner& node = NodeOf(number);
      return node.is_shared() || MemoryBudget::Global().Of(node, Host()).taken_bytes == 0;
    };
    int number = 1;
    while (InUse().contains(number) || !is_free(number)) ++number;
    InUse().insert(number);
    return number;
  }

  const int number_;
  MemoryOwner& node_;
};

// A step's requests begin with those of who makes its batch. The workspace learns steps that make features first, as is expected,
// and those whose batch comes from elsewhere, which may be planned around the others. (Labels first: InOppositeOrder.)
StepMemory LearnStep(Network& network, const StepShape& shape, MemoryOwner& owner) {
  const auto learn = [&](BatchMade made) {
    for (int i = 0; i < kCycles; ++i) RunDryStep(network, shape, owner, made);
    network.training_workspace().FinishPlanSearch();
    RunDryStep(network, shape, owner, made);
  };
  learn(BatchMade::kFeaturesFirst);
  learn(BatchMade::kOutside);
  RunDryStep(network, shape, owner);
  return MemoryOf(network);
}

}  // namespace

StepMemory MeasureStep(Network& network, const StepShape& shape, const ActivationPlan& plan,
                       const std::shared_ptr<SpillFile>& file, int64_t limit) {
  network.SetActivationPlan(plan, file);
  network.ReleaseTape();
  const DryOwner owner;
  const absl::Cleanup release = [&] { network.ReleaseTape(); };  // its records are that owner's
  RenewWorkspace(network, network.training_workspace().config(), *owner);
  for (int i = 0; i < kCycles; ++i) RunDryStep(network, shape, *owner);
  StepMemory memory = MemoryOf(network);
  if (memory.planned_bytes > limit && memory.live_bytes <= limit) {
    network.training_workspace().FinishPlanSearch();
    RunDryStep(network, shape, *owner);
    memory = MemoryOf(network);
  }
  AddBeside(network, shape, *owner, &memory);
  return memory;
}

StepMemory PrepareStep(Network& network, const StepShape& shape, const ActivationPlan& plan,
                       const std::shared_ptr<SpillFile>& file, const WorkspaceConfig& config) {
  network.SetActivationPlan(plan, file);
  network.ReleaseTape();
  const DryOwner owner;
  const absl::Cleanup release = [&] { network.ReleaseTape(); };
  RenewWorkspace(network, config, *owner);
  StepMemory memory = LearnStep(network, shape, *owner);
  AddBeside(network, shape, *owner, &memory);
  if (PassPlansOn(network, shape, config)) return memory;
  network.set_training_workspace(network.training_mode(), config);
  const StepMemory learned = LearnStep(network, shape, MemoryOwner::Current());
  memory.live_bytes = learned.live_bytes;
  memory.planned_bytes = learned.planned_bytes;
  return memory;
}

namespace {

ActivationProblem MeasureWhole(Network& network, const StepShape& shape) {
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
  const auto alignment = static_cast<int64_t>(network.training_workspace().config().alignment);
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
