#include "tidepool/memory/accounting/memory_timeline.h"

#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_new.h"

namespace tidepool {
namespace {

constexpr MemoryKind kAllocated = MemoryKind::kAllocated;

int64_t Allocated(const MemoryTimeline::Sample& sample) {
  return sample.bytes[static_cast<int>(kAllocated)];
}

TEST(MemoryTimeline, SamplesEachChangeOfTheGranularity) {
  MemoryTracker tracker;
  MemoryTimeline timeline({.capacity = 100, .granularity_bytes = 100}, tracker);
  tracker.Add(Host(), kAllocated, 1000);
  tracker.Add(Host(), kAllocated, 60);
  tracker.Add(Host(), kAllocated, 60);  // 120 since the last sample
  tracker.Add(Host(), MemoryKind::kExternal, 5000);
  tracker.Add(Host(), kAllocated, -1120);
  const auto samples = timeline.samples();
  ASSERT_EQ(samples.size(), 5u);  // the first says what was there
  EXPECT_EQ(Allocated(samples[0]), 0);
  EXPECT_EQ(Allocated(samples[1]), 1000);
  EXPECT_EQ(Allocated(samples[2]), 1120);
  EXPECT_EQ(samples[3].bytes[static_cast<int>(MemoryKind::kExternal)], 5000);
  EXPECT_EQ(Allocated(samples[4]), 0);
  for (size_t i = 1; i < samples.size(); ++i) {
    EXPECT_GE(samples[i].nanoseconds, samples[i - 1].nanoseconds);
  }
}

TEST(MemoryTimeline, TheOldestMakeRoom) {
  MemoryTracker tracker;
  MemoryTimeline timeline({.capacity = 4, .granularity_bytes = 1}, tracker);
  for (int i = 0; i < 10; ++i) tracker.Add(Host(), kAllocated, 10);
  const auto samples = timeline.samples();
  ASSERT_EQ(samples.size(), 4u);
  EXPECT_EQ(Allocated(samples[0]), 70);
  EXPECT_EQ(Allocated(samples[3]), 100);
  EXPECT_EQ(timeline.dropped(), 7);
}

TEST(MemoryTimeline, CyclesShowWhatTheyReached) {
  MemoryTracker tracker;
  MemoryAccount account(Host());
  tracker.Register(&account);
  tracker.AddOwned(&account, 10000);
  MemoryTimeline timeline({.capacity = 100, .granularity_bytes = 10}, tracker);
  for (int64_t bytes : {500, 500, 300, 700}) {  // the second is as the first
    account.AddUsed(bytes);
    account.SubUsed(bytes);
    tracker.Fold(&account);
  }
  std::vector<int64_t> reached;
  for (const auto& sample : timeline.samples()) reached.push_back(sample.in_use_highest);
  EXPECT_EQ(reached, (std::vector<int64_t>{0, 500, 300, 700}));
  tracker.Unregister(&account);
}

TEST(MemoryTimeline, StoppedItRecordsNothing) {
  MemoryTracker tracker;
  MemoryTimeline timeline({.capacity = 10, .granularity_bytes = 1}, tracker);
  timeline.Stop();
  timeline.Stop();
  tracker.Add(Host(), kAllocated, 100);
  EXPECT_EQ(timeline.samples().size(), 1u);
  timeline.Start();
  timeline.Start();
  EXPECT_EQ(timeline.samples().size(), 2u);
  EXPECT_EQ(Allocated(timeline.samples().back()), 100);
}

TEST(MemoryTimeline, JsonAndTraceHoldTheSamples) {
  MemoryTracker tracker;
  const Device device{DeviceType::Named("simulated"), 1};
  MemoryTimeline timeline({.capacity = 10, .granularity_bytes = 1}, tracker);
  tracker.Add(device, MemoryKind::kGradientDeferred, 42);
  const auto json = nlohmann::json::parse(timeline.ToJson());
  ASSERT_EQ(json["samples"].size(), 2u);
  EXPECT_EQ(json["samples"][1]["device"], "simulated:1");
  EXPECT_EQ(json["samples"][1]["gradient deferred"], 42);
  EXPECT_EQ(json["dropped"], 0);
  const auto trace = nlohmann::json::parse(timeline.ToChromeTrace());
  const auto& events = trace["traceEvents"];
  ASSERT_EQ(events.size(), 4u);
  for (const auto& event : events) {
    EXPECT_EQ(event["ph"], "C");
    EXPECT_TRUE(event["ts"].is_number());
    EXPECT_TRUE(event["pid"].is_number_integer());
    for (const auto& value : event["args"]) EXPECT_TRUE(value.is_number());
  }
  EXPECT_EQ(events[2]["name"], "memory simulated:1");
  EXPECT_EQ(events[2]["args"]["gradient deferred"], 42);
}

TEST(MemoryTimeline, BadOptionsAreRefused) {
  EXPECT_THROW(MemoryTimeline({.capacity = 0}), Error);
  EXPECT_THROW(MemoryTimeline({.granularity_bytes = 0}), Error);
}

TEST(MemoryTimeline, ReadWhileOthersWork) {
  MemoryTracker tracker;
  MemoryTimeline timeline({.capacity = 64, .granularity_bytes = 1}, tracker);
  std::thread worker([&] {
    for (int i = 0; i < 2000; ++i) tracker.Add(Host(), kAllocated, i % 2 == 0 ? 9 : -9);
  });
  for (int i = 0; i < 50; ++i) {
    for (const auto& sample : timeline.samples()) EXPECT_LE(Allocated(sample), 9);
    timeline.Stop();
    timeline.Start();
  }
  worker.join();
}

TEST(MemoryTimeline, TextForWhichThereIsNoMemoryIsAnException) {
  MemoryTracker tracker;
  MemoryTimeline timeline({.capacity = 16, .granularity_bytes = 1}, tracker);
  tracker.Add(Host(), MemoryKind::kAllocated, 42);
  timeline.Stop();
  const std::string json = timeline.ToJson(), trace = timeline.ToChromeTrace();
  int faults = 0;
  for (bool done = false; !done; ++faults) {
    until_fault = faults;
    done = Try([&] {
      EXPECT_EQ(timeline.ToJson(), json);
      EXPECT_EQ(timeline.ToChromeTrace(), trace);
    });
  }
  EXPECT_GT(faults, 5);
}

}  // namespace
}  // namespace tidepool
