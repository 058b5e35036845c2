#include "tidepool/memory/planning/plan_validator.h"

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/planning/planning_testing.h"

namespace tidepool {
namespace {

std::string Violation(const std::vector<LifetimeBuffer>& buffers, int64_t alignment,
                      std::vector<int64_t> offsets, int64_t peak) {
  return FindPlacementViolation(buffers, alignment, {offsets, peak, 0}).value_or("");
}

TEST(FindPlacementViolation, AcceptsTouchingBuffers) {
  EXPECT_EQ(Violation({}, 1, {}, 0), "");
  EXPECT_EQ(Violation({{0, 2, 4}, {2, 4, 4}, {0, 4, 3}}, 1, {0, 0, 4}, 7), "");
  EXPECT_EQ(Violation({{0, 2, 4}, {0, 4, 3}}, 8, {8, 0}, 16), "");
}

TEST(FindPlacementViolation, IgnoresTheBytesOfEmptyBuffers) {
  EXPECT_EQ(Violation({{0, 2, 4}, {0, 4, 0}}, 1, {0, 2}, 4), "");
}

TEST(FindPlacementViolation, AnAlignmentBelowOneIsAViolation) {
  for (const int64_t alignment : {int64_t{0}, int64_t{-8}, INT64_MIN}) {
    EXPECT_EQ(Violation({{0, 2, 4}}, alignment, {0}, 4),
              "alignment is " + std::to_string(alignment) + ", expected at least 1");
    EXPECT_NE(Violation({}, alignment, {}, 0), "");
  }
}

TEST(FindPlacementViolation, DescribesEachKind) {
  EXPECT_EQ(Violation({{0, 2, 4}}, 1, {}, 0),
            "placement has 0 offsets, expected one for each of 1 buffers");
  EXPECT_EQ(Violation({{0, 2, 4}}, 1, {-1}, 3), "buffer 0 has offset -1, expected >= 0");
  EXPECT_EQ(Violation({{0, 2, 4}}, 8, {4}, 8), "buffer 0 has offset 4, expected a multiple of 8");
  EXPECT_EQ(Violation({{0, 2, 4}}, 8, {8}, 12), "placement says peak 12, its buffers reach 16");
  EXPECT_EQ(Violation({{0, 2, 4}, {1, 3, 4}}, 1, {0, 3}, 7),
            "buffer 0 (lifetime [0, 2), bytes [0, 4)) overlaps "
            "buffer 1 (lifetime [1, 3), bytes [3, 7))");
  EXPECT_EQ(Violation({{0, 2, 4}, {1, 3, 4}}, 1, {3, 0}, 7),
            "buffer 0 (lifetime [0, 2), bytes [3, 7)) overlaps "
            "buffer 1 (lifetime [1, 3), bytes [0, 4))");
}

// Against every pair.
TEST(FindPlacementViolation, AgreesWithComparingAllPairs) {
  constexpr uint64_t kSeed = 1;
  SCOPED_TRACE(testing::Message() << "seed " << kSeed);
  std::mt19937_64 random(kSeed);
  int valid = 0;
  for (int round = 0; round < 20000; ++round) {
    const std::vector<LifetimeBuffer> buffers = RandomProblem(random, 4, 8, 4, 6);
    Placement placement;
    bool overlaps = false;
    for (const LifetimeBuffer& buffer : buffers) {
      placement.offsets.push_back(std::uniform_int_distribution<int64_t>(0, 16)(random));
      placement.peak = std::max(placement.peak, placement.offsets.back() + buffer.size);
      for (size_t i = 0; i + 1 < placement.offsets.size(); ++i) {
        overlaps =
            overlaps || (buffers[i].lower < buffer.upper && buffer.lower < buffers[i].upper &&
                         placement.offsets[i] < placement.offsets.back() + buffer.size &&
                         placement.offsets.back() < placement.offsets[i] + buffers[i].size &&
                         buffer.size > 0 && buffers[i].size > 0);
      }
    }
    ASSERT_EQ(FindPlacementViolation(buffers, 1, placement).has_value(), overlaps) << round;
    valid += !overlaps;
  }
  EXPECT_GT(valid, 1000);
  EXPECT_LT(valid, 19000);
}

}  // namespace
}  // namespace tidepool
