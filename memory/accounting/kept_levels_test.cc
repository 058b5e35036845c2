// What callbacks change is told when they have returned.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/buffer.h"

namespace tidepool {
namespace {

using Kind = MemoryEvent::Kind;

class KeptLevels : public ::testing::Test {
 protected:
  KeptLevels() { budget_.SetOwnerLimit(owner_, Host(), 1000); }
  ~KeptLevels() override {
    budget_.SetOwnerLimit(owner_, Host(), MemoryBudget::kUnlimited);
    EXPECT_EQ(budget_.Of(owner_, Host()).taken_bytes, 0);
  }
  void Reserve(int64_t bytes) { budget_.Reserve(Host(), owner_, bytes, "a test"); }
  void Release(int64_t bytes) { budget_.Release(Host(), owner_, bytes); }
  // "critical was normal: 960"
  void Note(const MemoryEvent& event) {
    if (event.kind != Kind::kLevel || event.budget != &owner_) return;
    told_.push_back(std::string(MemoryLevelName(event.level)) + " was " +
                    MemoryLevelName(event.previous) + ": " + std::to_string(event.taken_bytes));
  }

  MemoryBudget& budget_ = MemoryBudget::Global();
  MemoryOwner& owner_ = MemoryOwner::Process().Child("kept levels");
  std::vector<std::string> told_;
};

// A service does not accept while it is told "critical", and a cache lets go when it is.
TEST_F(KeptLevels, AFallWithinACallbackIsToldToAll) {
  bool accepts = true;
  const MemoryEventCallback watch([&](const MemoryEvent& event) {
    if (event.kind == Kind::kLevel) accepts = event.level != MemoryLevel::kCritical;
  });
  const MemoryEventCallback notes([&](const MemoryEvent& event) { Note(event); });
  const MemoryEventCallback drops([&](const MemoryEvent& event) {
    if (event.kind == Kind::kLevel && event.level == MemoryLevel::kCritical) Release(960);
  });
  Reserve(960);
  EXPECT_EQ(told_,
            (std::vector<std::string>{"critical was normal: 960", "normal was critical: 0"}));
  EXPECT_TRUE(accepts);
}

TEST_F(KeptLevels, EachBudgetIsToldOnceAsItIsThen) {
  const MemoryEventCallback notes([&](const MemoryEvent& event) { Note(event); });
  bool first = true;
  const MemoryEventCallback changes([&](const MemoryEvent&) {
    if (!std::exchange(first, false)) return;
    Release(800);
    Reserve(960);
    Release(100);
    Reserve(100);
  });
  Reserve(800);
  EXPECT_EQ(told_, (std::vector<std::string>{"high was normal: 800", "critical was high: 960"}));
  Release(960);
}

TEST_F(KeptLevels, WhatIsAsItWasIsNotTold) {
  const MemoryEventCallback notes([&](const MemoryEvent& event) { Note(event); });
  const MemoryEventCallback changes([&](const MemoryEvent& event) {
    if (event.kind != Kind::kLevel || event.level != MemoryLevel::kHigh) return;
    Release(500);
    Reserve(500);
  });
  Reserve(800);
  EXPECT_EQ(told_, (std::vector<std::string>{"high was normal: 800"}));
  Release(800);
}

// A callback that answers each level by the other one.
TEST_F(KeptLevels, ToAndFroEnds) {
  const MemoryEventCallback notes([&](const MemoryEvent& event) { Note(event); });
  const MemoryEventCallback swings([&](const MemoryEvent& event) {
    if (event.kind != Kind::kLevel || event.budget != &owner_) return;
    event.level == MemoryLevel::kNormal ? Reserve(900) : Release(900);
  });
  Reserve(900);
  EXPECT_EQ(told_.size(), 9);
  EXPECT_EQ(budget_.Of(owner_, Host()).taken_bytes, 0);
}

// A request that brings two budgets to other levels tells of one behind the other: what a callback of the first changes is
// told behind both, else the second one would be told last as it was before.
TEST_F(KeptLevels, WhatIsToldLastIsAsItIsOfEachBudgetThatARequestChanges) {
  MemoryOwner &above = owner_.Child("above"), &below = above.Child("below");
  for (const bool raises_limits : {true, false}) {
    budget_.SetOwnerLimit(above, Host(), 1000);
    budget_.SetOwnerLimit(below, Host(), 1000);
    MemoryLevel last[2] = {MemoryLevel::kNormal, MemoryLevel::kNormal};
    bool first = true;
    int64_t taken = 960;
    const MemoryEventCallback watch([&](const MemoryEvent& event) {
      if (event.kind != Kind::kLevel) return;
      if (event.budget == &above || event.budget == &below) {
        MemoryLevel& told = last[event.budget == &below];
        EXPECT_EQ(event.previous, told);
        told = event.level;
      }
      if (!std::exchange(first, false)) return;
      if (raises_limits) {
        budget_.SetOwnerLimit(above, Host(), 5000);
        budget_.SetOwnerLimit(below, Host(), 5000);
      } else {
        budget_.Release(Host(), below, std::exchange(taken, 100) - 100);
      }
    });
    budget_.Reserve(Host(), below, taken, "a test");
    EXPECT_FALSE(first);
    for (const MemoryLevel told : last) EXPECT_EQ(told, MemoryLevel::kNormal);
    EXPECT_EQ(budget_.Of(below, Host()).level, MemoryLevel::kNormal);
    budget_.Release(Host(), below, taken);
    for (MemoryOwner* const owner : {&above, &below})
      budget_.SetOwnerLimit(*owner, Host(), MemoryBudget::kUnlimited);
  }
}

// Of a device, and of an owner whose last lease ends in the callback.
TEST_F(KeptLevels, ABudgetStaysUntilItIsToldOf) {
  std::optional<OwnerLease> lease(std::in_place, owner_, "leased");
  MemoryOwner& leased = **lease;
  budget_.SetOwnerLimit(leased, Host(), 1000);
  std::vector<std::string> told;
  bool first = true;
  const MemoryEventCallback ends([&](const MemoryEvent& event) {
    if (event.kind != Kind::kLevel || event.budget == &owner_) return;
    told.push_back(event.ToString());
    if (!std::exchange(first, false)) return;
    budget_.Release(Host(), leased, 900);
    budget_.SetOwnerLimit(leased, Host(), MemoryBudget::kUnlimited);
    lease.reset();
    for (int i = 0; i <= 2 * kGoneOwnersNamed; ++i)
      const OwnerLease pushes(owner_, std::to_string(i));
  });
  budget_.Reserve(Host(), leased, 900, "a test");
  ASSERT_EQ(told.size(), 2);
  EXPECT_NE(told[1].find("owner [kept levels/leased] on host is normal, was high"),
            std::string::npos)
      << told[1];
}

}  // namespace
}  // namespace tidepool
