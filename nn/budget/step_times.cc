#include "tidepool/nn/budget/step_meter.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/types/span.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/budget/dry_step.h"
#include "tidepool/nn/budget/passed_plans.h"
#include "tidepool/nn/network/activation_pass.h"

namespace tidepool::nn {
namespace {

class ObserverOfTimes final : public SegmentObserver {
 public:
  // Of a network of `device`, whose work is waited for at both ends of what is timed.
  ObserverOfTimes(const ActivationPlan& plan, Device device)
      : device_(device),
        times_{std::vector<double>(plan.segments.size() + 1, kNone),
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
    if (is_on_ && device_ != Host()) DeviceQueue::Here(device_).Wait();
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
  const Device device_;
  StepTimes times_;
  bool is_on_ = false;
  double* to_ = nullptr;
  std::chrono::steady_clock::time_point begin_;
};

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

// Steps whose planned peak is within a limit, so that what runs is.
class TimedSteps {
 public:
  TimedSteps(Network& network, const StepShape& shape, int64_t limit)
      : network_(network), shape_(shape), whole_(shape.batch), limit_(limit) {
    shape_.trainer = nullptr;
  }

  int64_t batch() const { return shape_.batch; }
  bool IsWithin(int64_t bytes_of_whole) const {
    return static_cast<double>(bytes_of_whole) * static_cast<double>(shape_.batch) <=
           static_cast<double>(limit_) * static_cast<double>(whole_);
  }
  // As few examples as steps by that plan need, at least one: by what is counted, and, as places take more, by dry runs.
  void FitBatch(const ActivationPlan& plan, int64_t counted_of_whole) {
    if (!IsWithin(counted_of_whole)) Shrink(counted_of_whole, whole_);
    while (shape_.batch > 1) {
      const int64_t needed = Learn(plan, nullptr);
      if (needed <= limit_) break;
      Shrink(needed, shape_.batch);
    }
  }
  // Each layer's least of some steps. Nothing where they would need more than the limit, unless it is `needed`.
  std::optional<StepTimes> TimesBy(const ActivationPlan& plan, bool needed) {
    ObserverOfTimes observer(plan, network_.device());
    const absl::Cleanup forget = [&] { network_.SetActivationPlan({}); };  // the observer goes
    const int64_t bytes = Learn(plan, &observer);
    if (bytes > limit_ && !needed) return std::nullopt;
    BudgetCharge charge(Host(), &MemoryOwner::Current());
    if (network_.device() == Host()) {
      charge.GrowTo(bytes, "steps whose times are measured");
    } else {
      TakeMemory();
    }
    constexpr int kRuns = 3;
    observer.Start();
    for (int i = 0; i < kRuns; ++i) {
      RunStep(network_, shape_, /*dry=*/false);
      observer.End();
    }
    return observer.Times();
  }

 private:
  // How much a step takes, in a workspace that has learned it. Better places are searched for where the first ones are too many.
  int64_t Learn(const ActivationPlan& plan, SegmentObserver* observer) {
    network_.SetActivationPlan(plan, nullptr, observer);
    RenewWorkspace(network_);
    for (int i = 0; i < kCycles; ++i) RunDryStep(network_, shape_);
    Workspace& workspace = network_.training_workspace();
    const auto planned = [&] { return static_cast<int64_t>(workspace.stats().planned_peak_bytes); };
    if (planned() > limit_) {
      workspace.FinishPlanSearch();
      RunDryStep(network_, shape_);
    }
    return planned();
  }
  // A workspace of a device that has learned the step by addresses is one that has memory.
  void TakeMemory() {
    const WorkspaceConfig config = network_.training_workspace().config();
    if (!PassPlansOn(network_, shape_, config))
      network_.set_training_workspace(network_.training_mode(), config);
  }
  void Shrink(int64_t bytes, int64_t of_examples) {
    const double most =
        static_cast<double>(of_examples) * static_cast<double>(limit_) / static_cast<double>(bytes);
    shape_.batch =
        std::clamp<int64_t>(static_cast<int64_t>(most), 1, std::max<int64_t>(1, shape_.batch - 1));
  }

  Network& network_;
  StepShape shape_;
  const int64_t whole_, limit_;
};

}  // namespace

StepTimes MeasureTimes(Network& network, const StepShape& shape, const ActivationProblem& problem,
                       int64_t limit) {
  std::vector<ActivationPlan> plans = {PlanOfLayers(network, Retention::kRecompute)};
  if (std::any_of(problem.arrays.begin(), problem.arrays.end(),
                  [](const ActivationArray& array) { return array.can_remake; }))
    plans.push_back(PlanOfLayers(network, Retention::kRemake));
  NDArray beside;
  if (network.beside().is_defined()) {
    const ScopeOutOfWorkspaces heap;
    const HandlesOwnScope handles;  // a model's manager is capped
    beside = network.beside().CopyTo(Place::Heap());
  }
  const RestoredWorkspace restored(network);
  const absl::Cleanup restore = [&] {
    network.SetActivationPlan({});
    RenewWorkspace(
        network);  // the pages that steps have written to are not there beside what is next
    if (!beside.is_defined()) return;
    NDArray now = network.beside();
    CopyInto(beside, now);
  };
  TimedSteps steps(network, shape, limit);
  for (const ActivationPlan& plan : plans) steps.FitBatch(plan, CostOf(problem, plan).peak_bytes);
  const size_t layers = problem.layers.size();
  const StepTimes again = *steps.TimesBy(plans[0], /*needed=*/true);
  StepTimes times = again;
  times.batch = steps.batch();
  // Where layers keep all: of a part of them at a time, as many as there is memory for.
  constexpr size_t kMostParts = 8;
  bool are_kept = false;
  for (size_t count = 1; count <= std::min(kMostParts, layers) && !are_kept; count *= 2) {
    std::vector<ActivationPlan> parts(count, plans[0]);
    for (size_t part = 0; part < count; ++part) {
      for (size_t i = layers * part / count; i < layers * (part + 1) / count; ++i)
        parts[part].segments[i].retention = Retention::kKeep;
    }
    if (!std::all_of(parts.begin(), parts.end(), [&](const ActivationPlan& plan) {
          return steps.IsWithin(CostOf(problem, plan).peak_bytes);
        }))
      continue;
    StepTimes with_kept = times;
    are_kept = std::all_of(parts.begin(), parts.end(), [&](const ActivationPlan& plan) {
      const std::optional<StepTimes> kept = steps.TimesBy(plan, /*needed=*/false);
      if (!kept.has_value()) return false;
      for (size_t i = 0; i < layers; ++i) {
        if (plan.segments[i].retention != Retention::kKeep) continue;
        with_kept.forward_seconds[i] = kept->forward_seconds[i];
        with_kept.backward_seconds[i] = kept->backward_seconds[i];
      }
      return true;
    });
    if (are_kept) times = std::move(with_kept);
  }
  for (size_t i = 0; i < layers; ++i) {
    double &forward = times.forward_seconds[i], &backward = times.backward_seconds[i];
    const double both = again.forward_seconds[i] + again.backward_seconds[i];
    if (!are_kept) backward = std::max(0.0, backward - forward);
    times.again_seconds.push_back(std::max(0.0, both - forward - backward));
  }
  if (plans.size() > 1) {
    const StepTimes remade = *steps.TimesBy(plans[1], /*needed=*/true);
    for (size_t i = 0; i < layers; ++i) {
      times.remake_seconds.push_back(
          std::max(0.0, remade.forward_seconds[i] + remade.backward_seconds[i] -
                            times.forward_seconds[i] - times.backward_seconds[i]));
    }
  }
  for (const SlicedActivations& slice : problem.slices) {
    if (slice.examples >= steps.batch()) break;
    const std::optional<StepTimes> sliced =
        steps.TimesBy(PlanOfSlices(problem, slice.examples), /*needed=*/false);
    if (!sliced.has_value()) break;
    times.slice_factors.push_back(SliceFactors(problem, times, *sliced));
  }
  const double factor = static_cast<double>(shape.batch) / static_cast<double>(steps.batch());
  for (auto* const seconds : {&times.forward_seconds, &times.backward_seconds,
                              &times.remake_seconds, &times.again_seconds}) {
    for (double& one : *seconds) one *= factor;
  }
  return times;
}

}  // namespace tidepool::nn
