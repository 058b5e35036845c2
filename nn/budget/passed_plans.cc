#include "tidepool/nn/budget/passed_plans.h"

#include <stdlib.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/types/span.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/cycle_plan.h"
#include "tidepool/memory/workspace/plan_file.h"
#include "tidepool/memory/workspace/plan_set.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_core.h"

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

}  // namespace

bool PassPlansOn(Network& network, const StepShape& shape, const WorkspaceConfig& config) {
  std::error_code error;
  std::string folder = std::filesystem::temp_directory_path(error) / "tidepool_plans_XXXXXX";
  if (error || mkdtemp(folder.data()) == nullptr) return false;
  const absl::Cleanup remove = [&] { std::filesystem::remove_all(folder, error); };
  const std::string path = folder + "/plans";
  try {
    network.training_workspace().SavePlans(path);
    AddOrders(path, ArraysOf(network, shape), network.training_workspace().core()->alignment());
  } catch (const Error&) {
    return false;
  }
  network.set_training_workspace(network.training_mode(), config);
  network.training_workspace().LoadPlans(path);  // but one that no budget has room for
  return true;
}

}  // namespace tidepool::nn
