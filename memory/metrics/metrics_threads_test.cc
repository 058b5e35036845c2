// Scraped by one thread while others work; and many ids.
#include "tidepool/memory/metrics/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/metrics/exposition_parser.h"
#include "tidepool/memory/metrics/scrape_for_test.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

void Cycle(Workspace& workspace, size_t bytes = 4096, int requests = 4) {
  CycleIn<WorkspaceScope>(workspace, bytes, requests);
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

// All numbers of a workspace may be read while its thread works, in cycles that follow a plan and in those that are
// not written down. What they say of the open cycle is behind, and never more than it has requested.
TEST(Metrics, NumbersOfAWorkspaceAreReadWhileItWorks) {
  Workspace workspace("metrics read");
  std::atomic<int> cycles{0};
  std::atomic<bool> stop{false};
  std::thread worker([&] {
    for (int i = 0; !stop || i < 200; ++i) {
      Cycle(workspace, i % 512 < 256 ? 512 : 64 * static_cast<size_t>(1 + i % 256), 20);
      cycles = i;
    }
  });
  size_t most = 0;
  for (int i = 0; i < 2000 || cycles < 200; ++i) {
    most = std::max({most, workspace.bytes_this_cycle(), workspace.offset(),
                     workspace.bytes_last_cycle(), workspace.peak_cycle_bytes()});
    const WorkspaceStats stats = workspace.stats();
    const uint64_t ended = workspace.cycles();
    EXPECT_GE(ended, stats.cycles);
    EXPECT_GE(workspace.generation(), ended);
    most = std::max({most, workspace.spilled_bytes(), workspace.size()});
    EXPECT_LE(workspace.spilled_count(), 20u);
    (void)workspace.is_open();
  }
  stop = true;
  worker.join();
  EXPECT_LE(most, 20u * 64 * 256);
}

// The last one: owners stay for ever.
TEST(Metrics, IdsOfManyWorkspacesThatAreGoneAreBounded) {
  const auto total = [](const Exposition& read) {
    double sum = 0;
    for (const auto& [labels, value] :
         read.families.at("tidepool_workspace_cycles_total").samples) {
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
