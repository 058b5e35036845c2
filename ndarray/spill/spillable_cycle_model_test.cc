// Arrays whose uses are learned, on a file that fails, beside threads that use, make, free, spill and read ahead what they like while limits
// change: each has what was written to it last.
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/file_queue.h"
#include "tidepool/memory/spill/plan_counters.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/spill/failing_queue.h"
#include "tidepool/ndarray/spill/spillable_array.h"
#include "tidepool/ndarray/spill/spillable_runs.h"

namespace tidepool {
namespace {

// What fails, for as long as it is set; `one_in`: of so many, at random.
struct Faults {
  std::atomic<bool> reads{false}, writes{false};
  std::atomic<int> one_in{1};
};

SpillFileOptions Options(const Faults& faults) {
  SpillFileOptions options = SpillableRun::Options();
  options.queue = [&faults](int descriptor, int depth) -> std::unique_ptr<FileQueue> {
    const auto error_of = [&faults,
                           random = std::mt19937_64(5)](const FileTransfer& transfer) mutable {
      const bool fails = (transfer.writes ? faults.writes : faults.reads) &&
                         random() % static_cast<uint64_t>(faults.one_in.load()) == 0;
      return fails ? EIO : 0;
    };
    return std::make_unique<FailingQueue>(NewFileQueue(descriptor, depth), error_of);
  };
  return options;
}

const std::vector<int> kSweep = {0, 1, 2, 3, 4, 5};

// What could not be read ahead is an error of its use, and of nothing else; it is in the file still.
TEST(SpillableCycleModel, AReadAheadThatFailsIsAnErrorOfItsUse) {
  Faults faults;
  SpillableRun run("fails to come", 6, 3, Options(faults));
  for (int cycle = 0; cycle < 3; ++cycle) run.Cycle(kSweep);
  int failed = 0;
  for (int cycle = 0; cycle < 4; ++cycle) {
    for (const int i : kSweep) {
      run.WaitForFile();
      const int64_t ahead = run.spillables.stats().plan.ahead;
      faults.reads = true;  // of what is begun from here on
      bool used = true;
      try {
        run.Use(i);
      } catch (const Error&) {
        used = false;  // it had not been read ahead
      }
      const int64_t begun = run.spillables.stats().plan.ahead - ahead;
      run.WaitForFile();
      faults.reads = false;
      if (!used) run.Use(i);
      if (!used || begun == 0) continue;
      size_t next = 0;
      for (size_t later = 6; later > 0; --later) {
        const size_t at = (static_cast<size_t>(i) + later) % 6;
        if (!run.arrays[at].is_here()) next = at;
      }
      try {
        run.arrays[next].Read();
        ADD_FAILURE() << next << " was read";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), absl::StatusCode::kInternal) << error.message();
        ++failed;
      }
      EXPECT_FALSE(run.arrays[next].is_here());
    }
    run.spillables.EndCycle();
  }
  EXPECT_GT(failed, 4);
  const SpillPlanCounters plan = run.spillables.stats().plan;
  EXPECT_EQ(plan.mispredictions, 0) << "a use that failed is none";
  EXPECT_EQ(plan.followed_cycles, 5);
  run.CheckAll();
}

// What could not be written early stays, and is written when it has to go: an error of nobody's.
TEST(SpillableCycleModel, AnEarlyWriteThatFailsLosesNothing) {
  Faults faults;
  SpillableRun run("fails to go", 6, 4, Options(faults));
  run.writes = true;
  run.waits = true;
  for (int cycle = 0; cycle < 4; ++cycle) run.Cycle(kSweep);
  EXPECT_EQ(run.spillables.stats().failures, 0);
  for (int cycle = 0; cycle < 4; ++cycle) {
    const int64_t failures = run.file.stats().failures;
    for (const int i : kSweep) {
      faults.writes = run.file.stats().failures == failures;  // the first one that is begun
      run.Use(i);
      faults.writes = false;
    }
    EXPECT_EQ(run.file.stats().failures, failures + 1);
    run.spillables.EndCycle();
    for (int after = 0; after < 2; ++after) run.Cycle(kSweep);
  }
  EXPECT_EQ(run.spillables.stats().failures, 4);
  EXPECT_EQ(run.spillables.stats().plan.followed_cycles, 14);
  run.CheckAll();
}

// ---- threads ------------------------------------------------------------------------------------------------

// One thread goes by its plan while others do what they like, to its arrays too. Limits come and go, and the file fails now and then.
void RunBesideOthers(uint64_t seed, bool fails) {
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  Faults faults;
  SpillableRun run("beside others", 10, 6, Options(faults));
  run.writes = seed % 2 == 0;
  for (int cycle = 0; cycle < 3; ++cycle) run.Cycle({0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_EQ(run.spillables.stats().plan.followed_cycles, 1);
  faults.one_in = 9;
  faults.reads = faults.writes = fails;
  std::atomic<bool> ends{false};
  std::atomic<int> refused{0};
  const auto attempt = [&](const auto& call) {
    try {
      call();
      return true;
    } catch (const Error& error) {
      const bool expected = error.code() == absl::StatusCode::kResourceExhausted ||
                            error.code() == absl::StatusCode::kInternal;
      EXPECT_TRUE(expected) << error.message();
      ++refused;
      return false;
    }
  };
  std::vector<std::thread> threads;
  threads.emplace_back([&] {  // arrays of its own, which the plan does not know
    const MemoryOwnerScope scope(run.owner);
    for (float value = 1; !ends; ++value) {
      attempt([&] {
        SpillableArray own(run.spillables, Full({4096}, value, DType::kFloat32, Place::Heap()),
                           "own");
        for (int i = 0; i < 3; ++i) {
          const SpillableArray::Pinned pinned = own.Read();
          EXPECT_EQ(reinterpret_cast<const float*>(pinned->raw_data())[4095], value);
          std::this_thread::yield();
        }
      });
    }
  });
  threads.emplace_back([&] {  // moves what others use
    std::mt19937_64 random(seed);
    while (!ends) {
      attempt([&] {
        SpillableArray& array = run.arrays[random() % 10];
        switch (random() % 4) {
          case 0:
            array.Spill();
            break;
          case 1:
            array.Prefetch();
            break;
          case 2:
            run.spillables.SpillNow(static_cast<int64_t>(random() % 5) * 10000);
            break;
          default:
            run.SetRoom(5 + random() % 4);
            std::this_thread::yield();
        }
      });
    }
  });
  for (int cycle = 0; cycle < 60; ++cycle) {
    for (int i = 0; i < 10; ++i) {
      for (int times = 0; times < 20 && !attempt([&] { run.Use(i); }); ++times) {
      }
    }
    if (cycle % 7 == 6) attempt([&] { run.Use(3); });  // once more than expected
    run.spillables.EndCycle();
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  faults.reads = faults.writes = false;
  run.SetRoom(6);
  for (const SpillableArray& array : run.arrays) {
    attempt([&] { array.Read(); });  // what was read ahead may have failed before
  }
  run.CheckAll();
  const SpillablesStats stats = run.spillables.stats();
  std::printf("%s  %d refused\n", stats.ToString().c_str(), refused.load());
  EXPECT_GT(stats.plan.followed_uses, 50);
  EXPECT_GT(stats.plan.mispredictions, 0);
  EXPECT_GT(stats.plan.ahead, 0);
  EXPECT_LE(stats.plan.ahead, 63 * 10 + 8) << "once for each use at most, whoever takes it away";
}

TEST(SpillableCycleModel, EachHoldsWhatWasWrittenLast) {
  for (uint64_t seed = 1; seed <= 4; ++seed) RunBesideOthers(seed, /*fails=*/false);
}
TEST(SpillableCycleModel, LosesNothingOnADiskThatFails) {
  for (uint64_t seed = 5; seed <= 8; ++seed) RunBesideOthers(seed, /*fails=*/true);
}

// Several threads whose uses have no order among them: nothing is learned, or what is learned is wrong, and nothing is lost.
TEST(SpillableCycleModel, ThreadsWithoutAnOrder) {
  SpillableRun run("no order", 8, 5);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&run, t] {
      for (int i = 0; i < 300; ++i) {
        run.Use(2 * t + i % 2);
        if (i % 2 == 1 && t == 0) run.spillables.EndCycle();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  run.CheckAll();
}

// ---- devices ------------------------------------------------------------------------------------------------

// Arrays of a device come ahead onto the host; no more of them than by least recent use are brought.
TEST(SpillableCycleModel, ArraysOfADevice) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  {
    SpillFile file(SpillableRun::Options());
    Spillables spillables(file);
    const Place there = Place::On(device.device());
    const auto made = [&](int i) {
      return Full({4096}, static_cast<float>(i), DType::kFloat32, Place::Heap()).CopyTo(there);
    };
    std::deque<SpillableArray> arrays;
    for (int i = 0; i < 3; ++i) arrays.emplace_back(spillables, made(i), "of a device");
    MemoryBudget::Global().SetDeviceLimit(device.device(),
                                          MemoryBudget::Global().Of(device.device()).taken_bytes);
    for (int i = 3; i < 6; ++i) arrays.emplace_back(spillables, made(i), "of a device");
    spillables.EndCycle();
    int64_t by_least_recent_use = 0;
    for (int cycle = 0; cycle < 6; ++cycle) {
      const int64_t before = spillables.stats().returns;
      for (size_t i = 0; i < 6; ++i) {
        const NDArray here = arrays[i].Read()->CopyTo(Place::Heap());
        EXPECT_EQ(reinterpret_cast<const float*>(here.raw_data())[4095], static_cast<float>(i));
      }
      const int64_t brought = spillables.stats().returns - before;
      if (cycle == 1) by_least_recent_use = brought;
      EXPECT_TRUE(cycle < 2 || brought < by_least_recent_use) << brought;
      spillables.EndCycle();
    }
    const SpillPlanCounters plan = spillables.stats().plan;
    EXPECT_EQ(plan.followed_cycles, 4);
    EXPECT_GT(plan.in_time + plan.late, 0);
    EXPECT_EQ(plan.early_writes, 0);
    MemoryBudget::Global().SetDeviceLimit(device.device(), MemoryBudget::kUnlimited);
  }
  device.Reset();
}

}  // namespace
}  // namespace tidepool
