#include "tidepool/memory/mirroring/freshness.h"

#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

constexpr Freshness kStates[] = {Freshness::kNobody, Freshness::kBoth, Freshness::kHost,
                                 Freshness::kDevice};
constexpr MirrorEvent kEvents[] = {MirrorEvent::kHostRead,      MirrorEvent::kHostWrite,
                                   MirrorEvent::kHostOverwrite, MirrorEvent::kDeviceRead,
                                   MirrorEvent::kDeviceWrite,   MirrorEvent::kDeviceOverwrite,
                                   MirrorEvent::kHostDropped};

bool IsOfHost(MirrorEvent event) { return event <= MirrorEvent::kHostOverwrite; }
bool Overwrites(MirrorEvent event) {
  return event == MirrorEvent::kHostOverwrite || event == MirrorEvent::kDeviceOverwrite;
}
bool Writes(MirrorEvent event) {
  return event == MirrorEvent::kHostWrite || event == MirrorEvent::kDeviceWrite ||
         Overwrites(event);
}

// Two bytes and what they should be: what no table is needed for.
struct TwoBytes {
  int host = -1, device = -2, newest = 0;  // 0: nobody has written it
};

TwoBytes InState(Freshness state) {
  switch (state) {
    case Freshness::kNobody:
      return {};
    case Freshness::kBoth:
      return {5, 5, 5};
    case Freshness::kHost:
      return {5, 3, 5};
    case Freshness::kDevice:
      return {3, 5, 5};
  }
  return {};
}

bool Fits(Freshness state, const TwoBytes& bytes) {
  if (bytes.newest == 0) return state == Freshness::kNobody;
  const bool host = bytes.host == bytes.newest, device = bytes.device == bytes.newest;
  switch (state) {
    case Freshness::kNobody:
      return false;
    case Freshness::kBoth:
      return host && device;
    case Freshness::kHost:
      return host;
    case Freshness::kDevice:
      return device;
  }
  return false;
}

// Every state and every event: the copy makes the side that is read current, no copy is made that is
// not needed, and the next state says what is so.
TEST(FreshnessTest, TheTableIsRightForEveryStateAndEvent) {
  for (Freshness state : kStates) {
    for (MirrorEvent event : kEvents) {
      SCOPED_TRACE(testing::Message()
                   << "state " << static_cast<int>(state) << ", event " << static_cast<int>(event));
      TwoBytes bytes = InState(state);
      const MirrorStep step = StepOf(state, event);
      if (step.copy == MirrorCopy::kToHost) bytes.host = bytes.device;
      if (step.copy == MirrorCopy::kToDevice) bytes.device = bytes.host;
      const bool on_host = IsOfHost(event);
      // Whoever reads, or writes less than all of it, must find the newest; when the host's copy goes
      // the device's must have it.
      const bool must_find = event == MirrorEvent::kHostDropped || !Overwrites(event);
      const int found = on_host ? bytes.host : bytes.device;
      const bool written = state != Freshness::kNobody;
      if (must_find && written) {
        EXPECT_EQ(found, bytes.newest);
      }
      const TwoBytes before = InState(state);
      const bool needed =
          must_find && written && (on_host ? before.host : before.device) != before.newest;
      EXPECT_EQ(step.copy != MirrorCopy::kNone, needed);
      if (needed) {
        EXPECT_EQ(step.copy, on_host ? MirrorCopy::kToHost : MirrorCopy::kToDevice);
      }
      if (Writes(event)) (on_host ? bytes.host : bytes.device) = bytes.newest = 9;
      if (event == MirrorEvent::kHostDropped) bytes.host = -1;
      EXPECT_TRUE(Fits(step.next, bytes));
      // No weaker than it has to be: what is on both sides is known to be.
      if (bytes.newest != 0 && bytes.host == bytes.newest && bytes.device == bytes.newest) {
        const bool known = step.next == Freshness::kBoth || state == Freshness::kDevice;
        EXPECT_TRUE(known);
      }
    }
  }
}

class MapModel {
 public:
  explicit MapModel(size_t bytes) : bytes_(bytes) {}
  // Copies what the map says and does the event; counts copied bytes that were not stale.
  void Do(FreshnessMap& map, MirrorEvent event, size_t begin, size_t end, int value) {
    for (const FreshnessMap::Range& range : map.CopiesFor(event, begin, end)) {
      ASSERT_LT(range.begin, range.end);
      ASSERT_LE(begin, range.begin);
      ASSERT_LE(range.end, end);
      for (size_t i = range.begin; i < range.end; ++i) {
        if (StepOf(range.state, event).copy == MirrorCopy::kToHost) {
          bytes_[i].host = bytes_[i].device;
        } else {
          bytes_[i].device = bytes_[i].host;
        }
      }
    }
    map.Apply(event, begin, end);
    for (size_t i = begin; i < end; ++i) {
      TwoBytes& byte = bytes_[i];
      if (!Overwrites(event) && byte.newest != 0) {
        ASSERT_EQ(IsOfHost(event) ? byte.host : byte.device, byte.newest) << i;
      }
      if (Writes(event)) (IsOfHost(event) ? byte.host : byte.device) = byte.newest = value;
      if (event == MirrorEvent::kHostDropped) byte.host = -1;
    }
    Check(map);
  }

 private:
  void Check(const FreshnessMap& map) {
    size_t at = 0;
    for (size_t r = 0; r < map.ranges().size(); ++r) {
      const FreshnessMap::Range& range = map.ranges()[r];
      ASSERT_EQ(range.begin, at);
      ASSERT_LT(range.begin, range.end);
      if (r > 0) {
        ASSERT_NE(range.state, map.ranges()[r - 1].state);
      }
      for (; at < range.end; ++at) {
        // What nobody has written may be taken to be anywhere.
        if (bytes_[at].newest != 0) {
          ASSERT_TRUE(Fits(range.state, bytes_[at])) << at;
        }
      }
    }
    ASSERT_EQ(at, bytes_.size());
  }

  std::vector<TwoBytes> bytes_;
};

// Against a model of each byte, with so many small writes that ranges are joined.
TEST(FreshnessTest, RandomEventsAgreeWithAModelOfEveryByte) {
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    const size_t bytes = seed % 3 == 0 ? 40 : 400;
    const size_t longest = seed % 2 == 0 ? bytes : 5;
    FreshnessMap map(bytes, seed % 4 == 0 ? Freshness::kNobody : Freshness::kHost);
    MapModel model(bytes);
    size_t most = 0;
    for (int step = 1; step < 1500; ++step) {
      const size_t begin = random() % bytes;
      const size_t end = std::min(bytes, begin + 1 + random() % longest);
      const MirrorEvent event = kEvents[random() % (step % 50 == 0 ? 7 : 6)];
      const bool whole = event == MirrorEvent::kHostDropped;
      // Who uses it resolves a crowd first, as BufferMirror does.
      if (map.is_crowded()) model.Do(map, MirrorEvent::kDeviceRead, 0, bytes, step);
      model.Do(map, event, whole ? 0 : begin, whole ? bytes : end, step);
      if (HasFatalFailure()) return;
      most = std::max(most, map.ranges().size());
    }
    EXPECT_LE(most, FreshnessMap::kMostRanges + 2);
    if (longest == 5 && bytes == 400) {
      EXPECT_GE(most, FreshnessMap::kMostRanges);
    }
  }
}

TEST(FreshnessTest, AWriteMakesExactlyItsRangeStale) {
  FreshnessMap map(100, Freshness::kDevice);
  map.Apply(MirrorEvent::kHostRead, 0, 100);
  map.Apply(MirrorEvent::kHostWrite, 10, 20);
  map.Apply(MirrorEvent::kDeviceWrite, 50, 60);
  EXPECT_TRUE(map.IsFreshOn(true, 0, 50));
  EXPECT_FALSE(map.IsFreshOn(true, 59, 60));
  EXPECT_TRUE(map.IsFreshOn(false, 20, 100));
  EXPECT_FALSE(map.IsFreshOn(false, 0, 11));
  ASSERT_EQ(map.ranges().size(), 5);
  const auto copies = map.CopiesFor(MirrorEvent::kDeviceRead, 0, 100);
  ASSERT_EQ(copies.size(), 1);
  EXPECT_EQ(copies[0].begin, 10);
  EXPECT_EQ(copies[0].end, 20);
  EXPECT_TRUE(map.CopiesFor(MirrorEvent::kHostRead, 60, 100).empty());
}

TEST(FreshnessTest, EmptyBuffersAndRanges) {
  FreshnessMap none(0, Freshness::kDevice);
  EXPECT_TRUE(none.ranges().empty());
  EXPECT_TRUE(none.IsFreshOn(true, 0, 0));
  none.Apply(MirrorEvent::kHostWrite, 0, 0);
  FreshnessMap map(10, Freshness::kDevice);
  map.Apply(MirrorEvent::kHostWrite, 5, 5);
  EXPECT_EQ(map.ranges().size(), 1);
}

}  // namespace
}  // namespace tidepool
