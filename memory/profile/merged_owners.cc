#include "tidepool/memory/profile/merged_owners.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"

namespace tidepool {
namespace {

// Calls `visit` with each number of an owner.
void ForEachOwner(ProfileData& data, absl::FunctionRef<void(uint32_t&)> visit) {
  for (ProfileArray& array : data.arrays) visit(array.owner);
  for (ProfileStep& step : data.steps) visit(step.owner);
  for (ProfileCycleKind& kind : data.cycle_kinds) {
    visit(kind.owner);
    for (ProfileArray& request : kind.requests) visit(request.owner);
  }
}

// By owner, bytes times nanoseconds; an owner that has nothing is there, too.
std::unordered_map<uint32_t, double> WeightsOf(const ProfileData& data) {
  std::unordered_map<uint32_t, double> weights;
  const auto add = [&weights](const ProfileArray& array, int64_t end, double times) {
    const auto lived =
        static_cast<double>(std::max<int64_t>(1, std::min(array.died, end) - array.born));
    weights[array.owner] += static_cast<double>(array.taken) * lived * times;
  };
  for (const ProfileArray& array : data.arrays) add(array, data.duration, 1);
  for (const ProfileStep& step : data.steps)
    weights[step.owner] +=
        static_cast<double>(step.bytes) * static_cast<double>(data.duration - step.time);
  std::vector<double> counts(data.cycle_kinds.size());
  for (const ProfileCycles& cycles : data.cycles) counts[cycles.kind] += cycles.count;
  for (size_t k = 0; k < data.cycle_kinds.size(); ++k) {
    const ProfileCycleKind& kind = data.cycle_kinds[k];
    weights.try_emplace(kind.owner);
    for (const ProfileArray& request : kind.requests) add(request, kind.duration, counts[k]);
  }
  return weights;
}

}  // namespace

void MergeOwners(ProfileData& data, size_t limit) {
  const std::unordered_map<uint32_t, double> weights = WeightsOf(data);
  if (weights.size() <= limit) return;
  std::vector<std::pair<uint32_t, double>> order(weights.begin(), weights.end());
  const size_t kept = std::max<size_t>(1, limit) - 1;  // one is what stands for the others
  std::nth_element(order.begin(), order.begin() + static_cast<ptrdiff_t>(kept), order.end(),
                   [](const auto& a, const auto& b) {
                     return a.second != b.second ? a.second > b.second : a.first < b.first;
                   });
  const size_t merged = order.size() - kept;
  data.strings.push_back(absl::StrCat("(", merged, " smaller owners, merged)"));
  const auto name = static_cast<uint32_t>(data.strings.size() - 1);
  std::unordered_map<uint32_t, uint32_t> numbers;
  for (size_t i = 0; i < order.size(); ++i)
    numbers[order[i].first] = i < kept ? order[i].first : name;
  ForEachOwner(data, [&numbers](uint32_t& owner) { owner = numbers[owner]; });
  data.notes.push_back(
      absl::StrCat(merged, " of ", order.size(),
                   " owners are merged into one; those that had most for longest are here"));
}

void DropUnusedStrings(ProfileData& data) {
  std::vector<uint32_t> numbers(data.strings.size(), UINT32_MAX);
  std::vector<std::string> kept = {""};
  numbers[0] = 0;
  const auto keep = [&](uint32_t& string) {
    uint32_t& number = numbers[string];
    if (number == UINT32_MAX) {
      number = static_cast<uint32_t>(kept.size());
      kept.push_back(std::move(data.strings[string]));
    }
    string = number;
  };
  const auto keep_all = [&keep](ProfileArray& array) {
    keep(array.name);
    keep(array.site);
  };
  ForEachOwner(data, keep);
  for (ProfileArray& array : data.arrays) keep_all(array);
  for (ProfileCycleKind& kind : data.cycle_kinds) {
    for (ProfileArray& request : kind.requests) keep_all(request);
  }
  for (ProfilePlace& place : data.places) keep(place.name);
  data.strings = std::move(kept);
}

}  // namespace tidepool
