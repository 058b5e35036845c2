#include "tidepool/ndarray/gradient/destinations.h"

#include <deque>
#include <utility>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"

namespace tidepool {
namespace {

constexpr int kMany = 500;

class DestinationsTest : public testing::Test {
 protected:
  bool Add(const NDArray& gradient) {
    Destination destination;
    destination.Set(gradient);
    if (destinations_.Find(destination) != nullptr) return false;
    all_.push_back(std::move(destination));
    destinations_.Add(all_.back());
    return true;
  }

  Destinations destinations_;
  std::deque<Destination> all_;
};

TEST_F(DestinationsTest, OfArraysOfTheirOwnTheNeighboursAreLookedAt) {
  for (int i = 0; i < kMany; ++i) ASSERT_TRUE(Add(Ones({3})));
  EXPECT_LE(destinations_.compared(), 2 * kMany);
  for (const Destination& added : all_) EXPECT_EQ(destinations_.Find(added), &added);
}

TEST_F(DestinationsTest, OfPartsOfOneArrayInAnyOrderAsWell) {
  const NDArray flat = Ones({kMany});
  for (int i = 0; i < kMany; ++i) {
    const int at = i * 307 % kMany;  // each once
    ASSERT_TRUE(Add(flat.Slice(0, at, at + 1)));
  }
  EXPECT_LE(destinations_.compared(), 2 * kMany);
  EXPECT_FALSE(Add(flat.Slice(0, 7, 9)));
  EXPECT_FALSE(Add(flat));
}

TEST_F(DestinationsTest, ColumnsAreApartAndWhatCrossesThemIsNot) {
  const NDArray matrix = Ones({4, 6});
  for (int i = 5; i >= 0; --i) ASSERT_TRUE(Add(matrix.Slice(1, i, i + 1)));
  EXPECT_TRUE(Add(Ones({4, 6})));
  EXPECT_FALSE(Add(matrix.Slice(1, 0, 1)));
  EXPECT_FALSE(Add(matrix.Slice(0, 2, 3)));
  destinations_.Clear();
  EXPECT_TRUE(Add(matrix.Slice(0, 2, 3)));
}

}  // namespace
}  // namespace tidepool
