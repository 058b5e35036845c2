#include "tidepool/nn/distributed/cost_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/distributed/virtual_links.h"

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

// Seconds of a collective of so many bytes, by the clocks of the ranks that run its code.
double SecondsOnClocks(CollectiveKind kind, int64_t bytes, int ranks, const LinkCost& link) {
  std::vector<std::vector<float>> values(static_cast<size_t>(ranks),
                                         std::vector<float>(static_cast<size_t>(bytes / 4)));
  return VirtualLinks(ranks, link).Run([&](int rank, Collectives& collectives) {
    CollectiveCall call;
    call.kind = kind;
    call.elements = absl::MakeSpan(values[static_cast<size_t>(rank)]);
    call.site = "test";
    collectives.Run(call);
  });
}

// The critical path of what ranks do, which counts of messages do not show. TIDEPOOL_TEST_RANKS says
// how many ranks to go to: 1024 take some seconds.
TEST(CostModel, IsWhatCollectivesTakeOnClocksOfRanks) {
  const char* const wanted = std::getenv("TIDEPOOL_TEST_RANKS");
  const int most = wanted != nullptr ? std::atoi(wanted) : 256;
  for (const LinkCost& link : {LinkCost{2e-6, 80e-12}, LinkCost{20e-6, 800e-12}}) {
    for (const int ranks : {2, 3, 4, 5, 8, 12, 32, 64, 256, 1024}) {
      if (ranks > most) continue;
      SCOPED_TRACE(std::to_string(ranks) + " ranks");
      const double levels = std::ceil(std::log2(ranks));
      const auto expect = [&](CollectiveKind kind, int64_t bytes, double least, double greatest) {
        const double model = SecondsOf(kind, bytes, ranks, link);
        const double taken = SecondsOnClocks(kind, bytes, ranks, link);
        EXPECT_GE(taken, model * (least - 1e-9)) << CollectiveKindName(kind) << " of " << bytes;
        EXPECT_LE(taken, model * (greatest + 1e-9)) << CollectiveKindName(kind) << " of " << bytes;
      };
      // Rings: parts of one piece, and of few ranks of several, all equal.
      std::vector<int64_t> sizes = {int64_t{ranks} * ((24 << 10) / ranks / 4 * 4 + 4)};
      if (ranks <= 12) sizes.push_back(int64_t{ranks} * 3 * (int64_t{128} << 10));
      for (const int64_t bytes : sizes) {
        for (const CollectiveKind kind :
             {CollectiveKind::kAllReduce, CollectiveKind::kReduceScatter,
              CollectiveKind::kAllGather})
          expect(kind, bytes, 1, 1);
      }
      // Trees of all their branches take what is said, others up to a level less each way.
      const bool is_whole = (ranks & (ranks - 1)) == 0;
      const double least = is_whole ? 1 : (levels - 1) / levels;
      expect(CollectiveKind::kAllReduce, 1000, least, 1);
      expect(CollectiveKind::kBarrier, 0, least, 1);
      // By whether links send to several at a time: these do not.
      for (const int64_t bytes : {int64_t{1000}, int64_t{1} << 20}) {
        if (ranks > 12 && bytes > 1000) continue;
        expect(CollectiveKind::kBroadcast, bytes, least, levels);
      }
    }
  }
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
