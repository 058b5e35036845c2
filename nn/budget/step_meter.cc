#include "tidepool/nn/budget/step_meter.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/kernel_scopes.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network/activation_pass.h"

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
  if (dry) off.emplace();
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
  network.set_training_workspace(network.training_mode(), config);
}

// Where requests of a step belong, counted in requests.
class StepTrace final : public SegmentObserver {
 public:
  explicit StepTrace(Network& network)
      : network_(network),
        layers_(network.config()->nodes.size()),
        forward_begins_(layers_ + 2),
        back_begins_(layers_ + 1, -1),
        input_of_(layers_),
        kept_by_(layers_ + 1),
        outputs_(layers_),
        is_view_(layers_) {}

  void BeginSegment(int segment, absl::Span<const NDArray> inputs) override {
    const auto s = static_cast<size_t>(segment);
    if (s == 0) {
      input_of_.assign(layers_, {});
      kept_by_.assign(layers_ + 1, {});
      outputs_.assign(layers_, {});
      back_begins_.assign(layers_ + 1, -1);
      kept_.clear();
      held_.clear();
      remakeable_.clear();
    }
    forward_begins_[s] = Clock();
    for (const NDArray& input : inputs) AddSlot(input, &input_of_[s]);
  }
  void EndSegment(int segment, absl::Span<const NDArray> outputs, GradientTape& tape) override {
    const auto s = static_cast<size_t>(segment);
    forward_begins_[s + 1] = Clock();
    for (const NDArray& output : outputs) AddSlot(output, &outputs_[s]);
    is_view_[s] =
        !outputs_[s].empty() &&
        std::all_of(outputs_[s].begin(), outputs_[s].end(), [&](size_t output) {
          return std::find(input_of_[s].begin(), input_of_[s].end(), output) != input_of_[s].end();
        });
    Visit(s, tape);
    tape.VisitRemakeable(segment + 1, [&](const BufferHandle& buffer) {
      if (buffer->attached) remakeable_.push_back(buffer->request.slot);
      return false;
    });
  }
  void EndForward(GradientTape& tape) override {
    forward_begins_[layers_ + 1] = Clock();
    Visit(layers_, tape);
    for (const auto& [buffer, slot] : kept_) {
      if (buffer->references.load(std::memory_order_relaxed) > tape.KeptHandles(buffer->id))
        held_.push_back(slot);
    }
  }
  void BackwardIsAt(int segment) override {
    if (segment >= 0) back_begins_[static_cast<size_t>(segment)] = Clock();
  }

  void BeginCycle() { cycle_begin_ = Requests(); }
  void EndCycle() { end_ = Clock(); }

  ActivationProblem Problem() const;

 private:
  int64_t Requests() const {
    const WorkspaceStats stats = network_.training_workspaces().workspaces()[0]->stats();
    return static_cast<int64_t>(stats.hits + stats.spills);
  }
  int64_t Clock() const { return Requests() - cycle_begin_; }
  static void AddSlot(const NDArray& array, std::vector<size_t>* slots) {
    if (!array.is_defined() || !array.buffer() || !array.buffer()->attached) return;
    const size_t slot = array.buffer()->request.slot;
    if (std::find(slots->begin(), slots->end(), slot) == slots->end()) slots->push_back(slot);
  }
  void Visit(size_t layer, GradientTape& tape) {
    tape.VisitKept([&](const BufferHandle& buffer) {
      if (!buffer->attached) return;
      kept_by_[layer].push_back(buffer->request.slot);
      kept_.emplace(buffer.get(), buffer->request.slot);
      bytes_[buffer->request.slot] = static_cast<int64_t>(buffer->bytes);
    });
  }

  Network& network_;
  const size_t layers_;
  int64_t cycle_begin_ = 0, end_ = 0;
  std::vector<int64_t> forward_begins_;  // of layers, the loss, and where it ends
  std::vector<int64_t> back_begins_;     // of layers and the loss; -1: it has nothing
  std::vector<std::vector<size_t>> input_of_, kept_by_, outputs_;  // requests, by layer
  std::vector<bool> is_view_;
  std::map<const Buffer*, size_t> kept_;  // by the tape, and their requests
  std::map<size_t, int64_t> bytes_;       // of these requests
  std::vector<size_t> held_;              // of these, what somebody has beside it
  std::vector<size_t> remakeable_;        // requests
};

// Requests that are alive between parts of the step are arrays of the problem; what else there is at once belongs to the parts.
ActivationProblem StepTrace::Problem() const {
  const Workspace& workspace = network_.training_workspace();
  const std::vector<LifetimeBuffer> requests = workspace.PlannedRequests();
  if (static_cast<int64_t>(requests.size()) != end_) {
    ThrowInternal(absl::StrCat("step meter: network [", network_.name(), "]: a step of ", end_,
                               " requests has a plan of ", requests.size()));
  }
  const auto alignment = static_cast<int64_t>(workspace.config().alignment);
  const auto n = static_cast<int>(layers_);
  const auto bytes_of = [&](size_t request) {
    return AlignedSize(requests[request].size, alignment);
  };
  // Where layers' gradients begin, those of none in between; the loss first.
  std::vector<int64_t> back(layers_ + 1);
  int64_t next = end_;
  for (int layer = 0; layer <= n; ++layer) {
    const int64_t begin = back_begins_[static_cast<size_t>(layer)];
    back[static_cast<size_t>(layer)] = next = begin >= 0 ? begin : next;
  }
  const auto back_end = [&](int layer) {
    return layer == 0 ? end_ : back[static_cast<size_t>(layer) - 1];
  };

  ActivationProblem problem;
  problem.layers.resize(layers_);
  std::vector<int> array_of(requests.size(), -1);
  const int64_t forward_end = forward_begins_[layers_ + 1];
  for (size_t r = 0; r < requests.size() && static_cast<int64_t>(r) < forward_end; ++r) {
    if (static_cast<int64_t>(r) < forward_begins_[0]) {
      problem.constant_bytes += bytes_of(r);  // the batch, and what the step itself keeps
      continue;
    }
    int made = 0;
    while (made < n && forward_begins_[static_cast<size_t>(made) + 1] <= static_cast<int64_t>(r))
      ++made;
    if (made == n || requests[r].upper <= forward_begins_[static_cast<size_t>(made) + 1]) continue;
    array_of[r] = static_cast<int>(problem.arrays.size());
    ActivationArray array{.bytes = bytes_of(r), .made = made, .used_until = made};
    for (int layer = made + 1;
         layer <= n && forward_begins_[static_cast<size_t>(layer)] < requests[r].upper; ++layer) {
      if (requests[r].upper <= forward_end) array.used_until = layer;
    }
    problem.arrays.push_back(std::move(array));
  }
  const auto for_each = [&](const std::vector<size_t>& slots, const auto& use) {
    for (const size_t slot : slots) {
      if (slot < array_of.size() && array_of[slot] >= 0)
        use(problem.arrays[static_cast<size_t>(array_of[slot])]);
    }
  };
  for (int layer = 0; layer <= n; ++layer) {
    const auto at = static_cast<size_t>(layer);
    if (layer < n) {
      problem.layers[at].is_view = is_view_[at];
      for_each(input_of_[at], [&](ActivationArray& array) {
        array.input_of.push_back(layer);
        array.used_until = std::max(array.used_until, layer);
      });
    }
    for_each(kept_by_[at], [&](ActivationArray& array) { array.kept_by.push_back(layer); });
  }
  // Outputs that no layer takes are the loss's.
  for_each(outputs_[layers_ - 1], [&](ActivationArray& array) { array.used_until = n; });
  for (size_t r = 0; r < requests.size(); ++r) {
    if (array_of[r] < 0) continue;
    ActivationArray& array = problem.arrays[static_cast<size_t>(array_of[r])];
    const int64_t upper = requests[r].upper;
    if (upper <= forward_end) {
      array.kept_by.clear();
      continue;
    }
    // Not what a gradient function of a layer's own has. What lives on behind the gradients that read it was overwritten by one.
    array.can_spill =
        !array.kept_by.empty() && std::find(held_.begin(), held_.end(), r) == held_.end();
    array.can_remake = array.kept_by.size() == 1 && array.kept_by[0] == array.made &&
                       std::find(remakeable_.begin(), remakeable_.end(), r) != remakeable_.end();
    if (const auto bytes = bytes_.find(r); bytes != bytes_.end())
      array.written_bytes = bytes->second;
    if (!array.kept_by.empty()) continue;
    int dies = n;
    while (dies > 0 && back_end(dies) < upper) --dies;
    array.kept_by = {std::max(dies, array.made)};
  }

  // What is alive at once in each part, beside the arrays that the clock of the problem has there.
  std::vector<int64_t> alive(requests.size() + 1, 0);  // behind each request
  for (size_t r = 0; r < requests.size(); ++r) {
    alive[r] += bytes_of(r);
    alive[static_cast<size_t>(std::min<int64_t>(
        requests[r].upper, static_cast<int64_t>(requests.size())))] -= bytes_of(r);
  }
  for (size_t r = 1; r < alive.size(); ++r) alive[r] += alive[r - 1];
  const auto most = [&](int64_t begin, int64_t end) {
    int64_t bytes = 0;
    for (int64_t r = begin; r < end; ++r) bytes = std::max(bytes, alive[static_cast<size_t>(r)]);
    return bytes;
  };
  std::vector<int64_t> arrays;
  CostOf(problem, PlanOfLayers(network_, Retention::kKeep), &arrays);
  const auto beside = [&](int64_t bytes, int tick) {
    return std::max<int64_t>(0, bytes - arrays[static_cast<size_t>(tick)]);
  };
  for (int layer = 0; layer <= n; ++layer) {
    const auto at = static_cast<size_t>(layer);
    LayerActivations& of = layer < n ? problem.layers[at] : problem.loss;
    const int64_t begin = back[at];
    const int tick = n + 1 + (n - layer);
    of.forward_bytes = beside(most(forward_begins_[at], forward_begins_[at + 1]), layer);
    of.backward_bytes = beside(most(begin, back_end(layer)), tick);
    int64_t at_begin = begin > 0 ? alive[static_cast<size_t>(begin) - 1] : 0;
    for (size_t r = 0; r < requests.size(); ++r) {
      if (requests[r].upper == begin && static_cast<int64_t>(r) < begin) at_begin -= bytes_of(r);
    }
    of.gradient_bytes = beside(at_begin, tick);
  }
  return problem;
}

class ObserverOfTimes final : public SegmentObserver {
 public:
  explicit ObserverOfTimes(const ActivationPlan& plan)
      : is_called_again_(plan.recomputes()),
        times_{std::vector<double>(plan.segments.size() + 1, kNone),
               std::vector<double>(plan.segments.size() + 1, kNone),
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
  // Of layers that are called again before their gradients.
  StepTimes Times() const {
    StepTimes times = times_;
    for (size_t i = 0; i < times.forward_seconds.size(); ++i) {
      double &forward = times.forward_seconds[i], &backward = times.backward_seconds[i];
      if (forward == kNone) forward = 0;
      if (backward == kNone) backward = 0;
      if (is_called_again_ && i + 1 < times.forward_seconds.size())
        backward = std::max(0.0, backward - forward);
    }
    return times;
  }

 private:
  static constexpr double kNone = 1e30;
  const bool is_called_again_;
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
  if (config != nullptr) {
    network.set_training_workspace(network.training_mode(), *config);
  } else {
    RenewWorkspace(network);
  }
  for (int i = 0; i < kCycles; ++i) RunStep(network, shape, shape.batch, /*dry=*/true);
  Workspace& workspace = network.training_workspace();
  const auto memory = [&] {
    const WorkspaceStats stats = workspace.stats();
    return StepMemory{static_cast<int64_t>(stats.live_lower_bound_bytes),
                      static_cast<int64_t>(stats.planned_peak_bytes)};
  };
  const StepMemory first = memory();
  if (config == nullptr && (first.planned_bytes <= limit || first.live_bytes > limit)) return first;
  workspace.FinishPlanSearch();
  RunStep(network, shape, shape.batch, /*dry=*/true);
  return memory();
}

ActivationProblem MeasureActivations(Network& network, const StepShape& shape) {
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
    constexpr int kRuns = 3;
    observer.Start();
    for (int i = 0; i < kRuns; ++i) {
      RunStep(network, shape, batch, /*dry=*/false);
      observer.End();
    }
    network.SetActivationPlan({});  // the observer goes
    return observer.Times();
  };
  StepTimes times = times_by(plans[0]);
  times.batch = batch;
  if (plans.size() > 1) {
    const StepTimes remade = times_by(plans[1]);
    for (size_t i = 0; i < problem.layers.size(); ++i) {
      times.remake_seconds.push_back(
          std::max(0.0, remade.backward_seconds[i] - times.backward_seconds[i]));
    }
  }
  const double factor = static_cast<double>(shape.batch) / static_cast<double>(batch);
  for (auto* const seconds :
       {&times.forward_seconds, &times.backward_seconds, &times.remake_seconds}) {
    for (double& one : *seconds) one *= factor;
  }
  return times;
}

}  // namespace tidepool::nn
