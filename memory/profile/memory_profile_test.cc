#include "tidepool/memory/profile/memory_profile.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_charge.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/profile_changes.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/record_requests.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr int kUnreferenced = static_cast<int>(MemoryKind::kUnreferenced);

BufferHandle Make(size_t bytes) { return BufferHandle(AllocateHere(bytes)); }

// Two that follow each other and one that takes the first one's place.
void Cycle(Workspace& workspace, size_t unit = 1000) {
  WorkspaceScope scope(workspace);
  MemoryTagScope tag("layer");
  BufferHandle a = Make(3 * unit);
  BufferHandle b = Make(2 * unit);
  a.Reset();
  BufferHandle c = Make(unit);
}

const ProfileArray* Find(const ProfileData& data, int64_t bytes) {
  for (const ProfileArray& array : data.arrays) {
    if (array.bytes == bytes) return &array;
  }
  return nullptr;
}

// By device and kind.
void ExpectAsTheLedger(const ProfileData& data) {
  const MemorySnapshot ledger = MemoryTracker::Global().Snapshot();
  const std::vector<std::vector<int64_t>> bytes = BytesAtEnd(data);
  std::vector<std::vector<int64_t>> summed(data.devices.size(), std::vector<int64_t>(kMemoryKinds));
  for (const ProfileChange& change : ChangesOf(data))
    summed[change.device][change.kind] += change.bytes;
  for (size_t device = 0; device < data.devices.size(); ++device) {
    const DeviceMemory& there = ledger[DeviceNamed(data.devices[device])];
    for (int kind = 0; kind < kMemoryKinds; ++kind) {
      EXPECT_EQ(bytes[device][kind], there.kinds[kind].current_bytes)
          << data.devices[device] << " " << data.kinds[kind];
      EXPECT_EQ(summed[device][kind], there.kinds[kind].current_bytes)
          << data.devices[device] << " " << data.kinds[kind];
    }
  }
}

TEST(MemoryProfile, CyclesThatAreAlikeAreKeptOnce) {
  Workspace workspace("profiled");
  MemoryProfile profile;
  for (int i = 0; i < 10; ++i) Cycle(workspace);
  const ProfileData& data = profile.data();
  // What each takes is learned in the first one, outside of the pages.
  ASSERT_EQ(data.cycles.size(), 10u);
  ASSERT_EQ(data.cycle_kinds.size(), 2u);
  const ProfileCycleKind& learned = data.cycle_kinds[0];
  const ProfileCycleKind& planned = data.cycle_kinds[1];
  EXPECT_EQ(learned.outside, 3u);
  EXPECT_EQ(planned.outside, 0u);
  EXPECT_EQ(planned.misses, 0u);
  for (size_t i = 1; i < 10; ++i) {
    EXPECT_EQ(data.cycles[i].kind, 1u);
    EXPECT_EQ(data.cycles[i].first_generation, i + 1);
    EXPECT_GE(data.cycles[i].begin, data.cycles[i - 1].end);
  }
  const WorkspaceStats stats = workspace.stats();
  EXPECT_EQ(static_cast<size_t>(planned.bound), stats.live_lower_bound_bytes);
  EXPECT_EQ(static_cast<size_t>(planned.peak), stats.planned_peak_bytes);
  EXPECT_EQ(static_cast<size_t>(planned.requested), stats.requested_bytes);
  ASSERT_EQ(planned.requests.size(), 3u);
  EXPECT_EQ(planned.requests[0].bytes, 3000);
  EXPECT_EQ(planned.released_after, (std::vector<uint32_t>{2, 3, 3}));
  EXPECT_EQ(planned.requests[0].died, planned.requests[2].born);
  EXPECT_LE(planned.requests[0].born, planned.requests[1].born);
  EXPECT_EQ(data.strings[planned.requests[0].owner], "process #layer");
  EXPECT_EQ(data.strings[data.places[planned.place].name], "workspace profiled");
  EXPECT_NE(data.strings[planned.requests[0].site], "");
  EXPECT_EQ(data.strings[planned.owner], "workspace profiled");
}

TEST(MemoryProfile, OtherRequestsAreAnotherKindOfCycle) {
  Workspace workspace("profiled", WorkspaceConfig::Training());
  MemoryProfile profile;
  for (int i = 0; i < 6; ++i) {
    Cycle(workspace, 1000);
    Cycle(workspace, 7000);
  }
  const ProfileData& data = profile.data();
  EXPECT_EQ(data.cycles.size(), 12u);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(data.cycle_kinds[data.cycles[i].kind].requests[0].bytes, i % 2 == 0 ? 3000 : 21000);
  }
  EXPECT_EQ(data.cycles[8].kind, data.cycles[10].kind);
  EXPECT_EQ(data.cycles[9].kind, data.cycles[11].kind);
}

TEST(MemoryProfile, LeaksAreMarked) {
  Workspace workspace("leaky");
  MemoryProfile profile;
  BufferHandle leaked;
  {
    WorkspaceScope scope(workspace);
    Make(128);
    leaked = Make(4096);
  }
  const ProfileCycleKind& kind = profile.data().cycle_kinds.at(0);
  EXPECT_EQ(kind.leaked, 1u);
  EXPECT_EQ(kind.requests.at(0).flags & ProfileArray::kLeaked, 0);
  EXPECT_EQ(kind.requests.at(1).flags & ProfileArray::kLeaked, ProfileArray::kLeaked);
}

TEST(MemoryProfile, MissesAreMarked) {
  Workspace workspace("profiled");
  for (int i = 0; i < 3; ++i) Cycle(workspace);
  MemoryProfile profile;
  Cycle(workspace);
  Cycle(workspace, 5000);
  const uint64_t missed = workspace.stats().misses;
  EXPECT_GT(missed, 0u);
  uint64_t marked = 0;
  for (const ProfileCycleKind& kind : profile.data().cycle_kinds) marked += kind.misses;
  EXPECT_EQ(marked, missed);
}

TEST(MemoryProfile, ArraysOutsideOfCycles) {
  const BufferHandle before(NewHeapBuffer(7777));
  MemoryProfile profile;
  BufferHandle kept(NewHeapBuffer(12345));
  {
    MemoryOwnerScope owner("loader");
    MemoryTagScope tag("imported");
    const BufferHandle gone(NewHeapBuffer(54321));
  }
  const ProfileData& data = profile.data();
  EXPECT_EQ(data.arrays.size(), 2u);
  const ProfileArray* const array = Find(data, 12345);
  ASSERT_NE(array, nullptr);
  EXPECT_EQ(array->died, kAliveAtEnd);
  const ProfileArray* const other = Find(data, 54321);
  ASSERT_NE(other, nullptr);
  EXPECT_GE(other->died, other->born);
  EXPECT_LE(other->died, data.duration);
  EXPECT_EQ(data.strings[other->owner], "loader #imported");
}

TEST(MemoryProfile, WhatIsThereAtTheStartIsMarkedWithItsOwner) {
  MemoryOwner& owner = MemoryOwner::Process().Child("early").Tagged("table");
  MemoryOwnerScope scope(owner);
  BufferHandle early(NewHeapBuffer(100000));
  MemoryProfile profile;
  early.Reset();
  const ProfileData& data = profile.data();
  int64_t at_start = 0, after = 0;
  for (const ProfileStep& step : data.steps) {
    if (data.strings[step.owner] != "early #table") continue;
    (step.at_start ? at_start : after) += step.bytes;
  }
  EXPECT_EQ(at_start, 100000);
  EXPECT_EQ(after, -100000);
  ExpectAsTheLedger(data);
}

TEST(MemoryProfile, TheChangesAddUpToTheLedger) {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    std::vector<BufferHandle> kept;
    Workspace workspace("random", seed % 2 == 0 ? WorkspaceConfig() : WorkspaceConfig::Training());
    for (int i = 0; i < 3; ++i) kept.push_back(BufferHandle(NewHeapBuffer(random() % 5000)));
    if (seed % 3 == 0) Cycle(workspace, 500);
    MemoryProfile profile({.max_records = seed % 4 == 0 ? size_t{30} : size_t{10000}});
    PeakScope peak;
    for (int i = 0; i < 60; ++i) {
      switch (random() % 5) {
        case 0:
          kept.push_back(BufferHandle(NewHeapBuffer(random() % 9000)));
          break;
        case 1:
          kept.erase(kept.begin() + static_cast<ptrdiff_t>(random() % kept.size()));
          break;
        case 2:
          MemoryCharge(MemoryKind::kExternal, static_cast<int64_t>(random() % 1000));
          break;
        case 3:
          SetBufferKind(*kept.back().get(), MemoryKind::kGradientDeferred);
          break;
        default:
          Cycle(workspace, 100 + random() % 3 * 400);
      }
      if (kept.empty()) kept.push_back(BufferHandle(NewHeapBuffer(10)));
    }
    const ProfileData& data = profile.data();
    ExpectAsTheLedger(data);
    // And so does the highest moment, as one workspace works.
    int64_t now = 0, most = 0;
    const std::vector<ProfileChange> changes = ChangesOf(data);
    for (size_t i = 0; i < changes.size(); ++i) {
      if (changes[i].kind != kUnreferenced) now += changes[i].bytes;
      // Changes of one moment are one change.
      if (i + 1 == changes.size() || changes[i + 1].time != changes[i].time)
        most = std::max(most, now);
    }
    if (seed % 4 != 0) {
      EXPECT_EQ(most, peak.peak_in_use_bytes());
    }
  }
}

TEST(MemoryProfile, BeyondItsRecordsTotalsStayRight) {
  MemoryProfile profile({.max_records = 10});
  Workspace workspace("profiled");
  for (int i = 0; i < 50; ++i) {
    const BufferHandle x(NewHeapBuffer(100 + i));
    Cycle(workspace, 100 + static_cast<size_t>(i));
  }
  const BufferHandle kept(NewHeapBuffer(4242));
  const ProfileData& data = profile.data();
  EXPECT_LE(data.arrays.size(), 10u);
  EXPECT_FALSE(data.notes.empty());
  ExpectAsTheLedger(data);
}

TEST(MemoryProfile, ThreadsAreRecordedTogether) {
  MemoryProfile profile;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([t] {
      Workspace workspace("thread " + std::to_string(t));
      for (int i = 0; i < 50; ++i) {
        Cycle(workspace, 100 * (t + 1));
        const BufferHandle x(NewHeapBuffer(64));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const ProfileData& data = profile.data();
  EXPECT_EQ(data.arrays.size(), 200u);
  EXPECT_EQ(data.cycles.size(), 200u);
  ExpectAsTheLedger(data);
}

TEST(MemoryProfile, DevicesHaveCurvesOfTheirOwn) {
  const BufferHandle early(
      NewHeapBuffer(3000, kHeapAlignment, MemoryKind::kAllocated, SimulatedDevice::kDevice));
  MemoryProfile profile;
  Workspace workspace("on a device", {}, SimulatedDevice::kDevice);
  for (int i = 0; i < 3; ++i) Cycle(workspace);
  const Device other{SimulatedDevice::kDevice.type, 1};  // nothing was counted for it before
  const BufferHandle late(NewHeapBuffer(5000, kHeapAlignment, MemoryKind::kAllocated, other));
  const ProfileData& data = profile.data();
  ASSERT_EQ(data.devices.size(), 3u);
  EXPECT_EQ(data.tiers[1], "device memory");
  EXPECT_GE(BytesAtEnd(data)[2][0], 5000);
  ExpectAsTheLedger(data);
}

TEST(MemoryProfile, OneAtATime) {
  MemoryProfile profile;
  EXPECT_THROW(MemoryProfile(), Error);
  profile.Stop();
  MemoryProfile next;
}

TEST(MemoryProfile, NothingIsLeftBehind) {
  EXPECT_THROW(MemoryProfile({.max_records = 0}), Error);
  EXPECT_FALSE(MemoryTracing::enabled());
  {
    MemoryProfile profile;
    EXPECT_TRUE(MemoryTracing::enabled());
  }
  EXPECT_FALSE(MemoryTracing::enabled());
  EXPECT_EQ(MemoryListener::Current(MemoryListener::kProfile), nullptr);
  MemoryTracing::Enable();
  { MemoryProfile profile; }
  EXPECT_TRUE(MemoryTracing::enabled()) << "it was on before";
  MemoryTracing::Disable();
}

// Both are told of all, and neither of what the other asked for alone.
TEST(MemoryProfile, AndARecordAtOnce) {
  const std::string path = testing::TempDir() + "/both.rec";
  constexpr int kBoth = 4, kAlone = 3;
  Workspace workspace("step");
  Cycle(workspace);
  std::optional<MemoryProfile> profile(std::in_place);
  for (int i = 0; i < kAlone; ++i) Cycle(workspace);
  StartRecording(path);
  for (int i = 0; i < kBoth; ++i) {
    Cycle(workspace);
    const BufferHandle heap(NewHeapBuffer(77));
  }
  profile->Stop();
  for (int i = 0; i < kAlone; ++i) Cycle(workspace);
  StopRecording();
  Cycle(workspace);

  const ProfileData& data = profile->data();
  uint64_t cycles = 0;
  for (const ProfileCycles& run : data.cycles) cycles += run.count;
  EXPECT_EQ(cycles, kAlone + kBoth);
  EXPECT_EQ(data.arrays.size(), kBoth);
  for (const ProfileArray& array : data.arrays) EXPECT_NE(array.died, kAliveAtEnd);
  std::map<RecordEvent::What, int> events;
  std::set<uint64_t> alive;
  for (const RecordEvent& event : ReadRecord(path).events) {
    ++events[event.what];
    if (event.what == RecordEvent::What::kAllocate) {
      EXPECT_TRUE(alive.insert(event.block).second);
    }
    if (event.what == RecordEvent::What::kFree) {
      EXPECT_EQ(alive.erase(event.block), 1u);
    }
  }
  EXPECT_EQ(events[RecordEvent::What::kCycleBegin], kBoth + kAlone);
  EXPECT_EQ(events[RecordEvent::What::kCycleEnd], kBoth + kAlone);
  EXPECT_EQ(events[RecordEvent::What::kAllocate], 3 * (kBoth + kAlone) + kBoth);
  EXPECT_TRUE(alive.empty());
}

TEST(MemoryProfile, AChildOfForkRecordsNothing) {
  MemoryProfile profile;
  const pid_t child = fork();
  if (child == 0) {
    const BufferHandle x(NewHeapBuffer(64));
    Workspace workspace("child");
    Cycle(workspace);
    _exit(MemoryListener::Current(MemoryListener::kProfile) == nullptr ? 0 : 1);
  }
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(profile.data().arrays.size(), 0u);
}

}  // namespace
}  // namespace tidepool
