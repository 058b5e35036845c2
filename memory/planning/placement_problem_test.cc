#include "tidepool/memory/planning/placement_problem.h"

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr int64_t kLargest = std::numeric_limits<int64_t>::max();

std::string MessageOf(const std::vector<LifetimeBuffer>& buffers, int64_t alignment) {
  try {
    CheckPlacementProblem(buffers, alignment);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  }
  return "";
}

TEST(AlignedSize, RoundsUp) {
  EXPECT_EQ(AlignedSize(0, 64), 0);
  EXPECT_EQ(AlignedSize(1, 64), 64);
  EXPECT_EQ(AlignedSize(64, 64), 64);
  EXPECT_EQ(AlignedSize(65, 64), 128);
  EXPECT_EQ(AlignedSize(7, 1), 7);
}

// The two ways to it, also where lifetimes reach over the windows of the one without memory.
TEST(LiveLowerBound, OfNumberedBuffersIsThatOfTheSameBuffersLater) {
  std::mt19937_64 random(7);
  for (const int64_t count : {1, 2, 50, 1000, 4095, 4096, 4097, 9000, 12288}) {
    for (const int64_t longest : {int64_t{1}, int64_t{40}, count}) {
      std::vector<LifetimeBuffer> buffers;
      for (int64_t i = 0; i < count; ++i) {
        buffers.push_back({i,
                           i + 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(longest)),
                           static_cast<int64_t>(random() % 1000)});
      }
      std::vector<LifetimeBuffer> later = buffers;
      for (LifetimeBuffer& buffer : later) {
        ++buffer.lower;
        ++buffer.upper;
      }
      EXPECT_EQ(LiveLowerBound(buffers, 64), LiveLowerBound(later, 64)) << count << " " << longest;
    }
  }
}

TEST(LiveLowerBound, IsTheLargestSumAliveAtOnce) {
  EXPECT_EQ(LiveLowerBound({}, 1), 0);
  EXPECT_EQ(LiveLowerBound({{0, 3, 4}, {3, 9, 4}, {0, 9, 4}, {9, 21, 4}, {0, 21, 4}}, 1), 12);
  // Half open: the second begins when the first has ended.
  EXPECT_EQ(LiveLowerBound({{0, 5, 10}, {5, 9, 10}}, 1), 10);
  EXPECT_EQ(LiveLowerBound({{0, 6, 10}, {5, 9, 10}}, 1), 20);
  EXPECT_EQ(LiveLowerBound({{0, 6, 10}, {5, 9, 10}}, 16), 32);
  EXPECT_EQ(LiveLowerBound({{-kLargest, kLargest, 3}}, 1), 3);
}

TEST(CheckPlacementProblem, NamesTheFirstBadBuffer) {
  EXPECT_EQ(MessageOf({{0, 1, 1}, {4, 4, 1}}, 1),
            "placement: buffer 1 lives in [4, 4), expected lower < upper");
  EXPECT_EQ(MessageOf({{0, 1, -8}}, 1), "placement: buffer 0 has size -8, expected >= 0");
  EXPECT_EQ(MessageOf({}, 0), "placement: alignment 0, expected 1 to 2^62 bytes");
  EXPECT_EQ(MessageOf({{0, 1, kLargest}}, 1),
            "placement: buffer 0 of 9223372036854775807 bytes takes the sum of sizes beyond 2^62");
  EXPECT_EQ(MessageOf({{0, 1, kLargest / 4}, {1, 2, kLargest / 4}, {1, 2, 2}, {1, 2, 1}}, 1),
            "placement: buffer 3 of 1 bytes takes the sum of sizes beyond 2^62");
  EXPECT_NE(MessageOf({{0, 1, 1}, {0, 1, 1}}, int64_t{1} << 62), "");
  EXPECT_EQ(MessageOf({{0, 1, 1}}, int64_t{1} << 61), "");
}

}  // namespace
}  // namespace tidepool
