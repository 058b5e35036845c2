// Each matcher both ways: what it lets pass, what it refuses, and what it says then.
#include "tidepool/memory/testing/matchers.h"

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

void Cycle(Workspace& workspace, size_t bytes) {
  WorkspaceScope scope(workspace);
  BufferHandle a = New(bytes);
  BufferHandle b = New(64);
}

// The text of the failure, as EXPECT_THAT makes it; "" when the assertion holds.
template <typename Action, typename Matcher>
std::string FailureOf(const Action& action, const Matcher& matcher) {
  ::testing::TestPartResultArray results;
  {
    ::testing::ScopedFakeTestPartResultReporter reporter(
        ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &results);
    EXPECT_THAT(action, matcher);
  }
  std::string text;
  for (int i = 0; i < results.size(); ++i) text += results.GetTestPartResult(i).message();
  return text;
}

TEST(AllocatesNothing, ASteadyCycleDoes) {
  Workspace workspace("steady", WorkspaceConfig::Training());
  for (int i = 0; i < 2; ++i) Cycle(workspace, 4096);
  EXPECT_THAT([&] { Cycle(workspace, 4096); }, AllocatesNothing());
  EXPECT_THAT([] {}, AllocatesNothing());
}

TEST(AllocatesNothing, TransientAndLastingMemoryIsFoundWithItsOwner) {
  BufferHandle kept;
  auto action = [&] {
    MemoryOwnerScope owner("net");
    MemoryTagScope tag("conv");
    New(100);
    kept = New(300);
  };
  EXPECT_THAT(
      FailureOf(action, AllocatesNothing()),
      AllOf(HasSubstr("an action that asks the system for no tensor memory"),
            HasSubstr("which asked the system 2 times for tensor memory; at most 300 bytes"),
            HasSubstr("on host, net #conv: 2 requests of 400 bytes in all"),
            HasSubstr("still held:"), HasSubstr("on host, net #conv: allocated +300")));
  EXPECT_THAT(FailureOf([] { New(8); }, AllocatesNothing()),
              AllOf(HasSubstr("asked the system 1 time"), HasSubstr("all given back")));
}

TEST(AllocatesNothing, AFirstCycleIsFound) {
  Workspace workspace("first", WorkspaceConfig::Training());
  EXPECT_THAT(FailureOf([&] { Cycle(workspace, 4096); }, AllocatesNothing()),
              HasSubstr("workspace first"));
}

TEST(AllocatesNothing, TheOpposite) {
  EXPECT_THAT([] { New(8); }, Not(AllocatesNothing()));
  EXPECT_THAT(FailureOf([] {}, Not(AllocatesNothing())),
              HasSubstr("not an action that asks the system for no tensor memory"));
}

TEST(PeakAtMost, CountsWhatIsInUseAtOnceInWorkspacesAndOutside) {
  Workspace workspace("peak", WorkspaceConfig::Training());
  const BufferHandle before = New(1 << 20);  // was there already
  for (int i = 0; i < 2; ++i) Cycle(workspace, 4096);
  auto action = [&] {
    { BufferHandle one = New(1000); }
    BufferHandle two = New(1000);
    WorkspaceScope scope(workspace);
    { BufferHandle a = New(4096); }
    BufferHandle b = New(64);
  };
  EXPECT_THAT(action, PeakAtMost(5096));
  EXPECT_THAT(FailureOf(action, PeakAtMost(5000)),
              AllOf(HasSubstr("uses at most 5000 bytes more on host"),
                    HasSubstr("which used 5096 bytes more at once, 96 too many"),
                    HasSubstr("allocated at most +5096")));
}

TEST(PeakAtMost, OfADevice) {
  const Device device{DeviceType::Named("simulated"), 0};
  auto action = [&] { const MemoryCharge charge(MemoryKind::kGradientDeferred, 50, device); };
  EXPECT_THAT(action, PeakAtMost(0));
  EXPECT_THAT(action, PeakAtMost(50, device));
  EXPECT_THAT(FailureOf(action, PeakAtMost(49, device)),
              AllOf(HasSubstr("on simulated:0"), HasSubstr("gradient deferred at most +50")));
}

TEST(LeaksNothing, MemoryThatIsGivenBackOrKeptForLater) {
  Workspace workspace("kept", WorkspaceConfig::Training());
  Cycle(workspace, 100);
  EXPECT_THAT([&] { Cycle(workspace, 4096); }, LeaksNothing());  // its pages are no leak
  EXPECT_THAT([] { New(100); }, LeaksNothing());
}

TEST(LeaksNothing, MemoryLeftInUseIsFoundByKindAndOwner) {
  BufferHandle kept;
  auto action = [&] {
    MemoryOwnerScope owner("leaky");
    kept = BufferHandle(NewHeapBuffer(77, 64, MemoryKind::kGradientExternal));
  };
  EXPECT_THAT(FailureOf(action, LeaksNothing()),
              AllOf(HasSubstr("which left memory in use:"),
                    HasSubstr("on host, leaky: gradient external +77")));
  // One array in place of another is no leak.
  EXPECT_THAT(action, LeaksNothing());
}

TEST(LeaksNothing, ArraysThatOutliveTheirCycleAreFound) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.use_cycle_detector = false;
  Workspace workspace("cycle", config);
  for (int i = 0; i < 2; ++i) Cycle(workspace, 4096);
  BufferHandle kept;
  auto action = [&] {
    WorkspaceScope scope(workspace);
    kept = New(4096);
  };
  EXPECT_THAT(FailureOf(action, LeaksNothing()),
              HasSubstr("1 array outlived the cycle of a workspace"));
}

TEST(StaysInPlan, ASteadyCycleDoesAndAnotherOneDoesNot) {
  Workspace workspace("plan", WorkspaceConfig::Training());
  EXPECT_THAT(
      FailureOf([&] { Cycle(workspace, 4096); }, StaysInPlan(workspace)),
      AllOf(HasSubstr("runs cycles of workspace [plan] as planned"), HasSubstr("had no plan yet"),
            HasSubstr("made 1 new plans"), HasSubstr("changed its size from 0 to")));
  EXPECT_THAT([&] { Cycle(workspace, 4096); }, StaysInPlan(workspace));
  EXPECT_THAT(FailureOf([&] { Cycle(workspace, 8192); }, StaysInPlan(workspace)),
              AllOf(HasSubstr("in 1 cycles, missed the plan in 1 requests"),
                    HasSubstr("served 1 requests (8192 bytes) outside of the pages")));
  EXPECT_THAT(FailureOf([] {}, StaysInPlan(workspace)), HasSubstr("ended no cycle"));
}

TEST(MemoryMatchers, TheActionRunsOncePerAssertion) {
  int runs = 0;
  BufferHandle kept;
  auto once = [&] {
    if (++runs == 1) kept = New(64);  // a cache: a second run would find nothing
  };
  EXPECT_THAT(FailureOf(once, AllocatesNothing()), HasSubstr("asked the system 1 time"));
  EXPECT_EQ(runs, 1);
  const auto matcher = LeaksNothing();
  EXPECT_THAT(once, matcher);
  EXPECT_THAT(once, matcher);
  EXPECT_EQ(runs, 3);
}

TEST(MemoryMatchers, ExceptionsPass) {
  auto throws = [] { throw std::runtime_error("x"); };
  EXPECT_THROW(static_cast<void>(::testing::Value(throws, AllocatesNothing())), std::runtime_error);
  EXPECT_THROW(static_cast<void>(::testing::Value(throws, PeakAtMost(1))), std::runtime_error);
}

TEST(MemoryMatchers, CombineWithOthers) {
  EXPECT_THAT([] {}, AllOf(AllocatesNothing(), PeakAtMost(0), LeaksNothing()));
}

}  // namespace
}  // namespace tidepool
