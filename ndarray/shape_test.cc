#include "tidepool/ndarray/shape.h"

#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  }
  return "nothing was thrown";
}

TEST(Shape, RankSizesAndElements) {
  const Shape scalar;
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.NumElements(), 1);
  EXPECT_EQ(scalar.ToString(), "[]");
  const Shape shape{2, 3, 4};
  EXPECT_EQ(shape.rank(), 3);
  EXPECT_EQ(shape[1], 3);
  EXPECT_EQ(shape.NumElements(), 24);
  EXPECT_EQ(shape.ToString(), "[2, 3, 4]");
  EXPECT_EQ((Shape{5, 0, 7}).NumElements(), 0);
}

TEST(Shape, Equality) {
  EXPECT_EQ((Shape{2, 3}), (Shape{2, 3}));
  EXPECT_FALSE((Shape{2, 3}) == (Shape{3, 2}));
  EXPECT_FALSE((Shape{2}) == (Shape{2, 1}));
  EXPECT_EQ(Shape(), Shape(absl::Span<const int64_t>()));
}

TEST(Shape, RefusesWhatIsNoShape) {
  EXPECT_EQ(MessageOf([] { Shape{2, -1}; }), "shape [2, -1] is negative in axis 1");
  EXPECT_EQ(MessageOf([] { Shape{1, 1, 1, 1, 1, 1, 1, 1, 1}; }),
            "shape [1, 1, 1, 1, 1, 1, 1, 1, 1] has rank 9, expected at most 8");
  const int64_t large = int64_t{1} << 30;
  EXPECT_EQ(MessageOf([&] {
              Shape{large, large};
            }),
            "shape [1073741824, 1073741824] has more than 2^59 elements");
  // Also where 64 bits hold nothing of the product.
  const int64_t larger = int64_t{1} << 40;
  EXPECT_EQ(MessageOf([&] {
              Shape{larger, larger};
            }),
            "shape [1099511627776, 1099511627776] has more than 2^59 elements");
  // Also when an empty axis hides it: a slice of it would not be addressable.
  EXPECT_EQ(MessageOf([&] {
              Shape{large, 0, large};
            }),
            "shape [1073741824, 0, 1073741824] has more than 2^59 elements");
  EXPECT_EQ((Shape{large, int64_t{1} << 29}).NumElements(), int64_t{1} << 59);
  EXPECT_EQ((Shape{1, 1, 1, 1, 1, 1, 1, 1}).rank(), 8);
}

TEST(Shape, Broadcasting) {
  auto broadcast = [](const Shape& x, const Shape& y) {
    EXPECT_EQ(BroadcastShapes("add", x, y), BroadcastShapes("add", y, x));
    return BroadcastShapes("add", x, y);
  };
  EXPECT_EQ(broadcast({2, 3}, {2, 3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({2, 3}, {3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({2, 1}, {1, 3}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({2, 3}, {}), (Shape{2, 3}));
  EXPECT_EQ(broadcast({0, 3}, {1, 3}), (Shape{0, 3}));
  EXPECT_EQ(broadcast({0}, {1}), (Shape{0}));
  EXPECT_EQ(broadcast({4, 1, 5}, {7, 1}), (Shape{4, 7, 5}));
  EXPECT_EQ(MessageOf([] {
              BroadcastShapes("add", {2, 3}, {2});
            }),
            "Op [add]: X has shape [2, 3], Y has shape [2]; sizes 3 and 2 do not broadcast");
  EXPECT_EQ(MessageOf([] { BroadcastShapes("add", {0}, {2}); }),
            "Op [add]: X has shape [0], Y has shape [2]; sizes 0 and 2 do not broadcast");
}

TEST(Shape, Axes) {
  EXPECT_EQ(NormalizeAxis("sum", 0, 3), 0);
  EXPECT_EQ(NormalizeAxis("sum", -1, 3), 2);
  EXPECT_EQ(NormalizeAxis("sum", -3, 3), 0);
  EXPECT_EQ(MessageOf([] { NormalizeAxis("sum", 3, 3); }),
            "Op [sum]: axis 3 of an array of rank 3, expected -3 to 2");
  EXPECT_EQ(MessageOf([] { NormalizeAxis("sum", -4, 3); }),
            "Op [sum]: axis -4 of an array of rank 3, expected -3 to 2");
  EXPECT_EQ(MessageOf([] { NormalizeAxis("sum", 0, 0); }),
            "Op [sum]: axis 0 of an array of rank 0, which has none");
}

}  // namespace
}  // namespace tidepool
