// Plans of gathers, walked through place by place: what is there, and what lies where.
#include "tidepool/nn/distributed/gather_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace tidepool::nn {
namespace {

// Memory of a step: whose each byte is.
class Memory {
 public:
  explicit Memory(int64_t bytes) : owner_(static_cast<size_t>(bytes), kFree) {}
  void Take(int whose, int64_t at, int64_t bytes) {
    for (int64_t i = at; i < at + bytes; ++i) {
      ASSERT_EQ(owner_[static_cast<size_t>(i)], kFree) << "byte " << i << " for " << whose;
      owner_[static_cast<size_t>(i)] = whose;
    }
  }
  void Leave(int whose) {
    for (int& owner : owner_)
      if (owner == whose) owner = kFree;
  }
  bool Has(int whose) const { return std::count(owner_.begin(), owner_.end(), whose) > 0; }

 private:
  static constexpr int kFree = -1;
  std::vector<int> owner_;
};

void Walk(const std::vector<BucketUse>& buckets, int places, int ahead) {
  const GatherPlan plan = PlanGathers(buckets, places, ahead, 1);
  const int count = static_cast<int>(buckets.size());
  const auto use = [&](int b) { return buckets[static_cast<size_t>(b)]; };
  const auto gradient = [&](int b) { return count + b; };
  Memory memory(plan.bytes);
  int begun = 0, there = 0;
  for (int place = 0; place < places; ++place) {
    for (int b = 0; b < count; ++b)
      if (use(b).last == place - 1) memory.Leave(b);
    for (; begun < plan.forward_begun[static_cast<size_t>(place)]; ++begun) {
      const int b = plan.forward[static_cast<size_t>(begun)];
      memory.Take(b, plan.values[static_cast<size_t>(b)], use(b).bytes);
    }
    there = plan.forward_there[static_cast<size_t>(place)];
    EXPECT_LE(there, begun);
    for (int b = 0; b < count; ++b) {
      if (use(b).first > place || use(b).last < place) continue;
      const auto at = std::find(plan.forward.begin(), plan.forward.end(), b);
      EXPECT_LT(at - plan.forward.begin(), there);
      EXPECT_TRUE(memory.Has(b));
    }
  }
  EXPECT_EQ(begun, count);
  begun = plan.kept;
  int summed = 0, collected = 0;
  for (int place = places - 1; place >= -1; --place) {
    for (; summed < count && use(plan.sums[static_cast<size_t>(summed)]).first > place; ++summed)
      EXPECT_TRUE(memory.Has(gradient(plan.sums[static_cast<size_t>(summed)])));
    for (; collected < summed - ahead; ++collected)
      memory.Leave(gradient(plan.sums[static_cast<size_t>(collected)]));
    if (place < 0) break;
    for (int b = 0; b < count; ++b)
      if (use(b).first == place + 1) memory.Leave(b);
    for (int b = 0; b < count; ++b) {
      if (use(b).last == place)
        memory.Take(gradient(b), plan.gradients[static_cast<size_t>(b)], use(b).bytes);
    }
    for (; begun < plan.backward_begun[static_cast<size_t>(place)]; ++begun) {
      const int b = plan.backward[static_cast<size_t>(begun)];
      memory.Take(b, plan.values[static_cast<size_t>(b)], use(b).bytes);
    }
    for (int b = 0; b < count; ++b) {
      if (use(b).first <= place && place <= use(b).last) {
        EXPECT_TRUE(memory.Has(b));
      }
    }
  }
  EXPECT_EQ(begun, count);
  EXPECT_EQ(summed, count);
}

TEST(GatherPlan, AheadOfAllIsAnyLargeNumber) {
  std::vector<BucketUse> chain;
  for (int i = 0; i < 8; ++i) chain.push_back({i, i, 100});
  const GatherPlan all = PlanGathers(chain, 8, 8, 1);
  for (const int ahead : {9, INT_MAX - 1, INT_MAX}) {
    const GatherPlan plan = PlanGathers(chain, 8, ahead, 1);
    EXPECT_EQ(plan.forward_begun, all.forward_begun);
    EXPECT_EQ(plan.backward_begun, all.backward_begun);
    EXPECT_EQ(plan.values, all.values);
    EXPECT_EQ(plan.bytes, all.bytes);
  }
}

TEST(GatherPlan, AChainHasFiveOfItsBucketsAtATime) {
  std::vector<BucketUse> chain;
  for (int i = 0; i < 32; ++i) chain.push_back({i, i, 100});
  Walk(chain, 32, 1);
  const GatherPlan plan = PlanGathers(chain, 32, 1, 1);
  // Three of parameters, with those before and behind, and two of gradients.
  EXPECT_EQ(plan.bytes, 500);
  EXPECT_EQ(plan.inference_bytes, 200);
  EXPECT_EQ(plan.kept, 1);
  EXPECT_EQ(PlanGathers(chain, 32, 0, 1).bytes, 200);
}

TEST(GatherPlan, NoBytesAreTwoBucketsAtATime) {
  std::mt19937 random(7);
  const auto draw = [&](int most) {
    return static_cast<int>(random() % static_cast<unsigned>(most));
  };
  for (int round = 0; round < 300; ++round) {
    const int places = 1 + draw(8);
    std::vector<BucketUse> buckets;
    for (int b = 0; b < 1 + draw(9); ++b) {
      // Most of a layer or two; some are read at both ends.
      const int first = draw(places),
                last = std::min(places - 1, first + (draw(5) == 0 ? draw(8) : draw(2)));
      buckets.push_back({first, last, 1 + draw(40)});
    }
    Walk(buckets, places, draw(4));
    if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) FAIL() << round;
  }
}

}  // namespace
}  // namespace tidepool::nn
