#include "tidepool/nn/budget/step_meter.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/unbudgeted_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel_scopes.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/budget/step_trace.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/network_body.h"

namespace tidepool::nn {
namespace {

constexpr int kCycles = 4;  // until a step is the same each time

NDArray Made(const InputConfig& config, int64_t batch, DType floats, bool dry) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), config.shape.span().begin(), config.shape.span().end());
  const DType dtype = IsFloating(config.dtype) ? floats : config.dtype;
  NDArray array(Shape(dims), dtype);
  if (array.NumElements() == 0) return array;
  // Indices are looked at on the host.
  if (!IsFloating(dtype)) std::memset(array.buffer()->data, 0, array.buffer()->bytes);
  if (IsFloating(dtype) && !dry)
    CopyInto(RandomUniform(Shape(dims), 0, 1, dtype, /*seed=*/1, 0, Place::Heap()), array);
  return array;
}

void RunStep(Network& network, const StepShape& shape, int64_t batch, bool dry) {
  const uint64_t step = network.step();
  const absl::Cleanup restore = [&] { network.set_step(step); };
  std::optional<KernelsOffScope> off;
  std::optional<MemoryOwnerScope> beside;
  if (dry) {
    off.emplace();
    beside.emplace(OwnerBesideBudgets());
  }
  const HandlesOwnScope handles;
  const WorkspaceScope scope(network.training_workspace());
  NetworkInputs inputs;
  for (const InputConfig& input : network.inputs())
    inputs.features.push_back(Made(input, batch, network.dtype(), dry));
  for (const InputConfig& label : shape.labels)
    inputs.labels.push_back(Made(label, batch, network.dtype(), dry));
  network.QueueGradients(inputs, [](const NDArray&) {});
}

// Of dry runs: what nobody touches costs no memory.
void RenewWorkspace(Network& network) {
  WorkspaceConfig config = network.training_workspace().config();
  config.prefault = false;
  const MemoryOwnerScope owner(OwnerBesideBudgets());
  network.set_training_workspace(network.training_mode(), config);
}

// A workspace of that configuration has what the one before has learned, and no memory yet. False: there is no folder for the file.
bool PassPlansOn(Network& network, const WorkspaceConfig& config) {
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error) / "tidepool_plans_XXXXXX";
  if (error || mkdtemp(folder.data()) == nullptr) return false;
  const absl::Cleanup remove = [&] { std::filesystem::remove_all(folder, error); };
  const std::string path = folder + "/plans";
  try {
    network.training_workspace().SavePlans(path);
  } catch (const Error&) {
    return false;
  }
  network.set_training_workspace(network.training_mode(), config);
  network.training_workspace().LoadPlans(path);  // but one that no budget has room for
  return true;
}

class ObserverOfTimes final : public SegmentObserver {
 public:
  explicit ObserverOfTimes(const ActivationPlan& plan)
      : times_{std::vector<double>(plan.segments.size() + 1, kNone),
               std::vector<double>(plan.segments.size() + 1, kNone),
               {},
               {}} {}
  void BeginSegment(int segment, absl::Span<const NDArray>) override {
    End();
    to_ = &times_.forward_seconds[static_cast<size_t>(segment)];
  }
  void EndSegment(int segment, absl::Span<const NDArray>, GradientTape&) override {
    End();
    if (static_cast<size_t>(segment) + 2 == times_.forward_seconds.size())
      to_ = &times_.forward_seconds.back();
  }
  void EndForward(GradientTape&) override { End(); }
  void BackwardIsAt(int segment) override {
    End();
    if (segment >= 0) to_ = &times_.backward_seconds[static_cast<size_t>(segment)];
  }
  // Dry runs do not count.
  void Start() { is_on_ = true; }
  void End() {
    const auto now = std::chrono::steady_clock::now();
    if (to_ != nullptr && is_on_)
      *to_ = std::min(*to_, std::chrono::duration<double>(now - begin_).count());
    begin_ = now;
    to_ = nullptr;
  }
  // The backward pass of a layer that is called again has that call.
  StepTimes Times() const {
    StepTimes times = times_;
    for (auto* const seconds : {&times.forward_seconds, &times.backward_seconds}) {
      for (double& one : *seconds) one = one == kNone ? 0 : one;
    }
    return times;
  }

 private:
  static constexpr double kNone = 1e30;
  StepTimes times_;
  bool is_on_ = false;
  double* to_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
};

}  // namespace

ActivationPlan PlanOfLayers(const Network& network, Retention retention) {
  return {.segments = std::vector<ActivationSegment>(network.config()->nodes.size(),
                                                     ActivationSegment{1, retention})};
}

StepMemory MeasureStep(Network& network, const StepShape& shape, const ActivationPlan& plan,
                       const std::shared_ptr<SpillFile>& file, int64_t limit,
                       const WorkspaceConfig* config) {
  network.SetActivationPlan(plan, file);
  const auto memory = [&] {
    const WorkspaceStats stats = network.training_workspace().stats();
    return StepMemory{static_cast<int64_t>(stats.live_lower_bound_bytes),
                      static_cast<int64_t>(stats.planned_peak_bytes)};
  };
  const auto learn = [&] {
    for (int i = 0; i < kCycles; ++i) RunStep(network, shape, shape.batch, /*dry=*/true);
  };
  const auto search = [&] {
    network.training_workspace().FinishPlanSearch();
    RunStep(network, shape, shape.batch, /*dry=*/true);
  };
  if (config != nullptr) {
    WorkspaceConfig dry = *config;
    dry.prefault = false;
    const MemoryOwnerScope owner(OwnerBesideBudgets());
    network.set_training_workspace(network.training_mode(), dry);
  } else {
    RenewWorkspace(network);
  }
  learn();
  const StepMemory first = memory();
  if (config == nullptr && (first.planned_bytes <= limit || first.live_bytes > limit)) return first;
  search();
  const StepMemory found = memory();
  if (config == nullptr || PassPlansOn(network, *config)) return found;
  network.set_training_workspace(network.training_mode(), *config);
  learn();
  search();
  return memory();
}

namespace {

ActivationProblem MeasureWhole(Network& network, const StepShape& shape) {
  StepTrace trace(network);
  network.SetActivationPlan(PlanOfLayers(network, Retention::kKeep), nullptr, &trace);
  const absl::Cleanup forget = [&] { network.SetActivationPlan({}); };
  RenewWorkspace(network);
  for (int i = 0; i < kCycles; ++i) RunStep(network, shape, shape.batch, /*dry=*/true);
  trace.BeginCycle();
  RunStep(network, shape, shape.batch, /*dry=*/true);
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

namespace {

// Chains in slices, other layers by themselves.
ActivationPlan PlanOfSlices(const ActivationProblem& problem, int64_t examples) {
  ActivationPlan plan;
  int chain = -1;
  for (const LayerActivations& layer : problem.layers) {
    if (layer.chain >= 0 && layer.chain == chain) {
      ++plan.segments.back().layers;
    } else {
      plan.segments.push_back({.layers = 1,
                               .retention = Retention::kRecompute,
                               .slice = layer.chain >= 0 ? examples : 0});
    }
    chain = layer.chain;
  }
  return plan;
}

// How much longer chains take in slices: `sliced` are times of the segments of that plan.
std::pair<double, double> SliceFactors(const ActivationProblem& problem, const StepTimes& whole,
                                       const StepTimes& sliced) {
  double forward = 0, backward = 0, sliced_forward = 0, sliced_backward = 0;
  size_t segment = 0;
  for (size_t i = 0; i < problem.layers.size(); ++i) {
    const int chain = problem.layers[i].chain;
    const bool goes_on = i > 0 && chain >= 0 && problem.layers[i - 1].chain == chain;
    if (i > 0 && !goes_on) ++segment;
    if (chain < 0) continue;
    forward += whole.forward_seconds[i];
    backward += whole.backward_seconds[i];
    if (goes_on) continue;
    sliced_forward += sliced.forward_seconds[segment];
    sliced_backward += sliced.backward_seconds[segment];
  }
  const auto factor = [](double of_slices, double of_all) {
    return of_all > 0 ? std::clamp(of_slices / of_all, 1.0, 10.0) : 1.0;
  };
  return {factor(sliced_forward, forward), factor(sliced_backward, backward)};
}

}  // namespace

StepTimes MeasureTimes(Network& network, const StepShape& shape, const ActivationProblem& problem,
                       int64_t limit) {
  std::vector<ActivationPlan> plans = {PlanOfLayers(network, Retention::kRecompute)};
  if (std::any_of(problem.arrays.begin(), problem.arrays.end(),
                  [](const ActivationArray& array) { return array.can_remake; }))
    plans.push_back(PlanOfLayers(network, Retention::kRemake));
  int64_t batch = shape.batch;
  for (const ActivationPlan& plan : plans) {
    const int64_t needed = std::max<int64_t>(1, CostOf(problem, plan).peak_bytes);
    if (needed <= limit) continue;
    batch =
        std::min(batch, std::max<int64_t>(1, static_cast<int64_t>(static_cast<double>(shape.batch) *
                                                                  static_cast<double>(limit) /
                                                                  static_cast<double>(needed))));
  }
  NDArray beside;
  if (network.beside().is_defined()) {
    const ScopeOutOfWorkspaces heap;
    const HandlesOwnScope handles;  // a model's manager is capped
    beside = network.beside().CopyTo(Place::Heap());
  }
  const absl::Cleanup restore = [&] {
    network.SetActivationPlan({});
    if (!beside.is_defined()) return;
    NDArray now = network.beside();
    CopyInto(beside, now);
  };
  const auto times_by = [&](const ActivationPlan& plan) {
    ObserverOfTimes observer(plan);
    network.SetActivationPlan(plan, nullptr, &observer);
    RenewWorkspace(network);
    for (int i = 0; i < kCycles; ++i) RunStep(network, shape, batch, /*dry=*/true);
    BudgetCharge charge(Host(), &MemoryOwner::Current());
    charge.GrowTo(static_cast<int64_t>(network.training_workspace().stats().planned_peak_bytes),
                  "steps whose times are measured");
    constexpr int kRuns = 3;
    observer.Start();
    for (int i = 0; i < kRuns; ++i) {
      RunStep(network, shape, batch, /*dry=*/false);
      observer.End();
    }
    network.SetActivationPlan({});  // the observer goes
    return observer.Times();
  };
  const size_t layers = problem.layers.size();
  const StepTimes again = times_by(plans[0]);
  StepTimes times = again;
  times.batch = batch;
  // Where layers keep all: of a part of them at a time, as many as there is memory for.
  std::vector<ActivationPlan> parts;
  constexpr size_t kMostParts = 8;
  for (size_t count = 1; count <= std::min(kMostParts, layers) && parts.empty(); count *= 2) {
    for (size_t part = 0; part < count; ++part) {
      ActivationPlan plan = plans[0];
      for (size_t i = layers * part / count; i < layers * (part + 1) / count; ++i)
        plan.segments[i].retention = Retention::kKeep;
      parts.push_back(std::move(plan));
    }
    const bool fits = std::all_of(parts.begin(), parts.end(), [&](const ActivationPlan& plan) {
      return static_cast<double>(CostOf(problem, plan).peak_bytes) * static_cast<double>(batch) <=
             static_cast<double>(limit) * static_cast<double>(shape.batch);
    });
    if (!fits) parts.clear();
  }
  for (const ActivationPlan& plan : parts) {
    const StepTimes kept = times_by(plan);
    for (size_t i = 0; i < layers; ++i) {
      if (plan.segments[i].retention != Retention::kKeep) continue;
      times.forward_seconds[i] = kept.forward_seconds[i];
      times.backward_seconds[i] = kept.backward_seconds[i];
    }
  }
  for (size_t i = 0; i < layers; ++i) {
    double &forward = times.forward_seconds[i], &backward = times.backward_seconds[i];
    const double both = again.forward_seconds[i] + again.backward_seconds[i];
    if (parts.empty()) backward = std::max(0.0, backward - forward);
    times.again_seconds.push_back(std::max(0.0, both - forward - backward));
  }
  if (plans.size() > 1) {
    const StepTimes remade = times_by(plans[1]);
    for (size_t i = 0; i < layers; ++i) {
      times.remake_seconds.push_back(
          std::max(0.0, remade.forward_seconds[i] + remade.backward_seconds[i] -
                            times.forward_seconds[i] - times.backward_seconds[i]));
    }
  }
  for (const SlicedActivations& slice : problem.slices) {
    if (slice.examples >= batch) break;
    times.slice_factors.push_back(
        SliceFactors(problem, times, times_by(PlanOfSlices(problem, slice.examples))));
  }
  const double factor = static_cast<double>(shape.batch) / static_cast<double>(batch);
  for (auto* const seconds : {&times.forward_seconds, &times.backward_seconds,
                              &times.remake_seconds, &times.again_seconds}) {
    for (double& one : *seconds) one *= factor;
  }
  return times;
}

}  // namespace tidepool::nn
