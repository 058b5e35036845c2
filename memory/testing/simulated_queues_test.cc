#include "tidepool/memory/testing/simulated_queues.h"

#include <atomic>
#include <cstddef>
#include <set>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_new.h"

namespace tidepool {
namespace {

TEST(SimulatedQueuesTest, SwitchedOffWorkIsDoneWhenItIsQueued) {
  SimulatedQueues queues;
  int done = 0;
  EXPECT_EQ(queues.Add(SimulatedQueues::kCompute, {}, 0, [&] { ++done; }), 0);
  EXPECT_EQ(done, 1);
  EXPECT_EQ(queues.ComputePoint(0), 0);
  EXPECT_TRUE(queues.HasPassed(0));
  queues.WaitFor(0);
  queues.WaitForAll();
}

TEST(SimulatedQueuesTest, KernelsRunInOrderAndCopiesInAnyOrderAfterTheirPoints) {
  std::set<std::string> orders;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SimulatedQueues queues;
    queues.Start(seed);
    std::string order;  // copies and kernels do not overlap here
    const uint64_t a = queues.Add(SimulatedQueues::kCopies, {}, 0, [&] { order += 'a'; });
    const uint64_t b = queues.Add(SimulatedQueues::kCopies, {}, 0, [&] { order += 'b'; });
    queues.ComputeAfter(0, a);
    queues.ComputeAfter(0, b);
    for (char kernel : {'1', '2', '3'}) {
      queues.Add(SimulatedQueues::kCompute, {}, 0, [&order, kernel] { order += kernel; });
    }
    const uint64_t c =
        queues.Add(SimulatedQueues::kCopies, {}, queues.ComputePoint(0), [&] { order += 'c'; });
    queues.WaitFor(c);
    orders.insert(order);
    EXPECT_TRUE(order == "ab123c" || order == "ba123c") << order;
  }
  EXPECT_EQ(orders.size(), 2);
}

// Who does not wait finds it not done, most of the time.
TEST(SimulatedQueuesTest, WorkIsLazy) {
  int undone = 0;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    SimulatedQueues queues;
    queues.Start(seed);
    std::atomic<bool> done{false};
    const uint64_t point = queues.Add(SimulatedQueues::kCopies, {}, 0, [&] { done = true; });
    std::this_thread::yield();
    undone += !done;
    queues.WaitFor(point);
    EXPECT_TRUE(done);
    EXPECT_TRUE(queues.HasPassed(point));
  }
  EXPECT_GT(undone, 20);
}

TEST(SimulatedQueuesTest, PointsBehindCopiesThatKernelsWaitFor) {
  SimulatedQueues queues;
  queues.Start(3);
  bool copied = false;
  queues.ComputeAfter(0, queues.Add(SimulatedQueues::kCopies, {}, 0, [&] { copied = true; }));
  queues.WaitFor(queues.ComputePoint(0));
  EXPECT_TRUE(copied);
}

TEST(SimulatedQueuesTest, QueuesHaveOrdersOfTheirOwn) {
  SimulatedQueues queues;
  queues.Start(4);
  std::string order;
  for (char kernel : {'1', '2'}) queues.Add(3, {}, 0, [&order, kernel] { order += kernel; });
  queues.ComputeAfter(5, queues.ComputePoint(3));
  for (char kernel : {'3', '4'}) queues.Add(5, {}, 0, [&order, kernel] { order += kernel; });
  queues.WaitFor(queues.ComputePoint(5));
  EXPECT_EQ(order, "1234");
}

// Whether or not it goes well by chance.
TEST(SimulatedQueuesDeathTest, WorkThatDisturbsOtherWorkEndsTheTest) {
  std::byte bytes[100];
  const auto run = [&](bool ordered, bool writes) {
    SimulatedQueues queues;
    queues.Start(5);
    queues.Add(1, {{bytes, bytes + 10, false}}, 0, [] {});
    if (ordered) queues.ComputeAfter(2, queues.ComputePoint(1));
    queues.Add(2, {}, 0, [] {});
    queues.Add(2, {{bytes + 9, bytes + 20, writes}}, 0, [] {});
    queues.WaitForAll();
  };
  run(true, true);
  run(false, false);
  EXPECT_DEATH(run(false, true),
               "in queue 2: work 3, which writes 11 bytes at .*, and work 1, which reads 10");
  // What the host has waited for is before all that comes.
  SimulatedQueues queues;
  queues.Start(6);
  queues.Add(1, {{bytes, bytes + 10}}, 0, [] {});
  queues.WaitFor(queues.ComputePoint(1));
  queues.Add(2, {{bytes, bytes + 10}}, 0, [] {});
  queues.WaitForUsersOf({bytes, bytes + 10});
  queues.Add(3, {{bytes, bytes + 10}}, 0, [] {});
}

TEST(SimulatedQueuesTest, UsersOfARange) {
  SimulatedQueues queues;
  queues.Start(5);
  std::byte bytes[100];
  bool done = false;
  queues.Add(SimulatedQueues::kCompute, {{bytes, bytes + 10}, {bytes + 20, bytes + 30}}, 0,
             [&] { done = true; });
  EXPECT_FALSE(queues.IsUsed({bytes + 10, bytes + 20}));
  queues.WaitForUsersOf({bytes + 30, bytes + 100});
  queues.WaitForUsersOf({bytes + 29, bytes + 31});
  EXPECT_TRUE(done);
  EXPECT_FALSE(queues.IsUsed({bytes, bytes + 100}));
}

TEST(SimulatedQueuesTest, FailuresAreToldToWhoWaits) {
  SimulatedQueues queues;
  queues.Start(7);
  const uint64_t point =
      queues.Add(SimulatedQueues::kCompute, {}, 0, [] { ThrowInternal("kernel 7"); });
  try {
    queues.WaitFor(point);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.message()).find("kernel 7"), std::string::npos);
  }
  queues.WaitForAll();  // told once
}

TEST(SimulatedQueuesTest, StoppingDoesWhatIsQueued) {
  SimulatedQueues queues;
  queues.Start(9);
  int done = 0;
  for (int i = 0; i < 500; ++i) queues.Add(SimulatedQueues::kCompute, {}, 0, [&] { ++done; });
  queues.Stop();
  EXPECT_EQ(done, 500);
  EXPECT_FALSE(queues.running());
}

// Whatever finds no memory is not queued, nobody waits for it, and the order of the rest is as before.
TEST(SimulatedQueuesTest, WorkThatFindsNoMemoryIsNotQueued) {
  int refused = 0;
  for (const bool copies : {false, true}) {
    for (int64_t fault = 0, went = 0; went < 3; ++fault) {
      SimulatedQueues queues;
      queues.Start(static_cast<uint64_t>(fault) + 1);
      std::string order;
      std::byte bytes[8];
      const uint64_t before =
          queues.Add(SimulatedQueues::kCopies, {{bytes, bytes + 8}}, 0, [&] { order += 'a'; });
      queues.ComputeAfter(0, before);
      const int queue = copies ? SimulatedQueues::kCopies : SimulatedQueues::kCompute;
      until_fault = fault;
      const bool queued = Try([&] {
        queues.Add(queue, {{bytes, bytes + 8}}, before, [&] { order += 'b'; });
      });
      queued ? ++went : ++refused;
      until_fault = fault;
      uint64_t point = 0;
      if (!Try([&] { point = queues.ComputePoint(0); })) point = 0;
      // Behind the copy still.
      if (!copies)
        queues.Add(SimulatedQueues::kCompute, {{bytes, bytes + 8}}, 0, [&] { order += 'c'; });
      queues.WaitFor(point);
      queues.WaitForAll();
      EXPECT_EQ(order, std::string("a") + (queued ? "b" : "") + (copies ? "" : "c"));
    }
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace tidepool
