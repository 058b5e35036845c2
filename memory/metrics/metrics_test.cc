// The text is read back by a parser of its own and compared with what the runtime's interfaces say.
#include "tidepool/memory/metrics/metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/memory/metrics/exposition_writer.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_census.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using Labels = ExpositionLabels;

Exposition Scrape(const MetricsOptions& options = {}) {
  Exposition read = ExpositionParser::Parse(MetricsText(options));
  EXPECT_EQ(read.error, "");
  return read;
}

BufferHandle Request(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

void Cycle(Workspace& workspace, size_t bytes = 4096, int requests = 4) {
  WorkspaceScope scope(workspace);
  for (int i = 0; i < requests; ++i) Request(bytes);
}

MemoryCharge ChargeTo(MemoryOwner& owner, int64_t bytes) {
  const MemoryOwnerScope scope(owner);
  return MemoryCharge(MemoryKind::kExternal, bytes);
}

TEST(ExpositionWriter, WritesTheFormat) {
  ExpositionWriter text;
  text.Family("a_total", ExpositionWriter::Type::kCounter, "Back\\slash,\nline, \"quote\".");
  text.Sample({}, uint64_t{18446744073709551615u});
  text.Sample({{"x", "a\"b\\c\nd"}, {"none", ""}, {"y", "\xff caf\xc3\xa9"}}, int64_t{-3});
  text.Family("b", ExpositionWriter::Type::kGauge, "");
  text.Sample({}, 0.1);
  text.Sample({{"v", "inf"}}, std::numeric_limits<double>::infinity());
  text.Sample({{"v", "nan"}}, std::nan(""));
  const std::string written = std::move(text).Take();
  EXPECT_EQ(written,
            "# HELP a_total Back\\\\slash,\\nline, \"quote\".\n"
            "# TYPE a_total counter\n"
            "a_total 18446744073709551615\n"
            "a_total{x=\"a\\\"b\\\\c\\nd\",y=\"\\\\xff caf\\\\xc3\\\\xa9\"} -3\n"
            "# HELP b \n"
            "# TYPE b gauge\n"
            "b 0.10000000000000001\n"
            "b{v=\"inf\"} +Inf\n"
            "b{v=\"nan\"} NaN\n");
  const Exposition read = ExpositionParser::Parse(written);
  EXPECT_EQ(read.error, "");
  EXPECT_EQ(read.families.at("a_total").help, "Back\\slash,\nline, \"quote\".");
  EXPECT_EQ(read.Value("a_total", {{"x", "a\"b\\c\nd"}, {"y", "\\xff caf\\xc3\\xa9"}}), -3);
}

TEST(ExpositionParser, RefusesWhatScrapersRefuse) {
  const std::string head = "# HELP a A.\n# TYPE a gauge\n";
  EXPECT_EQ(ExpositionParser::Parse(head + "a{b=\"c\"} 1\n").error, "");
  for (const char* wrong : {"a{b=\"c\"} 1", "a{b=\"c} 1\n", "a{b=\"c\"}1\n", "a{b=\"c\\x\"} 1\n", "a 1\na 1\n",
                            "b 1\n", "a{1=\"c\"} 1\n", "a x\n", "\n", "# TYPE a gauge\n",
                            "# HELP a B.\n", "a{b=\"c\",b=\"d\"} 1\n"}) {
    EXPECT_NE(ExpositionParser::Parse(head + wrong).error, "") << wrong;
  }
}

TEST(Metrics, TheLedgerByDeviceKindAndOwner) {
  const MemoryOwnerScope owner(MemoryOwner::Process().Child("metrics \"loader\"\\\n").Tagged("raw"));
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
    EXPECT_EQ(read.Value("tidepool_memory_all_kinds_peak_bytes",
                         {{"device", DeviceName(memory.device)}}),
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
      EXPECT_EQ(read.Value("tidepool_owner_memory_bytes", labels), memory.kinds[kind].current_bytes);
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
  const auto counter = [&](const char* name, uint64_t value) {
    const std::string family = std::string("tidepool_workspace_") + name + "_total";
    EXPECT_EQ(read.families.at(family).type, "counter");
    EXPECT_EQ(read.Value(family, labels), value) << name;
  };
  const auto gauge = [&](const char* name, size_t value) {
    const std::string family = std::string("tidepool_workspace_") + name;
    EXPECT_EQ(read.families.at(family).type, "gauge");
    EXPECT_EQ(read.Value(family, labels), value) << name;
  };
  counter("cycles", stats.cycles);
  counter("failed_cycles", stats.failed_cycles);
  counter("hits", stats.hits);
  counter("misses", stats.misses);
  counter("spills", stats.spills);
  counter("spilled_bytes", stats.spilled_bytes);
  counter("leaked_arrays", stats.leaked_arrays);
  counter("findings", stats.findings);
  counter("plans", stats.plans);
  counter("plans_improved", stats.plans_improved);
  counter("plan_switches", stats.plan_switches);
  counter("cycles_not_planned", stats.cycles_not_planned);
  counter("relocations", stats.relocations);
  counter("host_fallbacks", stats.host_fallbacks);
  counter("mirror_copies_to_host", stats.mirror_copies_to_host);
  counter("mirror_bytes_to_host", stats.mirror_bytes_to_host);
  counter("mirror_copies_to_device", stats.mirror_copies_to_device);
  counter("mirror_bytes_to_device", stats.mirror_bytes_to_device);
  gauge("plans_kept", stats.plans_kept);
  gauge("size_bytes", stats.size_bytes);
  gauge("planned_peak_bytes", stats.planned_peak_bytes);
  gauge("live_lower_bound_bytes", stats.live_lower_bound_bytes);
  gauge("requested_bytes", stats.requested_bytes);
  gauge("planned_requests", stats.planned_requests);
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
  const Reclaimer::Registration gives = reclaimer.Register("test", [](ReclaimDepth) { return 777; });
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

// Counters that a scraper sees while workspaces work, and come and go, never fall and never jump.
TEST(Metrics, ScrapedWhileWorkspacesWork) {
  std::atomic<bool> stop{false};
  std::atomic<int> ready{0};
  std::vector<std::thread> workers;
  for (int t = 0; t < 2; ++t) {
    workers.emplace_back([&, t] {
      RingWorkspace ring("metrics racing ring", WorkspaceConfig::Ring(2));
      Workspace lasting("metrics racing", WorkspaceConfig::Training());
      for (int i = 0; !stop || i < 50; ++i) {
        Cycle(lasting, 512, 20);
        Workspace brief("metrics racing", WorkspaceConfig::Inference());
        Cycle(brief, 256, t + 2);
        RingSlotScope slot(ring);
        Request(100);
        SlotLease lease = slot.Commit();
        if (i == 5) ++ready;
      }
    });
  }
  while (ready < 2) std::this_thread::yield();
  std::map<std::pair<std::string, Labels>, double> last;
  for (int scrape = 0; scrape < 40; ++scrape) {
    const Exposition read = Scrape({.by_owner = scrape % 2 == 0});
    for (const auto& [name, family] : read.families) {
      if (family.type != "counter") continue;
      for (const auto& [labels, value] : family.samples) {
        double& before = last[{name, labels}];
        EXPECT_GE(value, before) << name;
        EXPECT_LT(value, 1e15) << name;
        before = value;
      }
    }
  }
  stop = true;
  for (std::thread& worker : workers) worker.join();
}

// What the scraper says of hits is behind by a cycle at most, and right when the cycle has ended.
TEST(Metrics, HitsOfAnOpenCycleAreToldAtItsEnd) {
  Workspace workspace("metrics hits", WorkspaceConfig::Training());
  for (int i = 0; i < 4; ++i) Cycle(workspace, 512, 10);
  const uint64_t before = workspace.stats().hits;
  WorkspaceScope scope(workspace);
  for (int i = 0; i < 7; ++i) Request(512);
  EXPECT_EQ(workspace.stats().hits, before + 7);
  std::thread([&] { EXPECT_EQ(workspace.stats().hits, before); }).join();
}

TEST(Metrics, NamesAreThoseOfTheDocumentation) {
  std::ifstream file("docs/metrics.md");
  ASSERT_TRUE(file.good());
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("| `tidepool_")) continue;
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

// The last one: owners stay for ever.
TEST(Metrics, IdsOfManyWorkspacesThatAreGoneAreBounded) {
  const auto total = [](const Exposition& read) {
    double sum = 0;
    for (const auto& [labels, value] : read.families.at("tidepool_workspace_cycles_total").samples) {
      sum += value;
    }
    return sum;
  };
  const double before = total(Scrape());
  constexpr int kMany = 1500;
  for (int i = 0; i < kMany; ++i) {
    Workspace workspace("metrics gone " + std::to_string(i), WorkspaceConfig::Training());
    Cycle(workspace, 64, 1);
  }
  const Exposition read = Scrape();
  EXPECT_EQ(total(read), before + kMany);
  EXPECT_LE(read.families.at("tidepool_workspace_cycles_total").samples.size(), 1010u);
  EXPECT_GE(read.Value("tidepool_workspace_cycles_total",
                       {{"workspace", "(others)"}, {"device", "host"}}),
            500);
  EXPECT_EQ(read.Value("tidepool_workspace_cycles_total",
                       {{"workspace", "metrics gone 1499"}, {"device", "host"}}),
            1);
}

}  // namespace
}  // namespace tidepool
