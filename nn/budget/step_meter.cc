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
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
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

// The plan of the same step that makes these arrays of its batch in this order, where `placed` makes all of them in theirs: the same
// places. The others are made outside of it. Null: they do not stay to the end, or it is the same.
std::shared_ptr<const CyclePlan> WithBatchMade(const PlacedRequests& placed, size_t arrays,
                                               absl::Span<const size_t> order) {
  const auto end = static_cast<int64_t>(placed.requests.size());
  if (placed.requests.size() < arrays || order.size() > arrays) return nullptr;
  bool differs = order.size() < arrays;
  for (size_t i = 0; i < arrays; ++i) {
    if (placed.requests[i].upper < end) return nullptr;
    differs = differs || placed.requests[order[i]].size != placed.requests[i].size;  // all of them
  }
  if (!differs) return nullptr;
  const auto fewer = static_cast<int64_t>(arrays - order.size());
  PlacedRequests made = placed;
  made.requests.clear();
  made.offsets.clear();
  made.pins.clear();
  for (size_t i = 0; i < placed.requests.size(); ++i) {
    if (i < arrays && i >= order.size()) continue;
    const size_t from = i < arrays ? order[i] : i;
    LifetimeBuffer request = placed.requests[from];
    request.lower = static_cast<int64_t>(made.requests.size());
    request.upper -= fewer;
    made.requests.push_back(request);
    made.offsets.push_back(placed.offsets[from]);
  }
  for (size_t i = 0; i < arrays; ++i) {
    if (std::find(order.begin(), order.end(), i) == order.end())
      made.requested_bytes -= static_cast<size_t>(placed.requests[i].size);
  }
  return MakeCyclePlan(std::move(made), SIZE_MAX);
}

// How many arrays of each kind a batch has, in the order in which dry steps make them.
struct BatchArrays {
  size_t features = 0, labels = 0, features_masks = 0, labels_masks = 0;
  size_t all() const { return features + labels + features_masks + labels_masks; }
};

BatchArrays ArraysOf(const Network& network, const StepShape& shape) {
  const auto there = [](const std::vector<std::optional<InputConfig>>& masks) {
    return static_cast<size_t>(std::count_if(masks.begin(), masks.end(),
                                             [](const auto& mask) { return mask.has_value(); }));
  };
  return {network.inputs().size(), shape.labels.size(), there(shape.features_masks),
          there(shape.labels_masks)};
}

// In which order such a batch may be made in a step, beside features first: labels first, all from the last
// one, features alone; masks behind both, or each behind what it masks. (Labels alone may begin as labels first do, as far as the first
// array of a layer is as large as the features are, which lie elsewhere then: no step could go on with the right one of the two.)
std::vector<std::vector<size_t>> OrdersOf(const BatchArrays& arrays) {
  std::vector<size_t> all(arrays.all());
  std::iota(all.begin(), all.end(), size_t{0});
  const auto at = [&](size_t begin) { return all.begin() + static_cast<std::ptrdiff_t>(begin); };
  using Part = std::vector<size_t>;
  const size_t masks = arrays.features + arrays.labels;
  const Part features(at(0), at(arrays.features)), labels(at(arrays.features), at(masks)),
      features_masks(at(masks), at(masks + arrays.features_masks)),
      labels_masks(at(masks + arrays.features_masks), all.end());
  std::vector<Part> orders = {features, {all.rbegin(), all.rend()}};
  const auto add = [&](std::initializer_list<const Part*> parts) {
    Part order;
    for (const Part* const part : parts) order.insert(order.end(), part->begin(), part->end());
    if (std::find(orders.begin(), orders.end(), order) == orders.end())
      orders.push_back(std::move(order));
  };
  add({&labels, &features, &features_masks, &labels_masks});
  if (masks == all.size()) return orders;
  add({&features, &features_masks, &labels, &labels_masks});
  add({&labels, &labels_masks, &features, &features_masks});
  return orders;
}

// Adds those to a file of plans, whose first one is of features first.
void AddOrders(const std::string& path, const BatchArrays& arrays, size_t alignment) {
  ParsedPlans parsed = ReadPlans(path, alignment);
  if (parsed.cycles.empty()) return;
  std::vector<std::shared_ptr<LearnedCycle>> cycles, others;
  for (const std::vector<size_t>& order : OrdersOf(arrays)) {
    if (auto other = WithBatchMade(parsed.cycles[0], arrays.all(), order); other != nullptr)
      others.push_back(std::make_shared<LearnedCycle>(std::move(other)));
  }
  if (others.empty()) return;
  for (PlacedRequests& cycle : parsed.cycles)
    cycles.push_back(std::make_shared<LearnedCycle>(MakeCyclePlan(std::move(cycle), SIZE_MAX)));
  cycles.insert(cycles.end(), others.begin(), others.end());
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
    AddOrders(path, ArraysOf(network, shape), network.training_workspace().config().alignment);
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
  const int64_t pages = budget.Of(workspace.core()->memory_owner, Host()).taken_bytes;
  *memory = MemoryOf(network);  // better places may have been found meanwhile
  memory->tail_bytes = std::max<int64_t>(0, pages - memory->planned_bytes);
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
// and those whose batch comes from elsewhere, which may be planned around the others. (Other orders: OrdersOf.)
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
                       const std::shared_ptr<SpillFile>& file, int64_t limit, bool counts_all) {
  network.SetActivationPlan(plan, file);
  network.ReleaseTape();
  const DryOwner owner;
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
  const DryOwner owner;
  const absl::Cleanup release = [&] { network.ReleaseTape(); };
  RenewWorkspace(network, config, *owner);
  StepMemory memory = LearnStep(network, shape, *owner);
  AddBeside(network, shape, *owner, &memory);
  constexpr BatchMade kWays[] = {BatchMade::kOutside, BatchMade::kFeaturesFirst};
  LearnOthers(network, shape, *owner, kWays, &memory);
  if (PassPlansOn(network, shape, config)) return memory;
  network.set_training_workspace(network.training_mode(), config);
  StepMemory learned = LearnStep(network, shape, MemoryOwner::Current());
  LearnOthers(network, shape, MemoryOwner::Current(), kWays, &learned);
  memory.live_bytes = learned.live_bytes;
  memory.planned_bytes = learned.planned_bytes;
  memory.requested_bytes = learned.requested_bytes;
  return memory;
}

namespace {

ActivationProblem MeasureWhole(Network& network, StepShape shape) {
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
