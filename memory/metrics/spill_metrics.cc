#include "tidepool/memory/metrics/spill_metrics.h"

#include <string>
#include <string_view>
#include <type_traits>

#include "tidepool/memory/device.h"
#include "tidepool/memory/spill/plan_counters.h"

namespace tidepool::internal {
namespace {

constexpr auto kCounter = ExpositionWriter::Type::kCounter;
constexpr auto kGauge = ExpositionWriter::Type::kGauge;

void One(ExpositionWriter& text, std::string_view name, ExpositionWriter::Type type,
         std::string_view help, int64_t value) {
  text.Family(name, type, help);
  text.Sample({}, value);
}

void WriteFiles(const SpillCounters& spilled, ExpositionWriter& text) {
  One(text, "tidepool_spill_file_bytes", kGauge, "Bytes in spill files.", spilled.used_bytes);
  One(text, "tidepool_spill_file_peak_bytes", kGauge, "The most bytes in spill files at once.",
      spilled.peak_bytes);
  const auto both_ways = [&](const char* name, const char* help, const auto& value) {
    text.Family(name, kCounter, help);
    text.Sample({{"way", "written"}}, value(spilled.written));
    text.Sample({{"way", "read"}}, value(spilled.read));
  };
  const auto of = [](int64_t SpillWayCounters::*member) {
    return [member](const SpillWayCounters& way) { return way.*member; };
  };
  both_ways("tidepool_spill_bytes_total", "Bytes to spill files and back.",
            of(&SpillWayCounters::bytes));
  both_ways("tidepool_spill_stored_bytes_total",
            "Of these, as they are in the file, packed or not.",
            of(&SpillWayCounters::stored_bytes));
  both_ways("tidepool_spill_transfers_total", "Transfers that were done.",
            of(&SpillWayCounters::transfers));
  both_ways("tidepool_spill_stalls_total", "Transfers that somebody had to wait for.",
            of(&SpillWayCounters::stalls));
  both_ways("tidepool_spill_stall_seconds_total", "How long they were waited for.",
            [](const SpillWayCounters& way) { return way.stall_seconds(); });
  both_ways("tidepool_spill_dropped_total", "Transfers begun that nobody asked for in the end.",
            of(&SpillWayCounters::dropped));
  both_ways("tidepool_spill_dropped_bytes_total", "Bytes of those transfers.",
            of(&SpillWayCounters::dropped_bytes));
  One(text, "tidepool_spill_failures_total", kCounter, "Transfers that ended with an error.",
      spilled.failures);
}

void WritePlans(const SpillPlanCounters& plan, ExpositionWriter& text) {
  One(text, "tidepool_spill_plan_cycles_total", kCounter, "Cycles of spillable arrays.",
      plan.cycles);
  One(text, "tidepool_spill_plan_followed_cycles_total", kCounter,
      "Of them, cycles that went by their plan.", plan.followed_cycles);
  One(text, "tidepool_spill_plan_followed_uses_total", kCounter, "Uses that came as a plan said.",
      plan.followed_uses);
  One(text, "tidepool_spill_plan_mispredictions_total", kCounter, "Cycles that left their plan.",
      plan.mispredictions);
  One(text, "tidepool_spill_plan_unrecorded_cycles_total", kCounter,
      "Cycles of more uses than are recorded.", plan.unrecorded_cycles);
  text.Family("tidepool_spill_plan_ahead_total", kCounter,
              "Arrays read ahead of their use as a plan said, by what became of them.");
  text.Sample({{"found", "in_time"}}, plan.in_time);
  text.Sample({{"found", "late"}}, plan.late);
  text.Sample({{"found", "in_vain"}}, plan.in_vain);
  One(text, "tidepool_spill_plan_ahead_bytes_total", kCounter, "Bytes read ahead as a plan said.",
      plan.ahead_bytes);
  One(text, "tidepool_spill_plan_early_bytes_total", kCounter,
      "Bytes written before they had to go as a plan said.", plan.early_bytes);
}

void WriteTiers(const std::vector<DeviceSpillTier>& tiers, ExpositionWriter& text) {
  const auto now = [&](std::string_view name, std::string_view help,
                       int64_t DeviceSpillTier::*member) {
    text.Family(name, kGauge, help);
    for (const DeviceSpillTier& tier : tiers)
      text.Sample({{"tier", DeviceName(tier.device)}}, tier.*member);
  };
  now("tidepool_spill_tier_waiting_bytes", "Bytes of devices that wait there before the file.",
      &DeviceSpillTier::waiting_bytes);
  now("tidepool_spill_tier_peak_bytes", "The most of those at once.", &DeviceSpillTier::peak_bytes);
  const auto each = [&](std::string_view name, std::string_view help, const auto& came,
                        const auto& returned, const auto& went_on) {
    text.Family(name, kCounter, help);
    for (const DeviceSpillTier& tier : tiers) {
      const std::string of = DeviceName(tier.device);
      text.Sample({{"tier", of}, {"way", "came"}}, came(tier.counters));
      text.Sample({{"tier", of}, {"way", "returned"}}, returned(tier.counters));
      if constexpr (!std::is_null_pointer_v<std::remove_cvref_t<decltype(went_on)>>)
        text.Sample({{"tier", of}, {"way", "went_on"}}, went_on(tier.counters));
    }
  };
  const auto of = [](int64_t SpillTierCounters::*member) {
    return [member](const SpillTierCounters& tier) { return tier.*member; };
  };
  const auto seconds = [](int64_t SpillTierCounters::*member) {
    return
        [member](const SpillTierCounters& tier) { return static_cast<double>(tier.*member) / 1e9; };
  };
  each("tidepool_spill_tier_bytes_total",
       "Bytes of devices to memory where they wait before the file, back, and on from there.",
       of(&SpillTierCounters::came_bytes), of(&SpillTierCounters::returned_bytes),
       of(&SpillTierCounters::went_on_bytes));
  each("tidepool_spill_tier_arrays_total", "Arrays of those.", of(&SpillTierCounters::came),
       of(&SpillTierCounters::returned), of(&SpillTierCounters::went_on));
  each("tidepool_spill_tier_seconds_total", "How long their copies were waited for.",
       seconds(&SpillTierCounters::came_nanoseconds),
       seconds(&SpillTierCounters::returned_nanoseconds), nullptr);
  text.Family("tidepool_spill_tier_passed_by_total", kCounter, "Arrays that it had no room for.");
  for (const DeviceSpillTier& tier : tiers)
    text.Sample({{"tier", DeviceName(tier.device)}}, tier.counters.passed_by);
}

}  // namespace

void WriteSpillMetrics(const SpillCounters& files, const std::vector<DeviceSpillTier>& tiers,
                       ExpositionWriter& text) {
  WriteFiles(files, text);
  WritePlans(TotalSpillPlanCounters(), text);
  WriteTiers(tiers, text);
}

}  // namespace tidepool::internal
