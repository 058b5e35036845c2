// What is told, to whom, in which order; and that a callback can do no harm.
#include "tidepool/memory/accounting/memory_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = MemoryEvent::Kind;

constexpr int64_t kNone = MemoryBudget::kUnlimited;

BufferHandle New(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

// An owner of its own for each test: levels are those of its budget.
class MemoryEvents : public ::testing::Test {
 protected:
  MemoryEvents()
      : owner_(MemoryOwner::Process().Child(
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~MemoryEvents() override {
    budget_.SetOwnerLimit(owner_, Host(), kNone);
    EXPECT_EQ(budget_.Of(owner_, Host()).taken_bytes, 0);
  }
  void Reserve(int64_t bytes) { budget_.Reserve(Host(), owner_, bytes, "a test"); }
  void Release(int64_t bytes) { budget_.Release(Host(), owner_, bytes); }
  MemoryLevel Level() const { return budget_.Of(owner_, Host()).level; }
  std::string Refused(int64_t bytes) {
    try {
      Reserve(bytes);
    } catch (const OutOfMemoryError& error) {
      return error.message();
    }
    return "granted";
  }

  MemoryBudget& budget_ = MemoryBudget::Global();
  MemoryOwner& owner_;
};

std::vector<std::string> LinesOf(const std::vector<MemoryEvent>& events) {
  std::vector<std::string> lines;
  for (const MemoryEvent& event : events) lines.push_back(event.ToString());
  return lines;
}

TEST(MemoryLevels, AreReachedAndLeftFivePercentBelow) {
  const auto after = [](MemoryLevel before, int64_t taken) {
    return MemoryLevelAfter(before, taken, 1000);
  };
  using enum MemoryLevel;
  EXPECT_EQ(after(kNormal, 799), kNormal);
  EXPECT_EQ(after(kNormal, 800), kHigh);
  EXPECT_EQ(after(kHigh, 949), kHigh);
  EXPECT_EQ(after(kHigh, 950), kCritical);
  EXPECT_EQ(after(kCritical, 900), kCritical);
  EXPECT_EQ(after(kCritical, 899), kHigh);
  EXPECT_EQ(after(kCritical, 750), kHigh);
  EXPECT_EQ(after(kHigh, 750), kHigh);
  EXPECT_EQ(after(kHigh, 749), kNormal);
  EXPECT_EQ(after(kNormal, 1 << 30), kCritical);
  EXPECT_EQ(MemoryLevelAfter(kCritical, 1000, kNone), kNormal);
  EXPECT_EQ(MemoryLevelAfter(kNormal, 0, 0), kCritical);  // nothing may be taken
}

TEST(MemoryLevels, AreSharesOfAnyLimit) {
  using enum MemoryLevel;
  const auto first = [](MemoryLevel before, MemoryLevel level, int64_t limit, int64_t from) {
    int64_t taken = from;
    while (MemoryLevelAfter(before, taken, limit) < level) ++taken;
    return taken;
  };
  for (int64_t limit = 1; limit < 500; ++limit) {
    for (const auto& [before, level, percent] : {std::tuple(kNormal, kHigh, 80),
                                                 {kNormal, kCritical, 95},
                                                 {kHigh, kHigh, 75},
                                                 {kHigh, kCritical, 95},
                                                 {kCritical, kHigh, 75},
                                                 {kCritical, kCritical, 90}}) {
      const int64_t taken = first(before, level, limit, 0);
      EXPECT_GE(taken * 100, limit * percent) << limit;
      EXPECT_LT((taken - 1) * 100, limit * percent) << limit;
    }
  }
  // Limits whose multiples are more than a number holds.
  constexpr int64_t kInAll = int64_t{1} << 57;  // not a multiple of 20: 12 bytes more
  constexpr int64_t kMost = kNone - 1;          // likewise: 6 bytes more
  EXPECT_EQ(first(kNormal, kHigh, kInAll, kInAll / 20 * 16), kInAll / 20 * 16 + 10);
  EXPECT_EQ(first(kNormal, kCritical, kInAll, kInAll / 20 * 19), kInAll / 20 * 19 + 12);
  EXPECT_EQ(first(kNormal, kHigh, kMost, kMost / 20 * 16), kMost / 20 * 16 + 5);
  EXPECT_EQ(first(kCritical, kCritical, kMost, kMost / 20 * 18), kMost / 20 * 18 + 6);
}

TEST_F(MemoryEvents, LevelsAreToldOnceEachWay) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  std::vector<MemoryEvent> events;
  const MemoryEventCallback watch([&](const MemoryEvent& event) { events.push_back(event); });
  Reserve(700);
  EXPECT_TRUE(events.empty());
  Reserve(100);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].kind, Kind::kLevel);
  EXPECT_EQ(events[0].level, MemoryLevel::kHigh);
  EXPECT_EQ(events[0].previous, MemoryLevel::kNormal);
  EXPECT_EQ(events[0].budget, &owner_);
  EXPECT_EQ(events[0].taken_bytes, 800);
  EXPECT_EQ(events[0].limit_bytes, 1000);
  EXPECT_EQ(events[0].request.owner, &owner_);
  EXPECT_EQ(events[0].request.bytes, 100);
  for (int i = 0; i < 5; ++i) {  // to and fro around the level
    Release(20);
    Reserve(20);
  }
  EXPECT_EQ(events.size(), 1u);
  Reserve(150);
  EXPECT_EQ(Level(), MemoryLevel::kCritical);
  Release(300);
  EXPECT_EQ(Level(), MemoryLevel::kNormal);
  budget_.SetOwnerLimit(owner_, Host(), 760);  // 650 of it
  budget_.SetOwnerLimit(owner_, Host(), kNone);
  EXPECT_EQ(Level(), MemoryLevel::kNormal);
  Release(650);
  EXPECT_THAT(LinesOf(events),
              ElementsAre("memory level of owner [LevelsAreToldOnceEachWay] on host is high, was "
                          "normal: 800 of 1000 bytes are taken",
                          HasSubstr("is critical, was high: 950 of 1000"),
                          HasSubstr("is normal, was critical: 650 of 1000"),
                          HasSubstr("is high, was normal: 650 of 760"),
                          HasSubstr("is normal, was high: 650 of 9223372036854775807")));
}

TEST_F(MemoryEvents, TheReclaimerIsToldOfBeforeAndAfter) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  Reserve(1000);
  int64_t has = 300;
  const auto gives = Reclaimer::Global().Register("test", [&](ReclaimDepth) -> int64_t {
    const int64_t bytes = std::exchange(has, 0);
    if (bytes > 0) Release(bytes);
    return bytes;
  });
  std::vector<MemoryEvent> events;
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind != Kind::kLevel) events.push_back(event);
  });
  Reserve(200);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].kind, Kind::kReclaimBegins);
  EXPECT_EQ(events[0].request.owner, &owner_);
  EXPECT_EQ(events[0].request.bytes, 200);
  EXPECT_STREQ(events[0].request.what, "a test");
  EXPECT_EQ(events[0].wanted_bytes, 200);
  EXPECT_EQ(events[1].kind, Kind::kReclaimEnds);
  EXPECT_EQ(events[1].reclaimed_bytes, 300);
  EXPECT_EQ(events[1].missing_bytes, 0);
  events.clear();
  std::string message;
  const MemoryEventCallback of_refusal([&](const MemoryEvent& event) {
    if (event.kind == Kind::kRefused) message = std::string(event.message);
  });
  const std::string thrown = Refused(400);
  EXPECT_EQ(message, thrown);
  ASSERT_EQ(events.size(), 3u);  // in rounds, but told once
  EXPECT_EQ(events[1].reclaimed_bytes, 0);
  EXPECT_EQ(events[1].missing_bytes, 300);
  EXPECT_EQ(events[2].kind, Kind::kRefused);
  EXPECT_EQ(events[2].request.bytes, 400);
  Release(900);
}

TEST_F(MemoryEvents, ARefusalIsToldBeforeItIsThrownWithPolicyAndLedger) {
  WorkspaceConfig config;
  config.policy_allocation = AllocationPolicy::kStrict;
  config.policy_spill = SpillPolicy::kFail;
  config.initial_size = 4096;
  config.policy_learning = LearningPolicy::kNone;
  Workspace fails("events fail", config);
  config = WorkspaceConfig::Training();
  config.max_size = 8192;
  Workspace bounded("events max", config);
  std::vector<std::string> told;
  bool catching = false;
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    EXPECT_FALSE(catching);
    EXPECT_EQ(event.kind, Kind::kRefused);
    EXPECT_THAT(std::string(event.report), HasSubstr("host"));
    told.push_back(std::string(event.policy) + " " + event.request.owner->Path() + " " +
                   std::to_string(event.request.bytes) + " " + std::string(event.message));
  });
  for (Workspace* workspace : {&fails, &bounded}) {
    catching = false;
    WorkspaceScope scope(*workspace);
    try {
      New(10000);
      ADD_FAILURE() << "granted";
    } catch (const OutOfMemoryError& error) {
      catching = true;
      EXPECT_THAT(told.back(), HasSubstr(error.message()));
    }
  }
  EXPECT_THAT(told,
              ElementsAre(HasSubstr("policy_spill kFail workspace events fail 10048 workspace ["),
                          HasSubstr("max_size workspace events max 10048 workspace [")));
}

TEST_F(MemoryEvents, ADeviceThatRefusesIsToldOf) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.set_capacity(1 << 20);
  {
    Workspace workspace("events device", WorkspaceConfig::Training(), SimulatedDevice::kDevice);
    std::vector<MemoryEvent::Kind> kinds;
    const MemoryEventCallback watch([&](const MemoryEvent& event) {
      kinds.push_back(event.kind);
      EXPECT_EQ(event.request.device, SimulatedDevice::kDevice);
      EXPECT_EQ(event.request.owner->Path(), "workspace events device");
      EXPECT_GE(event.request.bytes, 2 << 20);
    });
    WorkspaceScope scope(workspace);
    EXPECT_THROW(New(2 << 20), OutOfMemoryError);
    EXPECT_EQ(kinds.front(), Kind::kReclaimBegins);
    EXPECT_EQ(kinds.back(), Kind::kRefused);
    EXPECT_EQ(std::count(kinds.begin(), kinds.end(), Kind::kRefused), 1);
  }
  device.Reset();
}

TEST_F(MemoryEvents, AManagersBudgetIsToldOf) {
  Ownership manager = Ownership::Process().NewChild("events manager");
  manager.SetBudget(1000);
  std::string policy;
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    policy = std::string(event.policy);
    EXPECT_EQ(event.request.bytes, 5000);
    EXPECT_THAT(std::string(event.report), HasSubstr("events manager"));
  });
  const BufferHandle array = New(5000);
  EXPECT_THROW(manager.Attach(array), OutOfMemoryError);
  EXPECT_EQ(policy, "the budget of a manager");
}

}  // namespace
}  // namespace tidepool
