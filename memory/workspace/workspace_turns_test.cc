// Kinds of cycles that come in some order.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/workspace/kinds_for_test.h"

namespace tidepool {
namespace {

// Kinds that come in the order in which they came before are begun with their own plans, none of them by trying others'.
TEST(WorkspaceLiveness, KindsInTurnsBeginWithTheirOwnPlans) {
  std::mt19937_64 random(49);
  for (const size_t kinds : {2, 7, 200}) {
    std::vector<Kind> set(kinds);
    for (Kind& kind : set) {
      kind = {{1024, 3}, {2048, 5}};
      Extend(random, 10, 500, &kind);
    }
    Workspace workspace("w", Learning());
    InTurns(workspace, set, 12);
    const WorkspaceStats before = workspace.stats();
    InTurns(workspace, set, 5);
    const WorkspaceStats after = workspace.stats();
    EXPECT_EQ(after.plan_switches, before.plan_switches) << kinds;
    EXPECT_EQ(after.misses, before.misses) << kinds;
    // Another order is learned as soon as it has come once.
    std::shuffle(set.begin(), set.end(), random);
    InTurns(workspace, set, 2);
    const uint64_t switches = workspace.stats().plan_switches;
    InTurns(workspace, set, 5);
    EXPECT_EQ(workspace.stats().plan_switches, switches) << kinds;
    // One in between costs its own beginning, and that of the one behind it.
    Cycle(workspace, set[0]);
    Cycle(workspace, set[0]);
    EXPECT_LE(workspace.stats().plan_switches, switches + 1) << kinds;
    EXPECT_EQ(workspace.stats().misses, before.misses) << kinds;
    // Statistics tell of the cycle that was, not of the one that is expected.
    Workspace alone("alone", Learning());
    for (int i = 0; i < 4; ++i) Cycle(alone, set[0]);
    EXPECT_EQ(workspace.stats().requested_bytes, alone.stats().requested_bytes);
    EXPECT_EQ(workspace.stats().planned_requests, set[0].size());
  }
}

// More than are planned together: each would be planned anew whenever it missed, for ever.
TEST(WorkspaceLiveness, FamiliesThatAreTooLargeStopBeingPlanned) {
  constexpr size_t kKinds = 540;
  std::mt19937_64 random(5);
  Kind common;
  Extend(random, 8, 500, &common);
  std::vector<Kind> kinds(kKinds, common);
  for (Kind& kind : kinds) {
    Extend(random, 4, 500, &kind);
    DrawLives(random, &kind);
  }
  Workspace workspace("w", Learning());
  // What comes in the same order each time follows its own plan from the beginning; this does not.
  const auto to_and_fro = [&](int times) {
    for (; times > 0; --times) {
      InTurns(workspace, kinds, 1);
      std::reverse(kinds.begin(), kinds.end());
    }
  };
  to_and_fro(40);
  const WorkspaceStats before = workspace.stats();
  to_and_fro(10);
  const WorkspaceStats after = workspace.stats();
  EXPECT_LE(after.plans - before.plans, kKinds * 5 / 4);  // not 10 for each
  EXPECT_GT(after.cycles_not_planned, before.cycles_not_planned);
  EXPECT_EQ(after.spills, before.spills);  // free ranges serve them
}

}  // namespace
}  // namespace tidepool
