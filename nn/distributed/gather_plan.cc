#include "tidepool/nn/distributed/gather_plan.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/placement_problem.h"

namespace tidepool::nn {
namespace {

// Places [first, last].
struct Window {
  int first = 0, last = 0;
};

LifetimeBuffer Lifetime(const Window& window, int64_t bytes) {
  return {window.first, window.last + 1, bytes};
}

}  // namespace

GatherPlan PlanGathers(absl::Span<const BucketUse> buckets, int places, int ahead,
                       int64_t alignment) {
  const int count = static_cast<int>(buckets.size());
  ahead = std::min(ahead, count);  // all of them, which a caller may say by any larger number
  const auto use = [&](int bucket) -> const BucketUse& {
    return buckets[static_cast<size_t>(bucket)];
  };
  GatherPlan plan;
  plan.ahead = ahead;
  plan.forward.resize(buckets.size());
  std::iota(plan.forward.begin(), plan.forward.end(), 0);
  plan.backward = plan.sums = plan.forward;
  std::stable_sort(plan.forward.begin(), plan.forward.end(),
                   [&](int a, int b) { return use(a).first < use(b).first; });
  std::stable_sort(plan.backward.begin(), plan.backward.end(),
                   [&](int a, int b) { return use(a).last > use(b).last; });
  std::stable_sort(plan.sums.begin(), plan.sums.end(),
                   [&](int a, int b) { return use(a).first > use(b).first; });
  while (plan.kept < count &&
         use(plan.backward[static_cast<size_t>(plan.kept)]).last == places - 1) {
    ++plan.kept;
  }
  for (int place = 0; place < places; ++place) {
    int forward = 0, backward = 0;
    for (const BucketUse& bucket : buckets) {
      forward += bucket.first <= place ? 1 : 0;
      backward += bucket.last >= place ? 1 : 0;
    }
    plan.forward_there.push_back(forward);
    plan.forward_begun.push_back(std::min(count, forward + ahead));
    plan.backward_there.push_back(backward);
    plan.backward_begun.push_back(std::min(count, backward + ahead));
  }

  // The place at which each comes to be there, or is left, in either pass. Windows of both passes
  // are one, as an array stays where it is: the tape of the forward pass has its address.
  std::vector<Window> values(buckets.size()), forward_values(buckets.size()),
      gradients(buckets.size());
  for (int i = 0; i < count; ++i) {
    const int bucket = plan.forward[static_cast<size_t>(i)];
    const int begun = i < ahead ? 0 : use(plan.forward[static_cast<size_t>(i - ahead)]).first;
    values[static_cast<size_t>(bucket)] = {std::min(begun, use(bucket).first), use(bucket).last};
  }
  forward_values = values;
  for (int i = 0; i < count; ++i) {
    const int bucket = plan.backward[static_cast<size_t>(i)];
    const int begun =
        i < ahead ? places - 1 : use(plan.backward[static_cast<size_t>(i - ahead)]).last;
    Window& window = values[static_cast<size_t>(bucket)];
    window.last = std::max(window.last, begun);
  }
  for (int i = 0; i < count; ++i) {
    const int bucket = plan.sums[static_cast<size_t>(i)];
    const int left = i + ahead < count ? use(plan.sums[static_cast<size_t>(i + ahead)]).first : 0;
    gradients[static_cast<size_t>(bucket)] = {left, use(bucket).last};
  }

  std::vector<LifetimeBuffer> lifetimes;
  for (size_t b = 0; b < buckets.size(); ++b) {
    lifetimes.push_back(Lifetime(forward_values[b], buckets[b].bytes));
  }
  Placement placed = PlanGreedy(lifetimes, alignment);
  plan.inference_values = std::move(placed.offsets);
  plan.inference_bytes = placed.peak;
  lifetimes.clear();
  for (size_t b = 0; b < buckets.size(); ++b) {
    lifetimes.push_back(Lifetime(values[b], buckets[b].bytes));
  }
  for (size_t b = 0; b < buckets.size(); ++b) {
    lifetimes.push_back(Lifetime(gradients[b], buckets[b].bytes));
  }
  placed = PlanGreedy(lifetimes, alignment);
  const auto half = placed.offsets.begin() + static_cast<std::ptrdiff_t>(buckets.size());
  plan.values.assign(placed.offsets.begin(), half);
  plan.gradients.assign(half, placed.offsets.end());
  plan.bytes = placed.peak;
  return plan;
}

}  // namespace tidepool::nn
