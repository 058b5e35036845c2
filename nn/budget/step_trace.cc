#include "tidepool/nn/budget/step_trace.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/workspace_core.h"
#include "tidepool/nn/budget/step_meter.h"

namespace tidepool::nn {

// Requests that are alive between parts of the step are arrays of the problem; what else there is at once belongs to the parts.
ActivationProblem StepTrace::Problem() const {
  const Workspace& workspace = network_.training_workspace();
  const std::vector<LifetimeBuffer> requests = workspace.PlannedRequests();
  if (static_cast<int64_t>(requests.size()) != end_) {
    ThrowInternal(absl::StrCat("step meter: network [", network_.name(), "]: a step of ", end_,
                               " requests has a plan of ", requests.size()));
  }
  const auto alignment = static_cast<int64_t>(workspace.core()->alignment());
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

}  // namespace tidepool::nn
