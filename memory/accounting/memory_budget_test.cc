#include "tidepool/memory/accounting/memory_budget.h"

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <new>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const Device kDevice{DeviceType::Named("simulated"), 3};

// A device of its own per test: the budget is the process's.
class Budget : public ::testing::Test {
 protected:
  Budget()
      : device_{DeviceType::Named("simulated"), next_++},
        owner_(MemoryOwner::Process().Child("net")) {}
  ~Budget() override {
    budget_.SetProcessLimit(MemoryBudget::kUnlimited);
    budget_.SetDeviceLimit(device_, MemoryBudget::kUnlimited);
    budget_.SetOwnerLimit(owner_, device_, MemoryBudget::kUnlimited);
    EXPECT_EQ(budget_.Of(device_).taken_bytes, 0);
  }
  std::string MessageOf(int64_t bytes) {
    try {
      budget_.Reserve(device_, owner_.Child("step"), bytes, "pages");
    } catch (const OutOfMemoryError& error) {
      return error.message();
    }
    ADD_FAILURE() << "granted";
    return "";
  }

  static inline uint8_t next_ = 0;
  MemoryBudget& budget_ = MemoryBudget::Global();
  const Device device_;
  MemoryOwner& owner_;
};

TEST_F(Budget, CountsEveryLevelWithoutLimits) {
  MemoryOwner& step = owner_.Child("step");
  const int64_t process = budget_.process().taken_bytes;
  const int64_t requests = budget_.Of(owner_, device_).requests;
  budget_.Reserve(device_, step, 100, "pages");
  budget_.Reserve(device_, owner_, 11, "pages");
  EXPECT_EQ(budget_.process().taken_bytes - process, 111);
  EXPECT_EQ(budget_.Of(device_).taken_bytes, 111);
  EXPECT_EQ(budget_.Of(owner_, device_).taken_bytes, 111);
  EXPECT_EQ(budget_.Of(step, device_).taken_bytes, 100);
  EXPECT_EQ(budget_.Of(owner_, device_).requests - requests, 2);
  EXPECT_EQ(budget_.Of(owner_, kDevice).taken_bytes, 0);
  budget_.Release(device_, step, 100);
  budget_.Release(device_, owner_, 11);
}

TEST_F(Budget, EachLevelRefusesWhatExceedsIt) {
  MemoryOwner& step = owner_.Child("step");
  budget_.SetOwnerLimit(owner_, device_, 100);
  budget_.Reserve(device_, step, 90, "pages");
  EXPECT_THAT(MessageOf(11), AllOf(HasSubstr("[net/step] needs 11 bytes"),
                                   HasSubstr("the limit of owner [net] is 100 bytes, 90 are taken"),
                                   HasSubstr("1 bytes more would have to go")));
  EXPECT_EQ(budget_.Of(owner_, device_).taken_bytes, 90);  // nothing changed
  budget_.Reserve(device_, step, 10, "pages");             // exactly the limit
  budget_.Reserve(device_, MemoryOwner::Process().Child("other"), 1000, "pages");
  budget_.SetOwnerLimit(owner_, device_, MemoryBudget::kUnlimited);
  budget_.SetDeviceLimit(device_, 1200);
  EXPECT_THAT(MessageOf(101), HasSubstr("the limit of device simulated:"));
  budget_.SetDeviceLimit(device_, MemoryBudget::kUnlimited);
  budget_.SetProcessLimit(budget_.process().taken_bytes + 5);
  EXPECT_THAT(MessageOf(6), HasSubstr("the limit of the process is"));
  budget_.Reserve(device_, step, 5, "pages");
  budget_.Release(device_, step, 105);
  budget_.Release(device_, MemoryOwner::Process().Child("other"), 1000);
}

// What others hold makes no room below an owner's limit.
TEST_F(Budget, TheErrorOfAnOwnersLimitNamesThoseBelowIt) {
  MemoryOwner& step = owner_.Child("step");
  const std::pair<MemoryOwner*, int64_t> holders[] = {
      {&MemoryOwner::Process().Child("loader"), 500},
      {&MemoryOwner::Process().Child(owner_.name() + "2"), 400},
      {&step, 60},
      {&owner_.Tagged("weights"), 30}};
  for (const auto& [owner, bytes] : holders)
    MemoryTracker::Global().Add(device_, MemoryKind::kAllocated, bytes, owner);
  budget_.SetOwnerLimit(owner_, device_, 0);
  EXPECT_THAT(MessageOf(1), HasSubstr("held by net/step 60 (allocated 60), net #weights 30 ("));
  EXPECT_THAT(MessageOf(1), testing::Not(HasSubstr("loader")));
  for (const auto& [owner, bytes] : holders)
    MemoryTracker::Global().Add(device_, MemoryKind::kAllocated, -bytes, owner);
}

TEST_F(Budget, TheErrorNamesTheHoldersAndCarriesTheLedger) {
  MemoryTracker::Global().Add(device_, MemoryKind::kAllocated, 70, &owner_.Tagged("weights"));
  MemoryTracker::Global().Add(device_, MemoryKind::kExternal, 500,
                              &MemoryOwner::Process().Child("loader"));
  budget_.SetDeviceLimit(device_, 0);
  try {
    budget_.Reserve(device_, owner_, 1, "a heap array");
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(error.message(), HasSubstr("for a heap array"));
    EXPECT_THAT(error.message(),
                HasSubstr("held by loader 500 (external 500), net #weights 70 (allocated 70)"));
    EXPECT_THAT(error.report(), HasSubstr("loader"));
    EXPECT_EQ(error.message().find('\n'), std::string::npos);
  }
  MemoryTracker::Global().Add(device_, MemoryKind::kAllocated, -70, &owner_.Tagged("weights"));
  MemoryTracker::Global().Add(device_, MemoryKind::kExternal, -500,
                              &MemoryOwner::Process().Child("loader"));
}

TEST_F(Budget, LimitsBelowUseAreReportedAndTakeNothingAway) {
  budget_.Reserve(device_, owner_, 300, "pages");
  const BudgetUsage usage = budget_.SetDeviceLimit(device_, 100);
  EXPECT_EQ(usage.taken_bytes, 300);
  EXPECT_EQ(usage.over_bytes(), 200);
  EXPECT_THAT(MessageOf(1), HasSubstr("201 bytes more would have to go"));
  budget_.Release(device_, owner_, 250);
  budget_.Reserve(device_, owner_, 50, "pages");
  EXPECT_EQ(budget_.Of(device_).over_bytes(), 0);
  budget_.Release(device_, owner_, 100);
}

TEST_F(Budget, ReclaimersAreAskedFirst) {
  int64_t cached = 80;
  budget_.Reserve(device_, owner_, cached, "pages");
  auto callback = Reclaimer::Global().Register("cache", [&](ReclaimDepth depth) -> int64_t {
    const int64_t part = depth == ReclaimDepth::kSpare ? std::min<int64_t>(cached, 30) : cached;
    budget_.Release(device_, owner_, part);
    cached -= part;
    return part;
  });
  budget_.SetDeviceLimit(device_, 100);
  budget_.Reserve(device_, owner_, 20, "pages");
  EXPECT_EQ(cached, 80);  // it fitted
  budget_.Reserve(device_, owner_, 10, "pages");
  EXPECT_EQ(cached, 50);  // spare bytes were enough
  budget_.Reserve(device_, owner_, 60, "pages");
  EXPECT_EQ(cached, 0);
  EXPECT_THAT(MessageOf(11), HasSubstr("0 bytes were reclaimed"));
  budget_.Release(device_, owner_, 90);
}

TEST_F(Budget, ABraggingReclaimerEndsInAnError) {
  auto callback = Reclaimer::Global().Register("liar", [](ReclaimDepth) { return 1000000; });
  budget_.SetDeviceLimit(device_, 10);
  MessageOf(11);
}

TEST_F(Budget, ACallbackThatAllocatesDoesNotRecur) {
  auto callback = Reclaimer::Global().Register("needy", [&](ReclaimDepth) -> int64_t {
    budget_.Reserve(device_, owner_, 1000, "pages");
    return 1;
  });
  budget_.SetDeviceLimit(device_, 10);
  MessageOf(11);
}

// Asked last, for what is missing still; never where nothing is refused, nor by a run for what is idle.
class TestSpiller final : public Spiller {
 public:
  int64_t Spill(int64_t wanted, const MemoryRequest& request) override {
    wanted_ += wanted;
    last = request;
    const int64_t gone = gives ? gives(wanted) : 0;
    return gone;
  }
  std::string DescribePinned() const override { return pinned; }

  std::function<int64_t(int64_t)> gives;
  std::string pinned;
  MemoryRequest last;
  int64_t wanted_ = 0;
};

TEST_F(Budget, SpillersAreAskedLastForWhatIsMissing) {
  int64_t cached = 30, written = 100;
  budget_.Reserve(device_, owner_, cached + written, "pages");
  auto callback = Reclaimer::Global().Register("cache", [&](ReclaimDepth) -> int64_t {
    budget_.Release(device_, owner_, cached);
    return std::exchange(cached, 0);
  });
  TestSpiller spiller;
  spiller.gives = [&](int64_t wanted) {
    const int64_t gone = std::min(wanted, written);
    budget_.Release(device_, owner_, gone);
    written -= gone;
    return gone;
  };
  const Reclaimer::Registration spills = Reclaimer::Global().Register("spills", spiller);
  const int64_t spilled = Reclaimer::Global().stats().spilled_bytes;
  budget_.SetDeviceLimit(device_, 140);
  budget_.Reserve(device_, owner_, 40, "pages");  // 30 of the cache are enough
  EXPECT_EQ(spiller.wanted_, 0);
  budget_.Reserve(device_, owner_, 20, "pages");
  EXPECT_EQ(spiller.wanted_, 20);
  EXPECT_EQ(spiller.last.bytes, 20);
  EXPECT_EQ(spiller.last.device, device_);
  EXPECT_EQ(written, 80);
  EXPECT_EQ(Reclaimer::Global().stats().spilled_bytes - spilled, 20);
  Reclaimer::Global().RunNow();
  EXPECT_EQ(written, 80) << "what is idle is not what is in use";
  EXPECT_EQ(budget_.SetDeviceLimit(device_, 100).over_bytes(), 0);  // a limit that is lowered
  EXPECT_EQ(written, 40);
  spiller.pinned = "40 bytes could be spilled but for their use";
  spiller.gives = nullptr;
  EXPECT_THAT(MessageOf(41),
              AllOf(HasSubstr("41 bytes more would have to go, or a limit of 141; held"),
                    HasSubstr("nobody; 40 bytes could be spilled but for")));
  spiller.gives = [&](int64_t) -> int64_t { throw std::bad_alloc(); };
  MessageOf(41);
  budget_.Release(device_, owner_, 100);
}

TEST_F(Budget, SoftLimitsAskAndRefuseNothing) {
  TestSpiller spiller;
  const Reclaimer::Registration spills = Reclaimer::Global().Register("spills", spiller);
  EXPECT_EQ(budget_.SetDeviceSoftLimit(device_, 100).soft_limit_bytes, 100);
  EXPECT_TRUE(budget_.limited());
  budget_.Reserve(device_, owner_, 100, "pages");
  EXPECT_EQ(spiller.wanted_, 0);
  budget_.Reserve(device_, owner_, 30, "pages");
  EXPECT_EQ(spiller.wanted_, 30);
  budget_.SetOwnerSoftLimit(owner_, device_, 50);  // over already
  EXPECT_EQ(spiller.wanted_, 30 + 80);
  budget_.SetProcessSoftLimit(budget_.process().taken_bytes);
  EXPECT_EQ(spiller.wanted_, 110);
  budget_.Reserve(device_, owner_, 1, "pages");
  EXPECT_EQ(spiller.wanted_, 110 + 81) << "that which is over most";
  budget_.SetDeviceLimit(device_, 131);
  EXPECT_THAT(MessageOf(1), HasSubstr("1 bytes more would have to go"));
  EXPECT_EQ(budget_.Of(device_).limit_bytes, 131);
  EXPECT_THROW(budget_.SetDeviceSoftLimit(device_, -1), Error);
  budget_.SetDeviceSoftLimit(device_, MemoryBudget::kUnlimited);
  budget_.SetOwnerSoftLimit(owner_, device_, MemoryBudget::kUnlimited);
  budget_.SetProcessSoftLimit(MemoryBudget::kUnlimited);
  budget_.SetDeviceLimit(device_, MemoryBudget::kUnlimited);
  EXPECT_FALSE(budget_.limited());
  budget_.Release(device_, owner_, 131);
}

TEST_F(Budget, NegativeNumbersAreRefused) {
  EXPECT_THROW(budget_.SetDeviceLimit(device_, -1), Error);
  const int64_t before = budget_.process().taken_bytes;
  try {
    budget_.Reserve(device_, owner_, -5, "pages");
    ADD_FAILURE() << "granted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("[net]: found -5 bytes, expected at least 0"));
  }
  EXPECT_THROW(budget_.TryReserve(device_, owner_, INT64_MIN), Error);
  EXPECT_EQ(budget_.process().taken_bytes, before);
}

TEST(BudgetWithoutDevice, WhatNobodyHasReservedIsNotReleased) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& owner = MemoryOwner::Process().Child("wrong releases");
  EXPECT_DEATH(budget.Release(Host(), owner.Child("never"), 1),
               "\\[wrong releases/never\\] releases 1 bytes on host: found 0 bytes");
  budget.Reserve(Host(), owner, 100, "pages");
  EXPECT_DEATH(budget.Release(Host(), owner, 101), "found 100 bytes");
  EXPECT_DEATH(budget.Release(Host(), owner, -1), "releases -1 bytes");
  budget.Release(Host(), owner, 100);
  EXPECT_EQ(budget.Of(owner, Host()).taken_bytes, 0);
}

// As large as no machine is: refused whatever the limits are, and nothing wraps around.
TEST_F(Budget, WhatNoMachineHasIsRefused) {
  const int64_t requested = budget_.process().requested_bytes;
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(MessageOf(int64_t{1} << 62),
                HasSubstr("[net/step] needs 4611686018427387904 bytes on simulated"));
    EXPECT_GT(budget_.TryReserve(device_, owner_, INT64_MAX), 0);
  }
  EXPECT_EQ(budget_.process().requested_bytes, requested);
}

// The sums are numbers, also where each request is one that there may be and there are no limits.
TEST_F(Budget, SumsThatNoMachineHasAreRefused) {
  MemoryOwner& step = owner_.Child("step");
  const int64_t before = budget_.process().taken_bytes;
  int64_t granted = 0;
  for (int i = 0; i < 40000 && budget_.TryReserve(device_, step, kMostCountedBytes) == 0; ++i) {
    ++granted;
  }
  EXPECT_LE(budget_.process().taken_bytes, kMostCountedBytesInAll);
  EXPECT_EQ(granted, (kMostCountedBytesInAll - before) / kMostCountedBytes);
  EXPECT_THAT(MessageOf(kMostCountedBytes),
              HasSubstr("the limit of the process is " + std::to_string(kMostCountedBytesInAll)));
  // Of what was ever granted there is more than a number holds: it stays at the most.
  for (int i = 0; i < 40000; ++i) {
    budget_.Release(device_, step, kMostCountedBytes);
    budget_.Reserve(device_, step, kMostCountedBytes, "pages");
  }
  EXPECT_EQ(budget_.Of(step, device_).requested_bytes, std::numeric_limits<int64_t>::max());
  for (; granted > 0; --granted) budget_.Release(device_, step, kMostCountedBytes);
}

TEST_F(Budget, ChargesShrinkAndGrowWithTheirBytes) {
  budget_.SetDeviceLimit(device_, 100);
  BudgetCharge charge(device_, &owner_);
  charge.GrowTo(60, "pages");
  charge.GrowTo(50, "pages");
  EXPECT_EQ(charge.bytes(), 60);
  EXPECT_THROW(charge.GrowTo(101, "pages"), OutOfMemoryError);
  EXPECT_EQ(charge.bytes(), 60);
  {
    BudgetCharge other(device_, &owner_);
    other.GrowTo(40, "pages");
    other.Swap(charge);
  }
  EXPECT_EQ(charge.bytes(), 40);
  charge.ShrinkTo(0);
}

TEST_F(Budget, TheLimitHoldsUnderContention) {
  budget_.SetDeviceLimit(device_, 1000);
  std::atomic<int64_t> held{0}, most{0}, refused{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        try {
          budget_.Reserve(device_, owner_, 400, "pages");
        } catch (const OutOfMemoryError&) {
          ++refused;
          continue;
        }
        const int64_t now = held.fetch_add(400) + 400;
        for (int64_t seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        held.fetch_sub(400);
        budget_.Release(device_, owner_, 400);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(most, 1000);
  EXPECT_LT(refused, 12000);
}

}  // namespace
}  // namespace tidepool
