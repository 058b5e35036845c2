#include "tidepool/memory/spill/tier_counters.h"

#include <atomic>
#include <bit>
#include <cinttypes>
#include <utility>

#include "tidepool/memory/device_check.h"
#include "tidepool/memory/io/append_format.h"

namespace tidepool {
namespace {

using Member = int64_t SpillTierCounters::*;
constexpr Member kMembers[] = {&SpillTierCounters::came,
                               &SpillTierCounters::came_bytes,
                               &SpillTierCounters::came_nanoseconds,
                               &SpillTierCounters::returned,
                               &SpillTierCounters::returned_bytes,
                               &SpillTierCounters::returned_nanoseconds,
                               &SpillTierCounters::went_on,
                               &SpillTierCounters::went_on_bytes,
                               &SpillTierCounters::passed_by};
constexpr int kCount = sizeof(kMembers) / sizeof(kMembers[0]);
static_assert(sizeof(SpillTierCounters) == kCount * sizeof(int64_t));

constinit std::atomic<int64_t> totals[kDevicePlaces][kCount];
constinit std::atomic<int64_t> waiting[kDevicePlaces], peaks[kDevicePlaces];

// A bit for each place of which anything was counted.
constexpr int kWordBits = 64;
constinit std::atomic<uint64_t> counted[kDevicePlaces / kWordBits];
static_assert(kDevicePlaces % kWordBits == 0);

SpillTierCounters TotalAt(int place) noexcept {
  SpillTierCounters all;
  for (int i = 0; i < kCount; ++i)
    all.*kMembers[i] = totals[place][i].load(std::memory_order_relaxed);
  return all;
}

double Seconds(int64_t nanoseconds) { return static_cast<double>(nanoseconds) * 1e-9; }

}  // namespace

SpillTierCounters TotalSpillTierCounters(Device device) {
  return TotalAt(DevicePlace("spill tiers", device));
}

std::vector<DeviceSpillTier> SpillTiersByDevice() {
  std::vector<DeviceSpillTier> tiers;
  internal::ForEachSpillTier([&](const DeviceSpillTier& tier) { tiers.push_back(tier); });
  return tiers;
}

std::string DescribeSpillTiers(const std::vector<DeviceSpillTier>& tiers) {
  std::string out;
  for (const DeviceSpillTier& tier : tiers) {
    const SpillTierCounters& ever = tier.counters;
    AppendFormat(
        &out,
        "spill tier %s: %" PRId64 " bytes wait there, at most %" PRId64 "; %" PRId64
        " came (%" PRId64 " bytes, waited for %.3f s), %" PRId64 " returned (%" PRId64
        " bytes, %.3f s), %" PRId64 " went on (%" PRId64 " bytes), %" PRId64 " passed by\n",
        DeviceName(tier.device).c_str(), tier.waiting_bytes, tier.peak_bytes, ever.came,
        ever.came_bytes, Seconds(ever.came_nanoseconds), ever.returned, ever.returned_bytes,
        Seconds(ever.returned_nanoseconds), ever.went_on, ever.went_on_bytes, ever.passed_by);
  }
  return out;
}

namespace internal {

void CountSpillTier(Device device, const SpillTierCounters& change) noexcept {
  const int place = DevicePlace("spill tiers", device);
  for (int i = 0; i < kCount; ++i) {
    const int64_t by = change.*kMembers[i];
    if (by != 0) totals[place][i].fetch_add(by, std::memory_order_relaxed);
  }
  std::atomic<uint64_t>& word = counted[place / kWordBits];
  const uint64_t bit = uint64_t{1} << (place % kWordBits);
  // Written once, so that those who count in other devices' memory do not wait for it.
  if ((word.load(std::memory_order_relaxed) & bit) == 0)
    word.fetch_or(bit, std::memory_order_relaxed);
}

void CountSpillTier(Device device, SpillTierCounters* counters,
                    const SpillTierCounters& change) noexcept {
  for (const Member member : kMembers) counters->*member += change.*member;
  CountSpillTier(device, change);
}

void ForEachSpillTier(absl::FunctionRef<void(const DeviceSpillTier&)> function) {
  for (int word = 0; word < kDevicePlaces / kWordBits; ++word) {
    for (uint64_t left = counted[word].load(std::memory_order_relaxed); left != 0;
         left &= left - 1) {
      const int place = word * kWordBits + std::countr_zero(left);
      function({DeviceAt(place), waiting[place].load(std::memory_order_relaxed),
                peaks[place].load(std::memory_order_relaxed), TotalAt(place)});
    }
  }
}

WaitingInTier::WaitingInTier(Device device, int64_t bytes) noexcept
    : device_(device), bytes_(bytes) {
  const int place = DevicePlace("spill tiers", device);
  const int64_t now = waiting[place].fetch_add(bytes, std::memory_order_relaxed) + bytes;
  int64_t most = peaks[place].load(std::memory_order_relaxed);
  while (now > most && !peaks[place].compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
}

WaitingInTier::WaitingInTier(WaitingInTier&& other) noexcept
    : device_(other.device_), bytes_(std::exchange(other.bytes_, 0)) {}

WaitingInTier& WaitingInTier::operator=(WaitingInTier&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  device_ = other.device_;
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

void WaitingInTier::Reset() noexcept {
  const int64_t bytes = std::exchange(bytes_, 0);
  if (bytes != 0)
    waiting[DevicePlace("spill tiers", device_)].fetch_sub(bytes, std::memory_order_relaxed);
}

}  // namespace internal
}  // namespace tidepool
