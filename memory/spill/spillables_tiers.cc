// Where things of devices wait before the file.
#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/memory/spill/spillables_serving.h"

namespace tidepool {

std::vector<SpillTier> Spillables::CheckedTiers(std::vector<SpillTier> tiers,
                                                const std::string& name) {
  for (auto tier = tiers.begin(); tier != tiers.end(); ++tier) {
    const std::string what = absl::StrCat("Spillables [", name, "]: tier ", tier - tiers.begin());
    GetDeviceProvider(tier->device, what);
    if (tier->bytes <= 0) {
      ThrowInvalidArgument(
          absl::StrCat(what, ": found ", tier->bytes, " bytes, expected more than 0"));
    }
    const bool again = std::any_of(tiers.begin(), tier, [&](const SpillTier& before) {
      return before.device == tier->device;
    });
    if (again) {
      ThrowInvalidArgument(absl::StrCat(what, ": found ", DeviceName(tier->device),
                                        " again, expected each device once"));
    }
  }
  return tiers;
}

// By how much it lacks room, in what the tier may have or in a budget.
bool Spillables::HasRoomInTier(const Item& item, size_t tier, int64_t* missing) const {
  int64_t here = 0;
  for (const std::shared_ptr<Item>& each : Items()) {
    if (each->tier == static_cast<int>(tier) && each->state.has_memory()) here += each->bytes;
  }
  const Serving serving({tiers_[tier].device, &item.owner, item.bytes, "an array in a tier"});
  *missing = std::max(here - (tiers_[tier].bytes - item.bytes), serving.missing_bytes());
  return *missing <= 0;
}

bool Spillables::MakeRoomInTier(const Item& item, size_t tier) {
  if (IsChild()) return false;
  if (item.bytes > tiers_[tier].bytes) {
    const std::lock_guard lock(mutex_);
    CountInTier(static_cast<int>(tier), {.passed_by = 1});
    return false;
  }
  int64_t missing = 0, used_next = -1;
  if (HasRoomInTier(item, tier, &missing)) return true;
  {
    const std::lock_guard lock(mutex_);
    if (cycle_.follows() && caution_ < kLeastRecentUse)
      used_next = cycle_.NextUse(*item.root_ != nullptr ? **item.root_ : item);
  }
  SpillWhere(
      missing, [&](const Item& each) { return each.tier == static_cast<int>(tier); },
      /*to_file=*/false, used_next);
  const bool is_room = HasRoomInTier(item, tier, &missing);
  if (!is_room) {
    const std::lock_guard lock(mutex_);
    CountInTier(static_cast<int>(tier), {.passed_by = 1});
  }
  return is_room;
}

void Spillables::CountInTier(int tier, const SpillTierCounters& change) noexcept {
  const auto t = static_cast<size_t>(tier);
  internal::CountSpillTier(tiers_[t].device, &in_tiers_[t], change);
}

void Spillables::EnterTier(const std::shared_ptr<Item>& copy, std::chrono::nanoseconds took) {
  CheckNotChild(*copy);
  const std::lock_guard lock(mutex_);
  copy->place_ = items_.insert(items_.end(), copy);
  copy->listed_ = true;
  copy->waiting_ = internal::WaitingInTier(copy->device, copy->bytes);
  CountInTier(copy->tier, {.came = 1, .came_bytes = copy->bytes, .came_nanoseconds = took.count()});
}

bool Spillables::PinInTier(Item& copy) {
  Found found = Found::kHere;
  if (!copy.state.Pin(&found, !internal::InCallback())) {
    ThrowFailedPrecondition(absl::StrCat(
        "spillable \"", copy.name,
        "\": it goes from its tier, and a callback of the runtime may not wait for that"));
  }
  return found == Found::kHere;
}

void Spillables::ReturnFromTier(Item& copy, std::chrono::nanoseconds took) noexcept {
  LeaveTier(copy);
  const std::lock_guard lock(mutex_);
  CountInTier(copy.tier,
              {.returned = 1, .returned_bytes = copy.bytes, .returned_nanoseconds = took.count()});
}

void Spillables::LeaveTier(Item& copy) noexcept {
  if (IsChild()) return;
  const std::lock_guard lock(mutex_);
  if (std::exchange(copy.listed_, false)) items_.erase(copy.place_);
}

}  // namespace tidepool
