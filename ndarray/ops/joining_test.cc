// Joining, cutting, padding and repeating, beside plain loops over indices.
#include "tidepool/ndarray/ops/joining.h"

#include <cstdio>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }

TEST(Concat, AxesTypesAndManyParts) {
  const NDArray x = Arange(0, 4).Reshape({2, 2}), y = Arange(10, 12).Reshape({2, 1});
  EXPECT_THAT(Values(Concat({x, y, x}, 1)), ElementsAre(0, 1, 10, 0, 1, 2, 3, 11, 2, 3));
  EXPECT_THAT(Values(Concat({x.Transpose(), x})), ElementsAre(0, 2, 1, 3, 0, 1, 2, 3));
  std::vector<NDArray> many;  // more than operators take
  for (int i = 0; i < 25; ++i) many.push_back(Full({i % 3}, i, DType::kInt8));
  const NDArray z = Concat(many);
  EXPECT_EQ(z.shape(), (Shape{24}));
  EXPECT_EQ(z.At<int8_t>({0}), 1);
  EXPECT_EQ(z.At<int8_t>({23}), 23);
  EXPECT_EQ(Concat({Zeros({0, 2}), Zeros({0, 2})}).shape(), (Shape{0, 2}));
  NDArray out = Empty({2, 3});
  ConcatInto({x, y}, -1, out);
  EXPECT_THAT(Values(out), ElementsAre(0, 1, 10, 2, 3, 11));
}

TEST(Concat, TypesPromoteAllAtOnce) {
  const NDArray i8 = Full({2}, -3, DType::kInt8), u8 = Full({1}, 200, DType::kUInt8),
                f16 = Full({1}, 0.5, DType::kFloat16);
  const NDArray whole = Concat({i8, u8});
  EXPECT_EQ(whole.dtype(), DType::kInt16);
  EXPECT_EQ(whole.ToString(), "[ -3,  -3, 200]");
  EXPECT_EQ(Concat({i8, u8, f16}).dtype(), DType::kFloat16);  // of i8 and u8 first it would be f32
  EXPECT_EQ(Concat({f16, Ones({1}, DType::kBool)}).ToString(), "[0.5, 1. ]");
  EXPECT_EQ(Stack({Full({2}, 1, DType::kInt64), Full({2}, 0.5)}).dtype(), DType::kFloat64);
  NDArray z = Empty({3}, DType::kFloat64);
  ConcatInto({f16, Ones({2})}, 0, z);
  EXPECT_EQ(z.ToString(), "[0.5, 1. , 1. ]");
  EXPECT_EQ(Refusal([&] { ConcatInto({i8, u8}, 0, z); }), "Op [concat]: Z is f64, expected i16");
}

TEST(Concat, Refusals) {
  const NDArray x = Ones({2, 2});
  EXPECT_EQ(Refusal([] { Concat({}); }), "Op [concat]: no parts, expected at least one");
  EXPECT_EQ(Refusal([&] {
              Concat({x, Ones({2, 3})});
            }),
            "Op [concat]: part 1 has shape [2, 3], part 0 has [2, 2], expected the same but along "
            "axis 0");
  EXPECT_EQ(
      Refusal([&] {
        Concat({x, Ones({2})});
      }),
      "Op [concat]: part 1 has shape [2], part 0 has [2, 2], expected the same but along axis 0");
  EXPECT_EQ(Refusal([] {
              Concat({Ones({}), Ones({})});
            }),
            "Op [concat]: axis 0 of an array of rank 0, which has none");
  NDArray z = Empty({4, 2}), half = z.Slice(0, 0, 2);
  EXPECT_EQ(Refusal([&] { ConcatInto({half, x}, 0, z); }), "Op [concat]: Z overlaps part 0");
}

TEST(Stack, NewAxisAnywhere) {
  const NDArray x = Arange(0, 2), y = Arange(5, 7);
  EXPECT_THAT(Values(Stack({x, y})), ElementsAre(0, 1, 5, 6));
  EXPECT_THAT(Values(Stack({x, y}, -1)), ElementsAre(0, 5, 1, 6));
  EXPECT_EQ(Stack({x, y, y}, 1).shape(), (Shape{2, 3}));
  EXPECT_THAT(Values(Stack({Full({}, 3), Full({}, 4)})), ElementsAre(3, 4));
  EXPECT_EQ(Refusal([&] {
              Stack({x, Ones({3})});
            }),
            "Op [stack]: part 1 has shape [3], part 0 has [2], expected the same");
  EXPECT_EQ(Refusal([] {
              Stack({Ones({1, 1, 1, 1, 1, 1, 1, 1})});
            }),
            "Op [stack]: part 0 has shape [1, 1, 1, 1, 1, 1, 1, 1], expected at most rank 7");
}

TEST(Split, PartsAreViews) {
  NDArray x = Arange(0, 12).Reshape({2, 6});
  std::vector<NDArray> parts = Split(x, 3, 1);
  ASSERT_EQ(parts.size(), 3u);
  EXPECT_THAT(Values(parts[1]), ElementsAre(2, 3, 8, 9));
  parts[1] *= 10;
  EXPECT_EQ(x.At<float>({0, 2}), 20);
  parts = Split(x, {1, 0, 5}, -1);
  EXPECT_EQ(parts[1].shape(), (Shape{2, 0}));
  EXPECT_EQ(parts[2].shape(), (Shape{2, 5}));
  EXPECT_THAT(Values(Concat(parts, 1)), testing::ElementsAreArray(Values(x)));
  EXPECT_EQ(Refusal([&] { Split(x, 4, 1); }),
            "Op [split]: axis 1 of shape [2, 6] cannot be cut into 4 equal parts");
  EXPECT_EQ(Refusal([&] {
              Split(x, {INT64_MAX, INT64_MAX, 8}, 1);
            }),
            "Op [split]: sizes [9223372036854775807, 9223372036854775807, 8], expected sizes of at "
            "least 0 that add up to 6, the size of axis 1");
  EXPECT_EQ(Refusal([&] {
              Split(x, {-1, 7}, 1);
            }),
            "Op [split]: sizes [-1, 7], expected sizes of at least 0 that add up to 6, the size of "
            "axis 1");
}

// Every element by its index.
TEST(Pad, RandomShapesAgainstIndices) {
  std::mt19937_64 random(3);
  std::printf("seed 3\n");
  for (int round = 0; round < 60; ++round) {
    int64_t dims[3], before[3], after[3];
    for (int i = 0; i < 3; ++i) {
      dims[i] = static_cast<int64_t>(random() % 4);
      before[i] = static_cast<int64_t>(random() % 3);
      after[i] = static_cast<int64_t>(random() % 3);
    }
    const NDArray x =
        Arange(0, static_cast<double>(dims[0] * dims[1] * dims[2])).Reshape(Shape(dims));
    const NDArray z = Pad(x, before, after, -5);
    for (int64_t i = 0; i < z.dim(0); ++i) {
      for (int64_t j = 0; j < z.dim(1); ++j) {
        for (int64_t k = 0; k < z.dim(2); ++k) {
          const int64_t a = i - before[0], b = j - before[1], c = k - before[2];
          const bool inside =
              a >= 0 && a < dims[0] && b >= 0 && b < dims[1] && c >= 0 && c < dims[2];
          ASSERT_EQ(z.At<float>({i, j, k}), inside ? x.At<float>({a, b, c}) : -5)
              << "round " << round;
        }
      }
    }
  }
}

TEST(Pad, EmptyResults) {
  EXPECT_EQ(Pad(Ones({2, 0}), {1, 0}, {0, 0}).shape(), (Shape{3, 0}));
  EXPECT_EQ(Pad(Ones({2, 3, 0}), {0, 0, 0}, {0, 0, 0}).shape(), (Shape{2, 3, 0}));
  EXPECT_THAT(Pad(Ones({2, 0}), {0, 0}, {0, 1}).ToVector<float>(), ElementsAre(0, 0));
}

TEST(Pad, RefusalsAndInto) {
  const NDArray x = Ones({2, 2}, DType::kBool);
  EXPECT_EQ(Pad(Full({}, 3), {}, {}).Item<float>(), 3);
  EXPECT_THAT(Pad(x, {0, 1}, {0, 0}).ToVector<bool>(),
              ElementsAre(false, true, true, false, true, true));
  EXPECT_EQ(Refusal([&] {
              Pad(x, {1}, {1, 1});
            }),
            "Op [pad]: before has 1 sizes, expected 2, the rank of X");
  EXPECT_EQ(Refusal([&] {
              Pad(x, {1, 0}, {1, -1});
            }),
            "Op [pad]: after[1] is -1, expected at least 0");
  NDArray z = Zeros({3, 3});
  EXPECT_EQ(Refusal([&] {
              PadInto(Ones({2, 2}), {0, 0}, {1, 0}, 0, z);
            }),
            "Op [pad]: Z has shape [3, 3], expected [3, 2]");
  const NDArray corner = z.Slice(0, 0, 2).Slice(1, 0, 2);
  EXPECT_EQ(Refusal([&] { PadInto(corner, {0, 0}, {1, 1}, 7, z); }), "Op [pad]: Z overlaps X");
  EXPECT_THAT(Values(z), testing::Each(0));
  NDArray turned = Zeros({3, 2}).Transpose();
  PadInto(Ones({1, 2}), {0, 1}, {1, 0}, 7, turned);
  EXPECT_THAT(Values(turned), ElementsAre(7, 1, 1, 7, 7, 7));
}

// Whose parts by themselves do not.
TEST(Pad, WhatRepeatsItsElementsIsNotWrittenTo) {
  const NDArray memory = Zeros({12}, DType::kFloat32, Place::Heap());
  NDArray z = NDArray::FromStrides(memory.buffer(), 0, {3, 2}, {1, 2}, DType::kFloat32);
  const std::string expected =
      "Op [copy]: output Z of shape [3, 2] with strides [1, 2] may have two indices of one "
      "element; Dup() makes an array of its own";
  EXPECT_EQ(Refusal([&] { PadInto(Ones({1, 2}), {1, 0}, {1, 0}, 7, z); }), expected);
  const NDArray parts[] = {Ones({3, 1}), Ones({3, 1})};
  EXPECT_EQ(Refusal([&] { ConcatInto(parts, 1, z); }), expected);
  EXPECT_THAT(Values(memory), testing::Each(0));
}

TEST(Tile, AsNumPy) {
  const NDArray x = Arange(0, 4).Reshape({2, 2});
  EXPECT_THAT(Values(Tile(x, {1, 2})), ElementsAre(0, 1, 0, 1, 2, 3, 2, 3));
  EXPECT_THAT(Values(Tile(x, {3})), ElementsAre(0, 1, 0, 1, 0, 1, 2, 3, 2, 3, 2, 3));
  EXPECT_EQ(Tile(x, {2, 1, 3}).shape(), (Shape{2, 2, 6}));
  EXPECT_THAT(Values(Tile(Arange(0, 2), {2, 2})), ElementsAre(0, 1, 0, 1, 0, 1, 0, 1));
  EXPECT_THAT(Values(Tile(x, {2, 0})), IsEmpty());
  EXPECT_THAT(Values(Tile(Full({}, 5), {3})), ElementsAre(5, 5, 5));
  EXPECT_EQ(Refusal([&] { Tile(x, {-1}); }),
            "Op [tile]: repeats [-1], expected at least 0 of each");
  EXPECT_EQ(Refusal([&] { Tile(x, std::vector<int64_t>(9, 1)); }),
            "Op [tile]: 9 repeats, expected at most 8");
  std::mt19937_64 random(8);
  for (int round = 0; round < 40; ++round) {
    int64_t dims[3], repeats[3];
    for (int i = 0; i < 3; ++i) {
      dims[i] = 1 + static_cast<int64_t>(random() % 3);
      repeats[i] = 1 + static_cast<int64_t>(random() % 5);
    }
    const NDArray y = Arange(0, static_cast<double>(dims[0] * dims[1] * dims[2]), 1, DType::kInt32)
                          .Reshape(Shape(dims));
    const NDArray z = Tile(y, repeats);
    for (int64_t i = 0; i < z.dim(0); ++i) {
      for (int64_t j = 0; j < z.dim(1); ++j) {
        for (int64_t k = 0; k < z.dim(2); ++k) {
          ASSERT_EQ(z.At<int32_t>({i, j, k}),
                    y.At<int32_t>({i % dims[0], j % dims[1], k % dims[2]}));
        }
      }
    }
  }
}

TEST(Repeat, EachSlice) {
  const NDArray x = Arange(0, 4).Reshape({2, 2});
  EXPECT_THAT(Values(Repeat(x, 2, 1)), ElementsAre(0, 0, 1, 1, 2, 2, 3, 3));
  EXPECT_THAT(Values(Repeat(x.Transpose(), 2)), ElementsAre(0, 2, 0, 2, 1, 3, 1, 3));
  EXPECT_EQ(Repeat(x, 0).shape(), (Shape{0, 2}));
  EXPECT_EQ(Refusal([&] { Repeat(x, -2); }), "Op [repeat]: count is -2, expected at least 0");
}

}  // namespace
}  // namespace tidepool
