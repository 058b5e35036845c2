#include "tidepool/memory/accounting/reclaimer.h"

#include <atomic>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/refused_threads.h"

namespace tidepool {
namespace {

// Waits for what another thread will do; gives up after a minute.
template <typename Condition>
bool Eventually(const Condition& condition) {
  for (int i = 0; i < 60000; ++i) {
    if (condition()) return true;
    absl::SleepFor(absl::Milliseconds(1));
  }
  return false;
}

TEST(Reclaimer, RunNowAsksAllForAll) {
  Reclaimer reclaimer;
  std::vector<ReclaimDepth> depths;
  auto first = reclaimer.Register("a", [&](ReclaimDepth depth) {
    depths.push_back(depth);
    return 10;
  });
  auto second = reclaimer.Register("b", [&](ReclaimDepth) { return 5; });
  EXPECT_EQ(reclaimer.RunNow(), 15);
  EXPECT_EQ(depths, std::vector<ReclaimDepth>{ReclaimDepth::kIdle});
  EXPECT_EQ(reclaimer.stats().reclaimed_bytes, 15);
  second.Reset();
  EXPECT_EQ(reclaimer.RunNow(), 10);
}

TEST(Reclaimer, NoCallbackIsRefused) {
  Reclaimer reclaimer;
  try {
    const auto registration = reclaimer.Register("mine", Reclaimer::Callback());
    ADD_FAILURE() << "taken";
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "reclaimer: registration of [mine]: found no callback, expected a function to call");
  }
  EXPECT_EQ(reclaimer.RunNow(), 0);
}

TEST(Reclaimer, UnderPressureSpareBytesGoFirstAndNoMoreThanNeeded) {
  Reclaimer reclaimer;
  int idle_runs = 0;
  auto first = reclaimer.Register("a", [&](ReclaimDepth depth) -> int64_t {
    if (depth == ReclaimDepth::kIdle) ++idle_runs;
    return depth == ReclaimDepth::kIdle ? 100 : 10;
  });
  int second_runs = 0;
  auto second = reclaimer.Register("b", [&](ReclaimDepth) { return ++second_runs, 1; });
  EXPECT_EQ(reclaimer.ReclaimUnderPressure(10), 10);
  EXPECT_EQ(second_runs, 0);
  EXPECT_EQ(idle_runs, 0);
  EXPECT_EQ(reclaimer.ReclaimUnderPressure(50), 10 + 1 + 100);
  EXPECT_EQ(idle_runs, 1);
  EXPECT_EQ(reclaimer.stats().pressure_runs, 2);
}

TEST(Reclaimer, SwitchedOffItReclaimsOnDemandOnly) {
  Reclaimer reclaimer;
  auto callback = reclaimer.Register("a", [](ReclaimDepth) { return 1; });
  reclaimer.set_enabled(false);
  EXPECT_EQ(reclaimer.ReclaimUnderPressure(1), 0);
  EXPECT_EQ(reclaimer.RunNow(), 1);
}

TEST(Reclaimer, AThrowingCallbackDoesNotStopTheOthers) {
  Reclaimer reclaimer;
  auto bad =
      reclaimer.Register("bad", [](ReclaimDepth) -> int64_t { throw std::runtime_error("x"); });
  auto good = reclaimer.Register("good", [](ReclaimDepth) { return 3; });
  EXPECT_EQ(reclaimer.RunNow(), 3);
}

// What comes back is counted as said, but never as less than nothing or more than there is.
TEST(Reclaimer, NobodyGivesBackLessThanNothing) {
  Reclaimer reclaimer;
  auto negative = reclaimer.Register("negative", [](ReclaimDepth) { return int64_t{-50}; });
  auto least = reclaimer.Register("least", [](ReclaimDepth) { return INT64_MIN; });
  auto good = reclaimer.Register("good", [](ReclaimDepth) { return 3; });
  EXPECT_EQ(reclaimer.RunNow(), 3);
  EXPECT_EQ(reclaimer.ReclaimUnderPressure(1), 3);  // once is enough
  EXPECT_EQ(reclaimer.stats().reclaimed_bytes, 6);
  auto most = reclaimer.Register("most", [](ReclaimDepth) { return INT64_MAX; });
  auto another = reclaimer.Register("another", [](ReclaimDepth) { return INT64_MAX; });
  EXPECT_EQ(reclaimer.ReclaimUnderPressure(INT64_MAX), 4 * kMostCountedBytes + 6);
}

TEST(Reclaimer, CallbacksMayDropThemselvesAndOthersAndAddNew) {
  Reclaimer reclaimer;
  std::vector<Reclaimer::Registration> added;
  std::optional<Reclaimer::Registration> self, other;
  int other_runs = 0;
  self = reclaimer.Register("self", [&](ReclaimDepth) {
    self.reset();
    other.reset();
    for (int i = 0; i < 20; ++i) {
      added.push_back(reclaimer.Register("new", [](ReclaimDepth) { return 1; }));
    }
    EXPECT_EQ(reclaimer.RunNow(), 0);  // not from inside
    EXPECT_EQ(reclaimer.ReclaimUnderPressure(1), 0);
    return 7;
  });
  other = reclaimer.Register("other", [&](ReclaimDepth) { return ++other_runs; });
  EXPECT_EQ(reclaimer.RunNow(), 7 + 20);
  EXPECT_EQ(other_runs, 0);
  EXPECT_EQ(reclaimer.RunNow(), 20);
}

// What is taken off goes at once with what its callback holds, in whatever order, and is not asked again.
TEST(Reclaimer, ManyComeAndGoInAnyOrder) {
  Reclaimer reclaimer;
  std::mt19937 random(3);
  const auto held = std::make_shared<int>(0);
  std::vector<Reclaimer::Registration> registrations;
  for (int round = 0; round < 2000; ++round) {
    if (registrations.empty() || random() % 5 < 3) {
      registrations.push_back(reclaimer.Register("one", [held](ReclaimDepth) { return 1; }));
    } else {
      std::swap(registrations[random() % registrations.size()], registrations.back());
      registrations.pop_back();
    }
    const auto alive = static_cast<int64_t>(registrations.size());
    ASSERT_EQ(held.use_count(), alive + 1);
    if (round % 50 == 0) {
      ASSERT_EQ(reclaimer.RunNow(), alive);
    }
  }
  registrations.clear();
  EXPECT_EQ(held.use_count(), 1);
  EXPECT_EQ(reclaimer.RunNow(), 0);
}

TEST(Reclaimer, AWindowRunsPeriodicallyUntilItIsClosed) {
  Reclaimer reclaimer;
  std::atomic<int> runs{0};
  auto callback = reclaimer.Register("a", [&](ReclaimDepth depth) -> int64_t {
    EXPECT_EQ(depth, ReclaimDepth::kPeriodic);
    return ++runs, 2;
  });
  reclaimer.set_window(absl::Hours(24));
  reclaimer.set_window(absl::Milliseconds(1));  // takes effect at once
  EXPECT_EQ(reclaimer.window(), absl::Milliseconds(1));
  EXPECT_TRUE(Eventually([&] { return runs >= 3; }));
  reclaimer.set_window(absl::ZeroDuration());
  const int at_end = runs;
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(runs, at_end);
  EXPECT_EQ(reclaimer.stats().periodic_runs, at_end);
  reclaimer.set_enabled(false);
  reclaimer.set_window(absl::Milliseconds(1));
  absl::SleepFor(absl::Milliseconds(20));
  EXPECT_EQ(runs, at_end);
  reclaimer.set_enabled(true);
  EXPECT_TRUE(Eventually([&] { return runs > at_end; }));
}  // destroyed with its thread running

TEST(Reclaimer, WithoutAThreadThereAreNoPeriodicRuns) {
  Reclaimer reclaimer;
  {
    const RefusedThreads refused;
    const absl::Status status = CatchStatus([&] { reclaimer.set_window(absl::Hours(24)); });
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_NE(
        std::string(status.message()).find("a thread for periodic runs: Resource temporarily"),
        std::string::npos)
        << status;
  }
  EXPECT_EQ(reclaimer.window(), absl::ZeroDuration());
  reclaimer.set_window(absl::Hours(24));  // when there are threads again
  EXPECT_EQ(reclaimer.window(), absl::Hours(24));
}

TEST(Reclaimer, TheGlobalThreadEndsWithTheProgram) {
  Reclaimer::Global().set_window(absl::Milliseconds(1));
  EXPECT_TRUE(Eventually([] { return Reclaimer::Global().stats().periodic_runs > 0; }));
}

TEST(Reclaimer, UnregisteringWaitsForARunOnAnotherThread) {
  Reclaimer reclaimer;
  reclaimer.set_window(absl::Microseconds(50));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        auto state = std::make_unique<int64_t>(1);  // dead when the registration is
        auto callback =
            reclaimer.Register("a", [&alive = *state](ReclaimDepth) { return alive++; });
        if (i % 8 == 0) reclaimer.ReclaimUnderPressure(1);
        callback.Reset();
        *state = -1000000;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GE(reclaimer.stats().reclaimed_bytes, 0);
}

}  // namespace
}  // namespace tidepool
