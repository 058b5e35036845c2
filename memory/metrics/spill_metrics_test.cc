#include "tidepool/memory/metrics/spill_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tidepool/memory/device.h"
#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/memory/metrics/scrape_for_test.h"
#include "tidepool/memory/spill/plan_counters.h"
#include "tidepool/memory/spill/spill_counters.h"
#include "tidepool/memory/spill/tier_counters.h"

namespace tidepool {
namespace {

TEST(SpillMetrics, SpillFilesByDirection) {
  const Exposition before = Scrape();
  internal::CountSpillUse(5000);
  internal::CountSpilled(true, {.transfers = 2,
                                .bytes = 5000,
                                .stored_bytes = 3000,
                                .stalls = 1,
                                .stall_nanoseconds = 250000000});
  internal::CountSpilled(false, {.dropped = 3, .dropped_bytes = 77});
  internal::CountSpillFailure();
  const Exposition read = Scrape();
  const auto more = [&](const char* name, const Labels& labels) {
    return read.Value(name, labels) - before.Value(name, labels);
  };
  const Labels written = {{"way", "written"}}, back = {{"way", "read"}};
  EXPECT_EQ(read.Value("tidepool_spill_file_bytes"), 5000);
  EXPECT_EQ(read.Value("tidepool_spill_file_peak_bytes"), 5000);
  EXPECT_EQ(more("tidepool_spill_bytes_total", written), 5000);
  EXPECT_EQ(more("tidepool_spill_bytes_total", back), 0);
  EXPECT_EQ(more("tidepool_spill_stored_bytes_total", written), 3000);
  EXPECT_EQ(more("tidepool_spill_transfers_total", written), 2);
  EXPECT_EQ(more("tidepool_spill_stalls_total", written), 1);
  EXPECT_EQ(more("tidepool_spill_stall_seconds_total", written), 0.25);
  EXPECT_EQ(more("tidepool_spill_dropped_total", back), 3);
  EXPECT_EQ(more("tidepool_spill_dropped_bytes_total", back), 77);
  EXPECT_EQ(more("tidepool_spill_failures_total", {}), 1);
  EXPECT_EQ(more("tidepool_reclaimer_spilled_bytes_total", {}), 0);
  internal::CountSpillUse(-5000);
  EXPECT_EQ(Scrape().Value("tidepool_spill_file_bytes"), 0);
}

TEST(SpillMetrics, PlansOfSpillableArrays) {
  const Exposition before = Scrape();
  SpillPlanCounters own;
  internal::CountSpillPlan(&own, {.cycles = 5,
                                  .followed_cycles = 3,
                                  .unrecorded_cycles = 1,
                                  .followed_uses = 70,
                                  .mispredictions = 2,
                                  .ahead = 9,
                                  .ahead_bytes = 900,
                                  .in_time = 6,
                                  .late = 2,
                                  .in_vain = 1,
                                  .early_bytes = 400});
  EXPECT_EQ(own.followed_uses, 70);
  const Exposition read = Scrape();
  const auto more = [&](const std::string& name, const Labels& labels = {}) {
    const std::string whole = "tidepool_spill_plan_" + name + "_total";
    return read.Value(whole, labels) - before.Value(whole, labels);
  };
  EXPECT_EQ(more("cycles"), 5);
  EXPECT_EQ(more("followed_cycles"), 3);
  EXPECT_EQ(more("unrecorded_cycles"), 1);
  EXPECT_EQ(more("followed_uses"), 70);
  EXPECT_EQ(more("mispredictions"), 2);
  EXPECT_EQ(more("ahead", {{"found", "in_time"}}), 6);
  EXPECT_EQ(more("ahead", {{"found", "late"}}), 2);
  EXPECT_EQ(more("ahead", {{"found", "in_vain"}}), 1);
  EXPECT_EQ(more("ahead_bytes"), 900);
  EXPECT_EQ(more("early_bytes"), 400);
}

TEST(SpillMetrics, TiersOfSpillableArrays) {
  const auto value = [](const std::string& name, const std::string& way) {
    return Scrape().Value(name, {{"tier", "host"}, {"way", way}});
  };
  const std::string name = "tidepool_spill_tier_";
  EXPECT_TRUE(std::isnan(value(name + "bytes_total", "came")));  // where none was used
  SpillTierCounters own;
  internal::CountSpillTier(Host(), &own,
                           {.came = 5,
                            .came_bytes = 500,
                            .came_nanoseconds = 250'000'000,
                            .returned = 2,
                            .returned_bytes = 200,
                            .returned_nanoseconds = 500'000'000,
                            .went_on = 3,
                            .went_on_bytes = 300});
  EXPECT_EQ(own.went_on_bytes, 300);
  internal::CountSpillTier(Host(), {.passed_by = 7});
  const Labels host = {{"tier", "host"}};
  {
    const internal::WaitingInTier one(Host(), 300);
    internal::WaitingInTier other(Host(), 40);
    other = internal::WaitingInTier(Host(), 50);
    EXPECT_EQ(Scrape().Value(name + "waiting_bytes", host), 350);
  }
  const Exposition read = Scrape();
  EXPECT_EQ(read.Value(name + "waiting_bytes", host), 0);
  EXPECT_EQ(read.Value(name + "peak_bytes", host), 390);  // for a moment there were all three
  EXPECT_EQ(read.Value(name + "passed_by_total", host), 7);
  EXPECT_EQ(value(name + "bytes_total", "came"), 500);
  EXPECT_EQ(value(name + "bytes_total", "returned"), 200);
  EXPECT_EQ(value(name + "bytes_total", "went_on"), 300);
  EXPECT_EQ(value(name + "arrays_total", "came"), 5);
  EXPECT_EQ(value(name + "arrays_total", "returned"), 2);
  EXPECT_EQ(value(name + "arrays_total", "went_on"), 3);
  EXPECT_EQ(value(name + "seconds_total", "came"), 0.25);
  EXPECT_EQ(value(name + "seconds_total", "returned"), 0.5);
}

}  // namespace
}  // namespace tidepool
