#include "tidepool/memory/profile/detail_levels.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/profile_changes.h"
#include "tidepool/memory/profile/profile_page.h"
#include "tidepool/memory/profile/testing/sample_recordings.h"

namespace tidepool {
namespace {

// The most of all kinds at once; changes of one moment are one.
int64_t Highest(const ProfileData& data) {
  int64_t now = 0, most = 0;
  const std::vector<ProfileChange> changes = ChangesOf(data);
  for (size_t i = 0; i < changes.size(); ++i) {
    now += changes[i].bytes;
    if (i + 1 == changes.size() || changes[i + 1].time != changes[i].time)
      most = std::max(most, now);
  }
  return most;
}

TEST(DetailLevels, WhatFitsStays) {
  const ProfileData data = TrainingRecording(50);
  const ProfileData reduced = Reduced(data, {});
  EXPECT_EQ(reduced.arrays.size(), data.arrays.size());
  EXPECT_EQ(reduced.steps.size(), data.steps.size());
  EXPECT_EQ(reduced.cycles.size(), data.cycles.size());
  EXPECT_EQ(reduced.notes, data.notes);
}

TEST(DetailLevels, TheLargestStayAndTotalsAreTheSame) {
  const ProfileData data = UnevenRecording(20000, 0, 7);
  DetailLimits limits;
  limits.arrays = 1000;
  limits.steps = 2000;
  const ProfileData reduced = Reduced(data, limits);
  EXPECT_LE(reduced.arrays.size(), 1000u);
  EXPECT_GE(reduced.arrays.size(), 900u);
  EXPECT_LE(reduced.steps.size(), 2000u + 400);
  EXPECT_EQ(BytesAtEnd(reduced), BytesAtEnd(data));
  EXPECT_EQ(Highest(reduced), Highest(data)) << "the highest moment is one of those that are kept";
  EXPECT_EQ(reduced.notes.size(), 2u);
  const auto weight = [&](const ProfileArray& array) {
    return static_cast<double>(array.taken) *
           static_cast<double>(std::min(array.died, data.duration) - array.born);
  };
  const auto heavier = [&](const ProfileArray& a, const ProfileArray& b) {
    return weight(a) < weight(b);
  };
  EXPECT_EQ(weight(*std::max_element(reduced.arrays.begin(), reduced.arrays.end(), heavier)),
            weight(*std::max_element(data.arrays.begin(), data.arrays.end(), heavier)));
  EXPECT_TRUE(std::is_sorted(reduced.steps.begin(), reduced.steps.end(),
                             [](auto& a, auto& b) { return a.time < b.time; }));
}

TEST(DetailLevels, NoLayerGoesBelowZero) {
  const ProfileData data = UnevenRecording(20000, 0, 8);
  DetailLimits limits;
  limits.steps = 1500;
  std::map<uint32_t, int64_t> now;
  for (const ProfileStep& step : Reduced(data, limits).steps) {
    ASSERT_GE(now[step.owner] += step.bytes, 0);
  }
}

TEST(DetailLevels, CyclesOfOneKindCountTogether) {
  const ProfileData data = TrainingRecording(400);
  DetailLimits limits;
  limits.cycles = 40;
  const ProfileData reduced = Reduced(data, limits);
  EXPECT_LE(reduced.cycles.size(), 40u);
  uint64_t before = 0, after = 0;
  for (const ProfileCycles& cycles : data.cycles) before += cycles.count;
  for (const ProfileCycles& cycles : reduced.cycles) after += cycles.count;
  EXPECT_EQ(after, before);
}

TEST(DetailLevels, RequestsThatAreMergedKeepWhatTheyTook) {
  const ProfileData data = UnevenRecording(0, 300, 9);
  DetailLimits limits;
  limits.requests = 500;
  const ProfileData reduced = Reduced(data, limits);
  size_t requests = 0;
  for (const ProfileCycleKind& kind : reduced.cycle_kinds) {
    requests += kind.requests.size();
  }
  size_t before = 0;
  for (const ProfileCycleKind& kind : data.cycle_kinds) before += kind.requests.size();
  EXPECT_LT(requests, before);
  ASSERT_EQ(reduced.cycle_kinds.size(), data.cycle_kinds.size());
  for (size_t i = 0; i < data.cycle_kinds.size(); ++i) {
    EXPECT_EQ(reduced.cycle_kinds[i].bound, data.cycle_kinds[i].bound);
    EXPECT_EQ(reduced.cycle_kinds[i].peak, data.cycle_kinds[i].peak);
  }
  EXPECT_GE(Highest(reduced), Highest(data));
}

// Every request and array of an owner of its own, as a program with a stream for each has them.
ProfileData WithOwnersOfTheirOwn(ProfileData data) {
  const auto give = [&data](ProfileArray& array) {
    array.owner = static_cast<uint32_t>(data.strings.size());
    data.strings.push_back("stream " + std::to_string(array.owner) + " #forward");
  };
  for (ProfileArray& array : data.arrays) give(array);
  for (ProfileCycleKind& kind : data.cycle_kinds)
    std::for_each(kind.requests.begin(), kind.requests.end(), give);
  return data;
}

TEST(DetailLevels, OwnersBeyondTheLimitAreOne) {
  const ProfileData data = WithOwnersOfTheirOwn(UnevenRecording(3000, 40, 11));
  DetailLimits limits;
  limits.owners = 50;
  const ProfileData reduced = Reduced(data, limits);
  std::map<uint32_t, int64_t> bytes;
  for (const ProfileArray& array : reduced.arrays) bytes[array.owner] += array.taken;
  for (const ProfileStep& step : reduced.steps) bytes[step.owner] += 0;
  for (const ProfileCycleKind& kind : reduced.cycle_kinds) {
    for (const ProfileArray& request : kind.requests) bytes[request.owner] += request.taken;
  }
  EXPECT_LE(bytes.size(), 50u);
  EXPECT_GE(bytes.size(), 40u);
  EXPECT_EQ(Highest(reduced), Highest(data));
  EXPECT_EQ(BytesAtEnd(reduced), BytesAtEnd(data));
  ASSERT_FALSE(reduced.notes.empty());
  EXPECT_NE(reduced.notes[0].find(" owners are merged into one"), std::string::npos)
      << reduced.notes[0];
  size_t ones = 0;
  for (const auto& [owner, sum] : bytes)
    ones += reduced.strings[owner].find(" smaller owners, merged)") != std::string::npos;
  EXPECT_EQ(ones, 1u);
  // The owner of what weighs most is not among those that are merged.
  const auto lighter = [&data](const ProfileArray& a, const ProfileArray& b) {
    const auto weight = [&data](const ProfileArray& array) {
      return static_cast<double>(array.taken) *
             static_cast<double>(std::min(array.died, data.duration) - array.born);
    };
    return weight(a) < weight(b);
  };
  const auto heaviest = std::max_element(data.arrays.begin(), data.arrays.end(), lighter);
  EXPECT_TRUE(bytes.contains(heaviest->owner)) << data.strings[heaviest->owner];
}

TEST(DetailLevels, ManyOwnersHaveAPage) {
  const std::string page = ProfilePage(WithOwnersOfTheirOwn(UnevenRecording(0, 4000, 12)));
  EXPECT_LE(page.size(), kMostPageBytes);
  EXPECT_NE(page.find(" owners are merged into one"), std::string::npos);
}

TEST(DetailLevels, APageIsNeverLargerThanItMayBe) {
  for (const ProfileData& data :
       {UnevenRecording(300000, 4000, 1), UnevenRecording(0, 20000, 2), TrainingRecording(40000)}) {
    const std::string page = ProfilePage(data);
    EXPECT_LE(page.size(), kMostPageBytes);
    EXPECT_LE(ProfilePage(data, 600000).size(), 600000u);
  }
  ProfileData names = TrainingRecording(2);
  for (int i = 0; i < 3000; ++i)
    names.strings.push_back(std::string(5000, 'x') + std::to_string(i));
  EXPECT_LE(ProfilePage(names).size(), kMostPageBytes);
  EXPECT_THROW(ProfilePage(names, 1000), Error);
}

}  // namespace
}  // namespace tidepool
