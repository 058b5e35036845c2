// What is told of pools of workspaces: all of it, summed by id, and beside pools that come, work and go.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/memory/metrics/scrape_for_test.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/pool_census.h"
#include "tidepool/memory/workspace/workspace_pool.h"

namespace tidepool {
namespace {

void Cycle(WorkspacePool& pool, size_t bytes = 4096, int requests = 4) {
  CycleIn<PooledScope>(pool, bytes, requests);
}

WorkspaceConfig Quiet() {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  config.plan_search_seconds = 0;
  return config;
}

double Workspaces(const Exposition& read, Labels labels, const char* state) {
  labels["state"] = state;
  return read.Value("tidepool_pool_workspaces", labels);
}

TEST(MetricsOfPools, EveryField) {
  WorkspacePool pool("metrics pool", Quiet());
  for (int kind = 0; kind < 30; ++kind) {  // of kinds that never come again, and one that does
    Cycle(pool, 5000 + 64 * kind, 3);
    Cycle(pool, 4096, 6);
  }
  {
    PooledScope misses(pool);
    for (int i = 0; i < 3; ++i) Request(4096);
    Request(100000);
  }
  EXPECT_THROW(
      {
        PooledScope fails(pool);
        throw Error(absl::StatusCode::kInternal, "a test");
      },
      Error);
  BufferHandle late;
  {
    PooledScope leaks(pool);
    late = Request(4096);
  }
  const WorkspaceLease leased = pool.Lease();
  std::optional<PooledScope> open(std::in_place, pool);
  const BufferHandle made = Request(4096);
  const WorkspacePoolStats stats = pool.stats();
  EXPECT_GT(stats.cycles, 0u);
  EXPECT_GT(stats.misses, 0u);
  EXPECT_GT(stats.spills, 0u);
  EXPECT_GT(stats.cycles_not_planned, 0u);
  EXPECT_EQ(stats.failed_cycles, 1u);
  EXPECT_EQ(stats.leaked_arrays, 1u);
  EXPECT_EQ(stats.ranges, 1u);
  EXPECT_GT(stats.open_bytes, 0u);
  const Exposition read = Scrape();
  const Labels labels = {{"pool", "metrics pool"}, {"device", "host"}};
  EXPECT_EQ(read.Value("tidepool_pools", labels), 1);
  EXPECT_EQ(stats.workspaces, 2u);
  EXPECT_EQ(Workspaces(read, labels, "leased"), 2);
  EXPECT_EQ(Workspaces(read, labels, "idle"), 0);
  const MetricsOf metrics(read, "tidepool_pool_", labels);
  metrics.ExpectCounter("cycles", stats.cycles);
  metrics.ExpectCounter("failed_cycles", stats.failed_cycles);
  metrics.ExpectCounter("hits", stats.hits);
  metrics.ExpectCounter("misses", stats.misses);
  metrics.ExpectCounter("spills", stats.spills);
  metrics.ExpectCounter("leaked_arrays", stats.leaked_arrays);
  metrics.ExpectCounter("leaked_blocks", stats.leaked_blocks);
  metrics.ExpectCounter("plans", stats.plans);
  metrics.ExpectCounter("plans_improved", stats.plans_improved);
  metrics.ExpectCounter("cycles_not_planned", stats.cycles_not_planned);
  metrics.ExpectCounter("plans_given_up", stats.plans_given_up);
  metrics.ExpectGauge("plans_kept", stats.plans_kept);
  metrics.ExpectGauge("ranges", stats.ranges);
  metrics.ExpectGauge("held_bytes", stats.held_bytes);
  metrics.ExpectGauge("block_bytes", stats.block_bytes);
  metrics.ExpectGauge("open_bytes", stats.open_bytes);
  metrics.ExpectGauge("most_open_bytes", stats.most_open_bytes);
  // A field that is added to WorkspacePoolStats belongs into the table, and into the list above; workspaces and
  // leased are told by state.
  EXPECT_EQ((std::size(internal::kPoolFields) + 2) * sizeof(uint64_t), sizeof(WorkspacePoolStats));
  // Its workspaces are told as workspaces as well.
  EXPECT_EQ(read.Value("tidepool_workspaces", {{"workspace", "metrics pool"}, {"device", "host"}}),
            2);
  open.reset();
  const Exposition after = Scrape();
  EXPECT_EQ(Workspaces(after, labels, "leased"), 1);
  EXPECT_EQ(Workspaces(after, labels, "idle"), 1);
  EXPECT_EQ(after.Value("tidepool_pool_ranges", labels), 0);
  EXPECT_EQ(after.Value("tidepool_pool_open_bytes", labels), 0);
  EXPECT_EQ(after.Value("tidepool_pool_held_bytes", labels), pool.stats().held_bytes);
  pool.Trim();
  EXPECT_EQ(Scrape().Value("tidepool_pool_held_bytes", labels), 0);
  EXPECT_EQ(Workspaces(Scrape(), labels, "idle"), 0);
}

TEST(MetricsOfPools, ThoseOfOneIdAreSummedAndCountersNeverFall) {
  const Labels labels = {{"pool", "metrics twin pools"}, {"device", "host"}};
  std::optional<WorkspacePool> first(std::in_place, "metrics twin pools", Quiet());
  auto second = std::make_unique<WorkspacePool>("metrics twin pools", Quiet());
  for (int i = 0; i < 5; ++i) Cycle(*first);
  for (int i = 0; i < 3; ++i) Cycle(*second, 8192);
  Exposition read = Scrape();
  EXPECT_EQ(read.Value("tidepool_pools", labels), 2);
  EXPECT_EQ(read.Value("tidepool_pool_cycles_total", labels), 8);
  EXPECT_EQ(read.Value("tidepool_pool_plans_kept", labels), 2);
  EXPECT_EQ(Workspaces(read, labels, "idle"), 2);
  EXPECT_EQ(read.Value("tidepool_pool_most_open_bytes", labels),
            first->stats().most_open_bytes + second->stats().most_open_bytes);
  const double hits = read.Value("tidepool_pool_hits_total", labels);
  EXPECT_EQ(hits, first->stats().hits + second->stats().hits);
  // A lease keeps its pool's memory, so what is told of that stays.
  WorkspaceLease lease = first->Lease();
  first.reset();
  {
    WorkspaceScope scope(*lease);
    for (int i = 0; i < 4; ++i) Request(4096);
    EXPECT_GT(Scrape().Value("tidepool_pool_open_bytes", labels), 0);
  }
  read = Scrape();
  EXPECT_EQ(read.Value("tidepool_pools", labels), 2);
  EXPECT_EQ(Workspaces(read, labels, "leased"), 1);
  EXPECT_EQ(read.Value("tidepool_pool_cycles_total", labels), 9);
  lease.Release();
  read = Scrape();
  EXPECT_EQ(read.Value("tidepool_pools", labels), 1);
  EXPECT_EQ(read.Value("tidepool_pool_cycles_total", labels), 9);
  EXPECT_EQ(read.Value("tidepool_pool_hits_total", labels), hits + 4);
  EXPECT_EQ(read.Value("tidepool_pool_plans_total", labels), 2);
  EXPECT_EQ(read.Value("tidepool_pool_plans_kept", labels), 1);
  EXPECT_EQ(read.Value("tidepool_pool_held_bytes", labels), second->stats().held_bytes);
  second.reset();
  read = Scrape();
  EXPECT_EQ(read.Value("tidepool_pools", labels), 0);
  EXPECT_EQ(read.Value("tidepool_pool_held_bytes", labels), 0);
  EXPECT_EQ(read.Value("tidepool_pool_cycles_total", labels), 9);
  first.emplace("metrics twin pools", Quiet());
  Cycle(*first);
  EXPECT_EQ(Scrape().Value("tidepool_pool_cycles_total", labels), 10);
}

TEST(MetricsOfPools, DevicesAreApartAndCanBeTogether) {
  WorkspacePool here("metrics pool devices", Quiet());
  WorkspacePool there("metrics pool devices", Quiet(), SimulatedDevice::kDevice);
  Cycle(here);
  for (int i = 0; i < 2; ++i) Cycle(there);
  const std::string device = DeviceName(SimulatedDevice::kDevice);
  const Exposition read = Scrape();
  const auto cycles = [&](const std::string& on) {
    return read.Value("tidepool_pool_cycles_total",
                      {{"pool", "metrics pool devices"}, {"device", on}});
  };
  EXPECT_EQ(cycles("host"), 1);
  EXPECT_EQ(cycles(device), 2);
  const WorkspaceLease lease = there.Lease();
  const Exposition together = Scrape({.by_id = false});
  EXPECT_EQ(together.families.at("tidepool_pools").samples.size(), 2u);
  EXPECT_EQ(together.Value("tidepool_pool_cycles_total", {{"device", device}}), 2);
  EXPECT_EQ(Workspaces(together, {{"device", device}}, "leased"), 1);
}

// Counters that a scraper sees while pools are made, used by several threads and destroyed never fall and never
// jump, and gauges fit together.
TEST(MetricsOfPools, ScrapedWhilePoolsComeWorkAndGo) {
  std::atomic<bool> stop{false};
  std::atomic<int> ready{0};
  WorkspacePool lasting("metrics racing pools", WorkspaceConfig::Inference());
  std::vector<std::thread> workers;
  for (int t = 0; t < 3; ++t) {
    workers.emplace_back([&, t] {
      for (int i = 0; !stop || i < 50; ++i) {
        Cycle(lasting, 512 + 64 * (i % 40), 8);
        WorkspacePool brief("metrics racing pools", Quiet());
        WorkspaceLease outlives = brief.Lease();
        Cycle(brief, 256, t + 2);
        if (i % 8 == t) lasting.Trim();
        if (i == 5) ++ready;
      }
    });
  }
  while (ready < 3) std::this_thread::yield();
  const Labels labels = {{"pool", "metrics racing pools"}, {"device", "host"}};
  std::map<std::pair<std::string, Labels>, double> last;
  for (int scrape = 0; scrape < 60; ++scrape) {
    const Exposition read = Scrape({.by_owner = scrape % 2 == 0});
    for (const auto& [name, family] : read.families) {
      for (const auto& [at, value] : family.samples) {
        if (family.type != "counter" || !name.starts_with("tidepool_pool")) continue;
        double& before = last[{name, at}];
        EXPECT_GE(value, before) << name;
        EXPECT_LT(value, 1e15) << name;
        before = value;
      }
    }
    const double pools = read.Value("tidepool_pools", labels);
    EXPECT_GE(pools, 1);
    EXPECT_LE(pools, 4);
    EXPECT_LE(Workspaces(read, labels, "leased"), 9);
    EXPECT_LE(Workspaces(read, labels, "idle"), 9);
    EXPECT_LE(read.Value("tidepool_pool_ranges", labels), 6);
    EXPECT_LT(read.Value("tidepool_pool_held_bytes", labels), 1e12);
  }
  stop = true;
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(Scrape().Value("tidepool_pools", labels), 1);
  EXPECT_EQ(Workspaces(Scrape(), labels, "leased"), 0);
}

// A service that is short of memory may say so with all numbers, in the middle of a pool's request for some, and
// while others read them.
TEST(MetricsOfPools, ReadInAnEventOfAPoolThatGrows) {
  WorkspacePool pool("metrics growing pool", Quiet());
  for (int i = 0; i < 2; ++i) Cycle(pool, 1 << 20, 2);
  pool.Trim();
  std::atomic<int> told{0};
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind != MemoryEvent::Kind::kRefused) return;
    EXPECT_NE(MetricsText().find("metrics growing pool"), std::string::npos);
    ++told;
  });
  std::atomic<bool> stop{false};
  std::thread scraper([&] {
    while (!stop) MetricsText();
  });
  const int64_t taken = MemoryBudget::Global().Of(Host()).taken_bytes;
  MemoryBudget::Global().SetDeviceLimit(Host(), taken + (256 << 10));
  for (int i = 0; i < 50; ++i) EXPECT_THROW(Cycle(pool, 1 << 20, 2), OutOfMemoryError);
  MemoryBudget::Global().SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  stop = true;
  scraper.join();
  EXPECT_GE(told, 50);
  Cycle(pool, 1 << 20, 2);
}

}  // namespace
}  // namespace tidepool
