#include "tidepool/memory/workspace/plan_set.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

// One request, so that the plan's peak is `bytes`.
std::shared_ptr<const CyclePlan> OneRequest(int64_t bytes) {
  return MakeCyclePlan(PlaceRequests({{0, 1, bytes}}, {}, 64), SIZE_MAX);
}

LearnedCycle* FindOneRequest(const PlanSet& plans, int64_t bytes) {
  return plans.Find(ExtendSignature(kNoRequests, bytes), 1);
}

TEST(PlanSet, FindsBySignatureAndReplacesTheSame) {
  PlanSet plans;
  EXPECT_TRUE(plans.empty());
  plans.Add(OneRequest(64), 0);
  plans.Add(OneRequest(128), 0);
  EXPECT_EQ(plans.size(), 2);
  EXPECT_EQ(plans.peak_bytes(), 128);
  EXPECT_EQ(FindOneRequest(plans, 64)->plan->requests[0].size, 64);
  EXPECT_EQ(FindOneRequest(plans, 192), nullptr);
  EXPECT_EQ(plans.Find(ExtendSignature(kNoRequests, 64), 2), nullptr);
  LearnedCycle* anew = plans.Add(OneRequest(64), 9);
  EXPECT_EQ(plans.size(), 2);
  EXPECT_EQ(FindOneRequest(plans, 64), anew);
  EXPECT_EQ(anew->learned_at, 9);
  EXPECT_GT(plans.state_bytes(), 2 * sizeof(LearnedCycle));
}

TEST(PlanSet, TheLeastRecentlyUsedGoesWhenFull) {
  PlanSet plans(3);
  LearnedCycle* first = plans.Add(OneRequest(64), 0);
  plans.Add(OneRequest(128), 0);
  plans.Add(OneRequest(192), 0);
  plans.Use(first, 4, true);
  EXPECT_EQ(plans.cycles().front().get(), first);
  plans.Add(OneRequest(256), 0);
  EXPECT_EQ(plans.size(), 3);
  EXPECT_EQ(FindOneRequest(plans, 128), nullptr);
  EXPECT_NE(FindOneRequest(plans, 64), nullptr);
}

// `kind` tells apart; one of `bytes` among `count` tiny ones.
std::shared_ptr<const CyclePlan> ManyRequests(int64_t kind, int64_t count, int64_t bytes) {
  std::vector<LifetimeBuffer> requests = {{0, 1, 64 * (1 + kind)}, {1, 2, bytes}};
  for (int64_t i = 2; i < count; ++i) requests.push_back({i, i + 1, 64});
  return MakeCyclePlan(PlaceRequests(requests, {}, 64), SIZE_MAX);
}

// What is written down of many kinds of small cycles is not many times what they need themselves.
TEST(PlanSet, PlansTakeLittleMoreThanTheyServeAndAConstant) {
  constexpr int64_t kRequests = 4000;
  for (const int64_t bytes : {int64_t{64}, int64_t{16} << 20, int64_t{200} << 20}) {
    PlanSet plans;
    const size_t each = sizeof(LearnedCycle) + ManyRequests(0, kRequests, bytes)->state_bytes();
    EXPECT_LE(each, kRequests * 72 + 4096) << "68 bytes for a request of one tenant";
    int64_t kinds = 0;
    while (kinds < 400 && plans.HasRoom(static_cast<uint64_t>(kinds), /*surely=*/false)) {
      plans.Add(ManyRequests(kinds, kRequests, bytes), static_cast<uint64_t>(kinds));
      ++kinds;
    }
    const size_t most = std::min(PlanSet::kMostBytes, PlanSet::kFewBytes + plans.peak_bytes());
    EXPECT_EQ(plans.size(), most / each) << bytes;
    // One that is surely wanted comes all the same, and others go for it.
    plans.Add(ManyRequests(kinds, kRequests, bytes), static_cast<uint64_t>(kinds));
    EXPECT_EQ(plans.size(), most / each) << bytes;
    EXPECT_EQ(plans.last_used().plan->requests[0].size, 64 * (1 + kinds));
  }
}

// However plans come, take another's place and go.
TEST(PlanSet, ListsPlansByWhatTheirRequestsBeginWith) {
  std::mt19937_64 random(20261127);
  for (const size_t most : {40, 400}) {
    PlanSet plans(most);
    const int64_t sizes = most == 40 ? 3 : 9;
    for (uint64_t now = 0; now < 15 * most; ++now) {
      std::vector<LifetimeBuffer> requests;
      const int64_t count = 1 + static_cast<int64_t>(random() % 4);
      for (int64_t i = 0; i < count; ++i) {
        requests.push_back({i, i + 1, 64 * (1 + static_cast<int64_t>(random() % 9) % sizes)});
      }
      plans.Add(MakeCyclePlan(PlaceRequests(requests, {}, 64), SIZE_MAX), now);
      if (random() % 64 == 0) plans.ForgetLarger(64 * sizes * 2);
      if (random() % 64 == 0) plans.Forget(plans.cycles().back().get());
      if (random() % 8 == 0 && !plans.empty()) {
        const std::shared_ptr<const CyclePlan> old = plans.cycles().back()->plan;
        const PlanSet::Replacement same{
            old, MakeCyclePlan(PlaceRequests(old->requests, {}, 64), SIZE_MAX)};
        plans.Replace({&same, 1});
        ASSERT_EQ(plans.cycles().back()->plan, same.by);
      }
      const PlanList& list = *plans.list();
      ASSERT_EQ(list.size(), plans.size());
      size_t requests_of_one = 0;
      for (uint32_t i = 0; i < list.size(); ++i) {
        ASSERT_TRUE(plans.Holds(&list[i]));
        requests_of_one = std::max(requests_of_one, list[i].plan->requests.size());
        if (i == 0) continue;
        const auto &before = list[i - 1].plan->signatures, &behind = list[i].plan->signatures;
        ASSERT_TRUE(std::lexicographical_compare(before.begin(), before.end(), behind.begin(),
                                                 behind.end()));
      }
      ASSERT_EQ(list.most_requests(), requests_of_one);
      const auto bytes = static_cast<size_t>(64 * (1 + random() % 10));
      const size_t peak = 64 * (1 + random() % 20);
      const auto first = [](const LearnedCycle& cycle) {
        return static_cast<size_t>(cycle.plan->requests.front().size);
      };
      size_t smallest = SIZE_MAX, visited = 0;
      for (const auto& cycle : plans.cycles()) {
        if (first(*cycle) >= bytes && cycle->plan->layout.peak_bytes() <= peak) {
          smallest = std::min(smallest, first(*cycle));
        }
      }
      const LearnedCycle* const found = list.SmallestThatBegins(bytes, peak);
      ASSERT_EQ(found != nullptr ? first(*found) : SIZE_MAX, smallest);
      if (list.size() == 0) continue;
      const auto begin = static_cast<uint32_t>(random() % list.size());
      const auto end = static_cast<uint32_t>(begin + random() % (list.size() - begin + 1));
      list.ForEach({begin, end}, [&](const LearnedCycle& cycle) {
        ASSERT_EQ(&cycle, &list[begin + static_cast<uint32_t>(visited++)]);
      });
      ASSERT_EQ(visited, end - begin);
    }
    EXPECT_GE(plans.size(), most * 2 / 3);
  }
}

// Two requests, one after the other.
std::shared_ptr<const CyclePlan> TwoRequests(int64_t first, int64_t second) {
  return MakeCyclePlan(PlaceRequests({{0, 1, first}, {1, 2, second}}, {}, 64), SIZE_MAX);
}

TEST(PlanSet, WhatHasNotComeForLongDoesNotMakeThePagesOfOthersLarge) {
  PlanSet plans;
  plans.Add(TwoRequests(64, 64000), 1);
  plans.Add(TwoRequests(128, 128000), 1);
  LearnedCycle* const small = plans.Add(TwoRequests(64, 640), 1);
  const auto holds = [&](int64_t first, int64_t second) {
    return plans.Find(TwoRequests(first, second)->signature(), 2) != nullptr;
  };
  constexpr uint64_t kLong = 4 * PlanSet::kMostUnused;
  plans.Use(small, kLong, true);
  EXPECT_FALSE(plans.ForgetInTheWay(kLong));
  plans.Use(small, kLong + 1, true);
  EXPECT_TRUE(plans.ForgetInTheWay(kLong + 1));
  EXPECT_FALSE(holds(64, 64000));
  EXPECT_TRUE(holds(128, 128000)) << "nobody begins as it does";
  EXPECT_TRUE(holds(64, 640));
  // What comes back has more patience each time.
  uint64_t now = kLong + 1;
  uint64_t stayed = 0;
  for (int i = 0; i < 5; ++i) {
    plans.Add(TwoRequests(64, 64000), now);
    const uint64_t since = now;
    do {
      plans.Use(small, ++now, true);
    } while (!plans.ForgetInTheWay(now) && now < since + 100 * kLong);
    EXPECT_GE(now - since, stayed);
    stayed = now - since;
  }
  EXPECT_GT(stayed, kLong);
}

TEST(PlanSet, AnOutlierIsForgottenAfterItsPatience) {
  PlanSet plans;
  plans.Add(OneRequest(6400), 10);
  LearnedCycle* usual = plans.Add(OneRequest(640), 11);
  for (uint64_t now = 11; now < 13; ++now) {
    plans.Use(usual, now, true);
    EXPECT_FALSE(plans.ForgetOutliers(now)) << now;
  }
  plans.Use(usual, 13, true);
  EXPECT_TRUE(plans.ForgetOutliers(13));
  EXPECT_EQ(plans.peak_bytes(), 640);
  EXPECT_EQ(plans.size(), 1);
  EXPECT_FALSE(plans.ForgetOutliers(99));
}

TEST(PlanSet, SeveralOutliersGoTogetherAndTheRestStays) {
  PlanSet plans;
  plans.Add(OneRequest(9600), 1);
  plans.Add(OneRequest(9000), 2);
  for (int64_t bytes : {1280, 1216, 1152}) plans.Add(OneRequest(bytes), 3);
  LearnedCycle* usual = plans.Add(OneRequest(1088), 3);
  plans.Use(usual, 50, true);
  EXPECT_TRUE(plans.ForgetOutliers(50));
  EXPECT_EQ(plans.size(), 4);
  EXPECT_EQ(plans.peak_bytes(), 1280);
  EXPECT_FALSE(plans.ForgetOutliers(50)) << "the rest differs by little";
}

TEST(PlanSet, WhatWasUsedOrCameBackIsKeptLonger) {
  PlanSet plans;
  LearnedCycle* large = plans.Add(OneRequest(6400), 0);
  LearnedCycle* usual = plans.Add(OneRequest(640), 0);
  plans.Use(large, 1, true);
  plans.Use(usual, 6, true);
  EXPECT_FALSE(plans.ForgetOutliers(6)) << "patience was doubled to 6";
  plans.Use(usual, 7, true);
  EXPECT_TRUE(plans.ForgetOutliers(7));
  plans.Add(OneRequest(6400), 8);
  plans.Use(usual, 31, true);
  EXPECT_FALSE(plans.ForgetOutliers(31)) << "it came back: 4 * 6 cycles";
  EXPECT_TRUE(plans.ForgetOutliers(32));
}

TEST(PlanSet, WhatStayedAwayForLongAndCameBackIsKeptTwiceAsLong) {
  PlanSet plans;
  LearnedCycle* usual = plans.Add(OneRequest(640), 0);
  plans.Add(OneRequest(700), 0);  // a sixteenth more, not a quarter
  plans.Use(usual, 256, true);
  EXPECT_TRUE(plans.ForgetOutliers(256));
  plans.Add(OneRequest(700), 1000);
  plans.Use(&plans.last_used(), 1001, true);
  plans.Use(usual, 3000, true);
  EXPECT_FALSE(plans.ForgetOutliers(3000)) << "it had stayed away for 1,000 cycles";
  EXPECT_EQ(plans.CyclesUntilOutlier(3000), 0);
  plans.Use(usual, 3001, true);
  EXPECT_TRUE(plans.ForgetOutliers(3001));
  plans.Add(OneRequest(700), 100000);
  plans.Use(usual, 100000 + PlanSet::kMostCyclesAway - 1, true);
  EXPECT_FALSE(plans.ForgetOutliers(100000 + PlanSet::kMostCyclesAway - 1));
  EXPECT_TRUE(plans.ForgetOutliers(100000 + PlanSet::kMostCyclesAway));
}

TEST(PlanSet, WhatIsKnownOfACycleOutlivesItsPlan) {
  PlanSet plans;
  const LearnedCycle* one = plans.Add(OneRequest(640), 10);
  plans.Use(one, 30, true);
  plans.Use(one, 35, false);  // it served another
  plans.Use(one, 40, true);
  EXPECT_EQ(one->away, 20);
  plans.last_used().regrets = 2;
  plans.last_used().watch.repetitions = 5;
  // Another plan of its own, after it had stayed away for longer.
  LearnedCycle* const anew = plans.Add(OneRequest(640), 100);
  EXPECT_EQ(anew->away, 60);
  EXPECT_EQ(anew->regrets, 2);
  EXPECT_EQ(anew->remade, 1);
  EXPECT_EQ(anew->watch.repetitions, 0) << "it has to be looked at anew";
  // Other places for the sake of others.
  anew->watch.repetitions = 7;
  anew->watch.seen_cycles = 3;
  const PlanSet::Replacement other{anew->plan, OneRequest(640)};
  plans.Replace({&other, 1});
  const LearnedCycle& moved = plans.last_used();
  EXPECT_EQ(moved.plan, other.by);
  EXPECT_EQ(moved.away, 60);
  EXPECT_EQ(moved.used_at, 100);
  EXPECT_EQ(moved.watch.repetitions, 7);
  EXPECT_EQ(moved.watch.seen_cycles, 3);
}

// What is added up change by change is what there is.
TEST(PlanSet, SumsAndListAreThoseOfItsPlansWhateverHappens) {
  std::mt19937 random(11);
  const auto draw = [&](int n) {
    return static_cast<int64_t>(random() % static_cast<unsigned>(n));
  };
  PlanSet plans(/*most_plans=*/40);
  std::vector<std::shared_ptr<const CyclePlan>> made;  // alike kinds are the same requests
  for (int64_t kind = 0; kind < 120; ++kind) {
    made.push_back(ManyRequests(kind % 60, 300, 64 * (1 + kind % 60) * (kind < 60 ? 40 : 100)));
  }
  for (uint64_t now = 1; now < 4000; ++now) {
    const size_t kind = static_cast<size_t>(draw(120));
    LearnedCycle* const there = plans.Find(made[kind]->signature(), made[kind]->requests.size());
    switch (draw(plans.empty() ? 1 : 10)) {
      case 0:
      case 1:
        plans.Add(made[kind], now, /*loaded=*/draw(20) == 0);
        break;
      case 2:
        if (there != nullptr) {
          const PlanSet::Replacement replacement{
              there->plan,
              ManyRequests(static_cast<int64_t>(kind % 60), 300, made[kind]->requests[1].size)};
          plans.Replace({&replacement, 1});
        }
        break;
      case 3:
        plans.SetAlone(draw(2) == 0, now, draw(2) == 0 ? made[kind] : nullptr);
        break;
      case 4:
        if (draw(20) == 0) plans.ForgetLarger(static_cast<size_t>(draw(300000)));
        break;
      case 5:
        plans.ForgetOutliers(now);
        break;
      case 6:
        if (there != nullptr && draw(10) == 0) plans.Forget(there);
        break;
      default:
        if (there == nullptr) break;
        plans.Use(there, now, draw(2) == 0);
        EXPECT_EQ(&plans.last_used(), there);
    }
    size_t bytes = 0, peak = 0, loaded = 0;
    for (const auto& cycle : plans.cycles()) {
      bytes += sizeof(LearnedCycle) + cycle->plan->state_bytes();
      if (cycle->longer != nullptr) bytes += cycle->longer->state_bytes();
      size_t& most = cycle->loaded ? loaded : peak;
      most = std::max(most, cycle->plan->layout.peak_bytes());
      const PlanList::Range like = plans.list()->Like(*cycle->plan, 300);
      bool listed = false;
      for (uint32_t i = like.begin; i < like.end; ++i)
        listed = listed || &(*plans.list())[i] == cycle.get();
      ASSERT_TRUE(listed) << now;
    }
    ASSERT_EQ(plans.list()->size(), plans.size()) << now;
    ASSERT_EQ(plans.peak_bytes(), peak) << now;
    ASSERT_EQ(plans.loaded_peak_bytes(), loaded) << now;
    ASSERT_GE(plans.state_bytes(), bytes) << now;
    ASSERT_LE(plans.state_bytes(), bytes + 32768) << now << ": vectors and maps";
  }
}

TEST(PlanSet, ForgetLargerAndClear) {
  PlanSet plans;
  for (int64_t bytes : {64, 128, 256}) plans.Add(OneRequest(bytes), 0);
  plans.ForgetLarger(128);
  EXPECT_EQ(plans.size(), 2);
  EXPECT_EQ(plans.peak_bytes(), 128);
  plans.Clear();
  EXPECT_TRUE(plans.empty());
  EXPECT_EQ(plans.peak_bytes(), 0);
}

}  // namespace
}  // namespace tidepool
