#include "tidepool/nn/distributed/cost_model.h"

#include <gtest/gtest.h>

#include <atomic>
#include <vector>

#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/thread_ranks.h"

namespace tidepool::nn {
namespace {

// With a cost of a message of 1 and none of bytes, and the other way round, a ring's formulas count
// what a rank sends.
TEST(CostModel, CountsTheMessagesAndBytesOfRings) {
  for (const int size : {2, 3, 4, 8}) {
    ThreadRanks(size).Run([&](Communicator& communicator) {
      for (const int64_t count :
           {int64_t{24} * 1000, int64_t{24} * 40000}) {  // parts of one piece and of several
        std::vector<float> values(static_cast<size_t>(count));
        for (const CollectiveKind kind :
             {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
              CollectiveKind::kAllGather}) {
          const CommunicatorStats before = communicator.stats();
          Pending pending;
          communicator.Start(kind, absl::MakeSpan(values), pending, "test");
          pending.Wait();
          const CommunicatorStats after = communicator.stats();
          EXPECT_DOUBLE_EQ(SecondsOf(kind, count * 4, size, {1, 0}),
                           static_cast<double>(after.messages_sent - before.messages_sent));
          EXPECT_DOUBLE_EQ(SecondsOf(kind, count * 4, size, {0, 1}),
                           static_cast<double>(after.bytes_sent - before.bytes_sent));
        }
      }
    });
  }
}

TEST(CostModel, TreesTakeTwoMessagesALevel) {
  const LinkCost link{2, 0.5};
  EXPECT_DOUBLE_EQ(SecondsOf(CollectiveKind::kAllReduce, 100, 8, link), 2 * 3 * (2 + 50));
  EXPECT_DOUBLE_EQ(SecondsOf(CollectiveKind::kAllReduce, 100, 5, link), 2 * 3 * (2 + 50));
  EXPECT_DOUBLE_EQ(SecondsOf(CollectiveKind::kBarrier, 0, 1024, link), 2 * 10 * 2);
  EXPECT_DOUBLE_EQ(SecondsOf(CollectiveKind::kBroadcast, 100, 4, link), 2 * (2 + 50));
  EXPECT_EQ(SecondsOf(CollectiveKind::kAllReduce, 100, 1, link), 0);
}

TEST(CostModel, WhatIsBehindTheBackwardPassIsExposed) {
  // Of two ranks a sum of s bytes takes s beta.
  const LinkCost link{0, 1};
  constexpr int64_t k = 1 << 20;
  const std::vector<BucketTime> buckets = {{1.0 * k, k}, {1.5 * k, k}, {5.0 * k, k}};
  // From 1 to 2, from 2 to 3, from 5 to 6 of a pass of 5.5.
  const Overlap overlap = OverlapOf(buckets, 5.5 * k, 2, link);
  EXPECT_DOUBLE_EQ(overlap.communication, 3.0 * k);
  EXPECT_DOUBLE_EQ(overlap.exposed, 0.5 * k);
  EXPECT_DOUBLE_EQ(overlap.hidden(), 1 - 0.5 / 3);
  EXPECT_EQ(OverlapOf(buckets, 100.0 * k, 2, link).exposed, 0);
  EXPECT_EQ(OverlapOf(buckets, 5, 1, link).hidden(), 1);
}

}  // namespace
}  // namespace tidepool::nn
