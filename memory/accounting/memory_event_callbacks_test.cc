// A callback can do no harm, whatever it does.
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
#include <utility>
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
class MemoryEventCallbacks : public ::testing::Test {
 protected:
  MemoryEventCallbacks()
      : owner_(MemoryOwner::Process().Child(
            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {}
  ~MemoryEventCallbacks() override {
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

TEST_F(MemoryEventCallbacks, ACallbackMayThrowAndTheOthersAreToldAllTheSame) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  int told = 0;
  const MemoryEventCallback throws([&](const MemoryEvent&) { throw std::runtime_error("mine"); });
  const MemoryEventCallback odd([&](const MemoryEvent&) { throw 7; });
  const MemoryEventCallback counts([&](const MemoryEvent&) { ++told; });
  Reserve(900);
  Release(900);
  EXPECT_EQ(told, 2);
  EXPECT_THAT(Refused(1001), HasSubstr("the limit of owner"));
  EXPECT_EQ(told, 5);
  EXPECT_THROW(MemoryEventCallback(nullptr), Error);
}

// Whenever it is raised before the request is refused.
TEST_F(MemoryEventCallbacks, ALimitRaisedByACallbackServesTheRequest) {
  // Gives back, so that the level falls, and says that it did not.
  bool gives = false;
  const auto quiet = Reclaimer::Global().Register("quiet", [&](ReclaimDepth) -> int64_t {
    if (std::exchange(gives, false)) Release(500);
    return 0;
  });
  for (const Kind when : {Kind::kReclaimBegins, Kind::kReclaimEnds, Kind::kLevel}) {
    SCOPED_TRACE(static_cast<int>(when));
    budget_.SetOwnerLimit(owner_, Host(), 1000);
    Reserve(900);
    gives = when == Kind::kLevel;
    std::vector<MemoryEvent> told;
    const MemoryEventCallback watch([&](const MemoryEvent& event) {
      told.push_back(event);
      if (event.kind == when) budget_.SetOwnerLimit(owner_, Host(), 100000);
    });
    EXPECT_EQ(Refused(50000), "granted");
    EXPECT_EQ(budget_.Of(owner_, Host()).taken_bytes, when == Kind::kLevel ? 50400 : 50900);
    ASSERT_GE(told.size(), 2u);
    EXPECT_EQ(told[0].kind, Kind::kReclaimBegins);
    EXPECT_EQ(told[0].missing_bytes, 49900);
    for (const MemoryEvent& event : told) EXPECT_NE(event.kind, Kind::kRefused);
    if (when == Kind::kReclaimBegins) {
      EXPECT_EQ(told.back().missing_bytes, 0);
    }
    Release(budget_.Of(owner_, Host()).taken_bytes);
  }
}

TEST_F(MemoryEventCallbacks, ACallbackThatRaisesALimitMayEndItself) {
  for (const Kind when : {Kind::kReclaimBegins, Kind::kReclaimEnds}) {
    budget_.SetOwnerLimit(owner_, Host(), 1000);
    std::optional<MemoryEventCallback> watch;
    watch.emplace([&](const MemoryEvent& event) {
      if (event.kind != when) return;
      budget_.SetOwnerLimit(owner_, Host(), kNone);
      watch.reset();
    });
    EXPECT_EQ(Refused(50000), "granted");
    Release(50000);
  }
}

// Arrays and pages take other ways to the budgets, and devices have limits of their own.
TEST_F(MemoryEventCallbacks, RoomThatACallbackMakesServesArraysAndPages) {
  SimulatedDevice& device = SimulatedDevice::Get();
  for (const Kind when : {Kind::kReclaimBegins, Kind::kReclaimEnds}) {
    SCOPED_TRACE(static_cast<int>(when));
    Workspace workspace("events room", WorkspaceConfig::Training());
    int refused = 0;
    const MemoryEventCallback watch([&](const MemoryEvent& event) {
      refused += event.kind == Kind::kRefused;
      if (event.kind != when) return;
      budget_.SetProcessLimit(kNone);
      device.set_capacity(16 << 20);
    });
    budget_.SetProcessLimit(budget_.process().taken_bytes + 1000);
    const BufferHandle array = New(100000);
    budget_.SetProcessLimit(budget_.process().taken_bytes + 1000);
    {
      WorkspaceScope scope(workspace);
      const BufferHandle spill = New(100000);
    }
    device.set_capacity(1 << 20);
    {
      Workspace there("events room there", WorkspaceConfig::Training(), SimulatedDevice::kDevice);
      WorkspaceScope scope(there);
      const BufferHandle remote = New(2 << 20);
    }
    EXPECT_EQ(refused, 0);
    device.Reset();
  }
}

// Whoever is told makes room again and again, but never enough; others always take what came back.
TEST_F(MemoryEventCallbacks, ARequestIsTriedABoundedNumberOfTimes) {
  Reclaimer reclaimer;
  const auto gives = reclaimer.Register("gives", [](ReclaimDepth) -> int64_t { return 1; });
  int tries = 0;
  const auto request = [&] {
    return reclaimer.RetryWhileReclaiming(100, [&] { return ++tries, int64_t{100}; });
  };
  EXPECT_EQ(request(), 16);  // of both depths, eight times
  EXPECT_EQ(tries, 8);
  tries = 0;
  int told = 0;
  const MemoryEventCallback watch([&](const MemoryEvent&) {
    ++told;
    reclaimer.RetryWhileReclaiming(100, [] { return int64_t{100}; });  // its own is not told of
  });
  EXPECT_EQ(request(), 16);
  EXPECT_EQ(tries, 10);
  EXPECT_EQ(told, 2);
}

// In the middle of a request: what it makes goes to the heap, and nothing is told of it.
TEST_F(MemoryEventCallbacks, ACallbackMayMakeAndLetGoOfArrays) {
  WorkspaceConfig config;
  config.policy_learning = LearningPolicy::kNone;
  config.policy_spill = SpillPolicy::kExternal;
  config.temp_block_size = 64 << 10;
  Workspace workspace("events spills", config);
  MemoryOwner& owner = MemoryOwner::Process().Child("workspace events spills");
  budget_.SetOwnerLimit(owner, Host(), 300 << 10);
  std::vector<BufferHandle> arrays, made;
  int told = 0, refused = 0;
  {
    WorkspaceScope scope(workspace);
    const MemoryEventCallback watch([&](const MemoryEvent& event) {
      ++told;
      EXPECT_EQ(CurrentPlace(), nullptr);
      EXPECT_EQ(&MemoryOwner::Current(), &MemoryOwner::Process());
      made.push_back(New(1000));
      EXPECT_EQ(made.back()->owner->WorkspaceId(), "");
      std::memset(made.back()->data, 0x77, 1000);
      EXPECT_THAT(CatchStatus([&] { WorkspaceScope again(workspace); }).message(),
                  HasSubstr("a callback of memory events may not enter a workspace"));
      const ScopeOutOfWorkspaces out;
      refused += event.kind == Kind::kRefused;
      // A service sheds what it can: every second array, whose bytes the request gets.
      if (event.kind != Kind::kReclaimBegins) return;
      for (size_t i = 0; i < arrays.size(); i += 2) arrays[i].Reset();
    });
    for (int i = 0; i < 200; ++i) {
      try {
        arrays.push_back(New(static_cast<size_t>(3000 + i)));
        std::memset(arrays.back()->data, i, arrays.back()->bytes);
      } catch (const OutOfMemoryError&) {
        for (BufferHandle& array : arrays) array.Reset();
      }
    }
    const int refused_before = refused;
    EXPECT_THROW(New(400 << 10), OutOfMemoryError);
    EXPECT_EQ(refused, refused_before + 1);
    EXPECT_NE(CurrentPlace(), nullptr);
    EXPECT_EQ(&MemoryOwner::Current(), &MemoryOwner::Process());
    for (size_t i = 0; i < arrays.size(); ++i) {
      if (!arrays[i]) continue;
      const auto* bytes = reinterpret_cast<const unsigned char*>(arrays[i]->data);
      for (size_t k = 0; k < arrays[i]->bytes; ++k) {
        ASSERT_EQ(bytes[k], bytes[0]) << i << " at " << k;
      }
      ASSERT_EQ(arrays[i]->bytes, 3000u + bytes[0]);
    }
    for (const BufferHandle& array : made) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(array->data);
      for (size_t k = 0; k < 1000; ++k) ASSERT_EQ(bytes[k], 0x77);
    }
    arrays.clear();
  }
  EXPECT_GT(told, 3);
  for (int i = 0; i < 3; ++i) {
    WorkspaceScope scope(workspace);
    New(1000);
  }
  budget_.SetOwnerLimit(owner, Host(), kNone);
}

TEST_F(MemoryEventCallbacks, WhatACallbackDoesWithMemoryIsNotTold) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  int told = 0;
  const MemoryEventCallback watch([&](const MemoryEvent&) {
    ++told;
    Reserve(50);
    EXPECT_THAT(Refused(5000), HasSubstr("the limit of owner"));
    Release(50);
  });
  Reserve(800);
  EXPECT_EQ(told, 1);
  Release(800);
  EXPECT_EQ(told, 2);
}

TEST_F(MemoryEventCallbacks, ACallbackMayRegisterAndUnregister) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  std::unique_ptr<MemoryEventCallback> self, other, later;
  int own = 0, others = 0, laters = 0;
  auto alive = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = alive;
  self = std::make_unique<MemoryEventCallback>([&, kept = std::move(alive)](const MemoryEvent&) {
    ++own;
    other.reset();
    later = std::make_unique<MemoryEventCallback>([&](const MemoryEvent&) { ++laters; });
    self.reset();
    EXPECT_EQ(*kept, 1);  // what it captured lasts as long as the call
  });
  other = std::make_unique<MemoryEventCallback>([&](const MemoryEvent&) { ++others; });
  Reserve(800);
  EXPECT_EQ(own, 1);
  EXPECT_EQ(others, 0);
  EXPECT_EQ(laters, 0);  // it was not there when this began
  EXPECT_TRUE(watched.expired());
  Release(800);
  EXPECT_EQ(own, 1);
  EXPECT_EQ(laters, 1);
}

// What is destroyed is not called any more, whoever is in the middle of it.
TEST_F(MemoryEventCallbacks, UnregisteringWaitsForCallsOfOtherThreads) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  std::atomic<bool> inside{false}, go{false}, gone{false};
  auto watch = std::make_unique<MemoryEventCallback>([&](const MemoryEvent&) {
    inside = true;
    while (!go) std::this_thread::yield();
    EXPECT_FALSE(gone);
  });
  std::thread works([&] {
    Reserve(800);
    Release(800);
  });
  while (!inside) std::this_thread::yield();
  std::thread unregisters([&] {
    watch.reset();
    gone = true;
  });
  go = true;
  unregisters.join();
  works.join();
  EXPECT_TRUE(gone);
}

TEST_F(MemoryEventCallbacks, ManyThreadsAreToldWhileCallbacksComeAndGo) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  std::atomic<int64_t> told{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 300; ++i) {
        std::optional<MemoryEventCallback> watch;
        if (t == 0) watch.emplace([&](const MemoryEvent&) { ++told; });
        try {
          Reserve(500);
          Release(500);
        } catch (const OutOfMemoryError&) {
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(budget_.Of(owner_, Host()).taken_bytes, 0);
}

TEST_F(MemoryEventCallbacks, AChildHasTheCallbacksAndWaitsForNobody) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  std::atomic<int> told{0};
  auto watch = std::make_unique<MemoryEventCallback>([&](const MemoryEvent&) {
    if (++told > 1) return;
    const pid_t child = fork();  // in the middle of a call
    if (child == 0) {
      alarm(60);
      return;
    }
    int status = -1;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 42) << status;
  });
  const pid_t parent = getpid();
  Reserve(800);
  if (getpid() != parent) {
    Release(800);
    watch.reset();
    _exit(told == 2 ? 42 : 1);
  }
  Release(800);
}

// Nobody listens: nothing is told, which costs a load.
TEST_F(MemoryEventCallbacks, WithoutCallbacksLevelsAreKeptAllTheSame) {
  budget_.SetOwnerLimit(owner_, Host(), 1000);
  Reserve(960);
  EXPECT_EQ(internal::memory_event_callbacks, 0);
  EXPECT_EQ(Level(), MemoryLevel::kCritical);
  int told = 0;
  const MemoryEventCallback watch([&](const MemoryEvent&) { ++told; });
  Reserve(10);
  EXPECT_EQ(told, 0);  // it is as it was
  Release(970);
  EXPECT_EQ(told, 1);
}

}  // namespace
}  // namespace tidepool
