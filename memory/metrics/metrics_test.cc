// The text is read back by a parser of its own and compared with what the runtime's interfaces say.
#include "tidepool/memory/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>

#include "absl/time/time.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/memory/metrics/scrape_for_test.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_census.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
void Cycle(Workspace& workspace, size_t bytes = 4096, int requests = 4) {
  CycleIn<WorkspaceScope>(workspace, bytes, requests);
}

MemoryCharge ChargeTo(MemoryOwner& owner, int64_t bytes) {
  const MemoryOwnerScope scope(owner);
  return MemoryCharge(MemoryKind::kExternal, bytes);
}

TEST(Metrics, TheLedgerByDeviceKindAndOwner) {
  const MemoryOwnerScope owner(
      MemoryOwner::Process().Child("metrics \"loader\"\\\n").Tagged("raw"));
  const MemoryCharge charge(MemoryKind::kExternal, 12345);
  const MemorySnapshot snapshot = MemoryTracker::Global().Snapshot();
  const Exposition read = Scrape();
  const MemorySnapshot after = MemoryTracker::Global().Snapshot();
  ASSERT_TRUE(Difference(snapshot, after).empty());
  int compared = 0;
  for (const DeviceMemory& memory : snapshot.devices) {
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      const Labels labels = {{"device", DeviceName(memory.device)},
                             {"kind", MemoryKindName(static_cast<MemoryKind>(kind))}};
      EXPECT_EQ(read.Value("tidepool_memory_bytes", labels), memory.kinds[kind].current_bytes);
      EXPECT_EQ(read.Value("tidepool_memory_peak_bytes", labels), memory.kinds[kind].peak_bytes);
      ++compared;
    }
    EXPECT_EQ(
        read.Value("tidepool_memory_all_kinds_peak_bytes", {{"device", DeviceName(memory.device)}}),
        memory.total.peak_bytes);
  }
  EXPECT_GE(compared, kMemoryKinds);
  for (const OwnerMemory& memory : snapshot.owners) {
    Labels labels = {{"device", DeviceName(memory.device)}, {"owner", memory.owner}};
    if (!memory.tag.empty()) labels["tag"] = memory.tag;
    EXPECT_EQ(read.Value("tidepool_owner_own_bytes", labels), memory.own_bytes) << memory.owner;
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      if (memory.kinds[kind].peak_bytes == 0) continue;
      labels["kind"] = MemoryKindName(static_cast<MemoryKind>(kind));
      EXPECT_EQ(read.Value("tidepool_owner_memory_bytes", labels),
                memory.kinds[kind].current_bytes);
      EXPECT_EQ(read.Value("tidepool_owner_memory_peak_bytes", labels),
                memory.kinds[kind].peak_bytes);
    }
  }
  EXPECT_EQ(read.Value("tidepool_owner_memory_bytes", {{"device", "host"},
                                                       {"owner", "metrics \"loader\"\\\n"},
                                                       {"tag", "raw"},
                                                       {"kind", "external"}}),
            12345);
  EXPECT_EQ(read.Value("tidepool_system_allocations_total"), snapshot.system_allocations);
  EXPECT_EQ(read.Value("tidepool_system_releases_total"), snapshot.system_releases);
  EXPECT_EQ(read.Value("tidepool_leaked_arrays_total"), snapshot.leaked_arrays);
  EXPECT_EQ(read.Value("tidepool_host_fallbacks_total"), snapshot.host_fallbacks);
  const Exposition without = Scrape({.by_owner = false});
  EXPECT_EQ(without.families.count("tidepool_owner_memory_bytes"), 0u);
  EXPECT_EQ(without.families.count("tidepool_memory_bytes"), 1u);
}

// A scraper refuses text in which a series is there twice.
TEST(Metrics, OwnersOfOnePathAreOneSeries) {
  MemoryOwner& slashed = MemoryOwner::Process().Child("twice/below");
  MemoryOwner& below = MemoryOwner::Process().Child("twice").Child("below");
  const MemoryCharge first = ChargeTo(slashed, 1000), second = ChargeTo(below, 200);
  MemoryBudget::Global().SetOwnerLimit(slashed, Host(), 5000);
  MemoryBudget::Global().SetOwnerLimit(below, Host(), 3000);
  const Exposition read = Scrape();
  EXPECT_EQ(read.Value("tidepool_owner_memory_bytes",
                       {{"device", "host"}, {"owner", "twice/below"}, {"kind", "external"}}),
            1200);
  EXPECT_EQ(read.Value("tidepool_budget_limit_bytes",
                       {{"scope", "owner"}, {"device", "host"}, {"owner", "twice/below"}}),
            3000);
  MemoryBudget::Global().SetOwnerLimit(slashed, Host(), MemoryBudget::kUnlimited);
  MemoryBudget::Global().SetOwnerLimit(below, Host(), MemoryBudget::kUnlimited);
}

TEST(Metrics, Budgets) {
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& owner = MemoryOwner::Process().Child("metrics budget");
  budget.SetProcessLimit(int64_t{1} << 40);
  budget.SetOwnerLimit(owner, Host(), 1 << 20);
  budget.Reserve(Host(), owner, 4096, "a test");
  budget.Reserve(Host(), owner, 1000, "a test");
  const Exposition read = Scrape();
  const auto expect = [&](const Labels& labels, const BudgetUsage& usage) {
    EXPECT_EQ(read.Value("tidepool_budget_taken_bytes", labels), usage.taken_bytes);
    EXPECT_EQ(read.Value("tidepool_budget_requests_total", labels), usage.requests);
    EXPECT_EQ(read.Value("tidepool_budget_requested_bytes_total", labels), usage.requested_bytes);
    if (usage.limit_bytes == MemoryBudget::kUnlimited) {
      EXPECT_EQ(read.families.at("tidepool_budget_limit_bytes").samples.count(labels), 0u);
    } else {
      EXPECT_EQ(read.Value("tidepool_budget_limit_bytes", labels), usage.limit_bytes);
    }
  };
  expect({{"scope", "process"}}, budget.process());
  expect({{"scope", "device"}, {"device", "host"}}, budget.Of(Host()));
  const Labels of_owner = {{"scope", "owner"}, {"device", "host"}, {"owner", "metrics budget"}};
  expect(of_owner, budget.Of(owner, Host()));
  EXPECT_EQ(read.Value("tidepool_budget_taken_bytes", of_owner), 5096);
  budget.Release(Host(), owner, 5096);
  budget.SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
  budget.SetProcessLimit(MemoryBudget::kUnlimited);
}

TEST(Metrics, EveryFieldOfAWorkspace) {
  WorkspaceConfig config = WorkspaceConfig::Inference();
  Workspace workspace("metrics every", config);
  for (int i = 0; i < 8; ++i) {
    WorkspaceScope scope(workspace);
    for (int k = 0; k <= i % 3; ++k) Request(1000 * (i % 3 + 1));
  }
  const WorkspaceStats stats = workspace.stats();
  EXPECT_GT(stats.hits, 0u);
  EXPECT_GT(stats.spills, 0u);
  const Exposition read = Scrape();
  const Labels labels = {{"workspace", "metrics every"}, {"device", "host"}};
  EXPECT_EQ(read.Value("tidepool_workspaces", labels), 1);
  EXPECT_EQ(read.Value("tidepool_workspaces_open", labels), 0);
  const MetricsOf metrics(read, "tidepool_workspace_", labels);
  metrics.ExpectCounter("cycles", stats.cycles);
  metrics.ExpectCounter("failed_cycles", stats.failed_cycles);
  metrics.ExpectCounter("hits", stats.hits);
  metrics.ExpectCounter("misses", stats.misses);
  metrics.ExpectCounter("spills", stats.spills);
  metrics.ExpectCounter("spilled_bytes", stats.spilled_bytes);
  metrics.ExpectCounter("leaked_arrays", stats.leaked_arrays);
  metrics.ExpectCounter("leaked_blocks", stats.leaked_blocks);
  metrics.ExpectCounter("findings", stats.findings);
  metrics.ExpectCounter("plans", stats.plans);
  metrics.ExpectCounter("plans_improved", stats.plans_improved);
  metrics.ExpectCounter("plan_switches", stats.plan_switches);
  metrics.ExpectCounter("cycles_not_planned", stats.cycles_not_planned);
  metrics.ExpectCounter("plans_given_up", stats.plans_given_up);
  metrics.ExpectCounter("relocations", stats.relocations);
  metrics.ExpectCounter("host_fallbacks", stats.host_fallbacks);
  metrics.ExpectCounter("mirror_copies_to_host", stats.mirror_copies_to_host);
  metrics.ExpectCounter("mirror_bytes_to_host", stats.mirror_bytes_to_host);
  metrics.ExpectCounter("mirror_copies_to_device", stats.mirror_copies_to_device);
  metrics.ExpectCounter("mirror_bytes_to_device", stats.mirror_bytes_to_device);
  metrics.ExpectGauge("plans_kept", stats.plans_kept);
  metrics.ExpectGauge("size_bytes", stats.size_bytes);
  metrics.ExpectGauge("planned_peak_bytes", stats.planned_peak_bytes);
  metrics.ExpectGauge("live_lower_bound_bytes", stats.live_lower_bound_bytes);
  metrics.ExpectGauge("requested_bytes", stats.requested_bytes);
  metrics.ExpectGauge("planned_requests", stats.planned_requests);
  metrics.ExpectGauge("block_bytes", static_cast<double>(stats.block_bytes));
  // A field that is added to WorkspaceStats belongs into the table, and into the list above.
  EXPECT_EQ(std::size(internal::kWorkspaceFields) * sizeof(uint64_t), sizeof(WorkspaceStats));
  const WorkspaceScope scope(workspace);
  EXPECT_EQ(Scrape().Value("tidepool_workspaces_open", labels), 1);
}

TEST(Metrics, WorkspacesOfOneIdAreSummedAndCountersNeverFall) {
  const Labels labels = {{"workspace", "metrics twins"}, {"device", "host"}};
  std::optional<Workspace> first(std::in_place, "metrics twins", WorkspaceConfig::Training());
  auto second = std::make_unique<Workspace>("metrics twins", WorkspaceConfig::Training());
  for (int i = 0; i < 5; ++i) Cycle(*first);
  for (int i = 0; i < 3; ++i) Cycle(*second, 8192);
  Exposition read = Scrape();
  EXPECT_EQ(read.Value("tidepool_workspaces", labels), 2);
  EXPECT_EQ(read.Value("tidepool_workspace_cycles_total", labels), 8);
  EXPECT_EQ(read.Value("tidepool_workspace_size_bytes", labels), first->size() + second->size());
  const double hits = read.Value("tidepool_workspace_hits_total", labels);
  EXPECT_EQ(hits, first->stats().hits + second->stats().hits);
  first.reset();
  read = Scrape();
  EXPECT_EQ(read.Value("tidepool_workspaces", labels), 1);
  EXPECT_EQ(read.Value("tidepool_workspace_cycles_total", labels), 8);
  EXPECT_EQ(read.Value("tidepool_workspace_hits_total", labels), hits);
  EXPECT_EQ(read.Value("tidepool_workspace_size_bytes", labels), second->size());
  second.reset();
  EXPECT_EQ(Scrape().Value("tidepool_workspace_cycles_total", labels), 8);
  first.emplace("metrics twins", WorkspaceConfig::Training());
  Cycle(*first);
  EXPECT_EQ(Scrape().Value("tidepool_workspace_cycles_total", labels), 9);
}

TEST(Metrics, DevicesAreApartAndCanBeTogether) {
  Workspace here("metrics devices", WorkspaceConfig::Training());
  Workspace there("metrics devices", WorkspaceConfig::Training(), SimulatedDevice::kDevice);
  Cycle(here);
  Cycle(there);
  Cycle(there);
  const Exposition read = Scrape();
  const std::string name = DeviceName(SimulatedDevice::kDevice);
  EXPECT_EQ(read.Value("tidepool_workspace_cycles_total",
                       {{"workspace", "metrics devices"}, {"device", "host"}}),
            1);
  EXPECT_EQ(read.Value("tidepool_workspace_cycles_total",
                       {{"workspace", "metrics devices"}, {"device", name}}),
            2);
  const Exposition together = Scrape({.by_id = false});
  EXPECT_EQ(together.families.at("tidepool_workspace_cycles_total").samples.size(), 2u);
  double cycles = 0;
  for (const auto& [labels, value] : read.families.at("tidepool_workspace_cycles_total").samples) {
    if (labels.at("device") == "host") cycles += value;
  }
  EXPECT_EQ(together.Value("tidepool_workspace_cycles_total", {{"device", "host"}}), cycles);
}

TEST(Metrics, Rings) {
  const Labels labels = {{"ring", "metrics ring"}, {"device", "host"}};
  uint64_t committed = 0;
  {
    RingWorkspace ring("metrics ring", WorkspaceConfig::Ring(3));
    for (int i = 0; i < 5; ++i) {
      RingSlotScope slot(ring);
      Request(1000);
      SlotLease lease = slot.Commit();
    }
    RingSlotScope open(ring);
    SlotLease kept = [&] {
      RingSlotScope slot(ring);
      return slot.Commit();
    }();
    kept.Keep();
    const RingStats stats = ring.stats();
    committed = stats.committed;
    const Exposition read = Scrape();
    EXPECT_EQ(read.Value("tidepool_rings", labels), 1);
    const auto slots = [&](const char* state) {
      Labels with = labels;
      with["state"] = state;
      return read.Value("tidepool_ring_slots", with);
    };
    EXPECT_EQ(slots("idle"), stats.idle);
    EXPECT_EQ(slots("open"), 1);
    EXPECT_EQ(slots("leased"), 1);
    EXPECT_EQ(read.Value("tidepool_ring_slots_kept", labels), 1);
    EXPECT_EQ(read.Value("tidepool_ring_opened_total", labels), stats.opened);
    EXPECT_EQ(read.Value("tidepool_ring_committed_total", labels), 6);
    EXPECT_EQ(read.Value("tidepool_ring_hits_total", labels), stats.hits);
    EXPECT_EQ(read.Value("tidepool_ring_spills_total", labels), stats.spills);
    EXPECT_EQ(read.Value("tidepool_ring_plans_total", labels), stats.plans);
    EXPECT_EQ(read.Value("tidepool_ring_slot_bytes", labels), stats.slot_bytes);
    EXPECT_EQ(read.Value("tidepool_ring_planned_peak_bytes", labels), stats.planned_peak_bytes);
    // Its slots are the ring's, not workspaces.
    for (const auto& [at, value] : read.families.at("tidepool_workspaces").samples) {
      EXPECT_THAT(at.at("workspace"), ::testing::Not(HasSubstr("metrics ring")));
    }
    open.Discard();
  }
  const Exposition read = Scrape();
  EXPECT_EQ(read.Value("tidepool_rings", labels), 0);
  EXPECT_EQ(read.Value("tidepool_ring_committed_total", labels), committed);
  EXPECT_EQ(read.Value("tidepool_ring_slot_bytes", labels), 0);
}

TEST(Metrics, TheReclaimerAndTheProcess) {
  Reclaimer& reclaimer = Reclaimer::Global();
  const Reclaimer::Registration gives =
      reclaimer.Register("test", [](ReclaimDepth) { return 777; });
  const Exposition before = Scrape();
  reclaimer.ReclaimUnderPressure(1);
  reclaimer.set_window(absl::Seconds(1000));
  const int64_t faults = PageFaults();
  const Exposition read = Scrape();
  EXPECT_EQ(read.Value("tidepool_reclaimer_runs_total", {{"why", "pressure"}}),
            reclaimer.stats().pressure_runs);
  EXPECT_EQ(read.Value("tidepool_reclaimer_reclaimed_bytes_total"),
            before.Value("tidepool_reclaimer_reclaimed_bytes_total") + 777);
  EXPECT_EQ(read.Value("tidepool_reclaimer_window_seconds"), 1000);
  EXPECT_EQ(read.Value("tidepool_reclaimer_enabled"), 1);
  reclaimer.set_window(absl::ZeroDuration());
  reclaimer.set_enabled(false);
  EXPECT_EQ(Scrape().Value("tidepool_reclaimer_enabled"), 0);
  reclaimer.set_enabled(true);
  EXPECT_GE(read.Value("tidepool_process_page_faults_total"), faults);
  EXPECT_GT(read.Value("tidepool_process_resident_bytes"), 1 << 20);
}

TEST(Metrics, NamesAreThoseOfTheDocumentation) {
  std::ifstream file("docs/metrics.md");
  ASSERT_TRUE(file.good());
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    // Those of services of nn/ are held against their own text there.
    if (!line.starts_with("| `tidepool_") || line.starts_with("| `tidepool_inference_")) continue;
    documented.insert(line.substr(3, line.find('`', 3) - 3));
  }
  std::string reason;
  const bool counting = StartCountingMemorySystemCalls(&reason);
  std::set<std::string> written;
  for (const auto& [name, family] : Scrape().families) {
    written.insert(name);
    EXPECT_EQ(family.type == "counter", name.ends_with("_total")) << name;
    EXPECT_NE(family.help, "") << name;
    EXPECT_TRUE(name.starts_with("tidepool_")) << name;
  }
  if (!counting) written.insert("tidepool_process_memory_system_calls_total");
  EXPECT_EQ(written, documented);
}

}  // namespace
}  // namespace tidepool
