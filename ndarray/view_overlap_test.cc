// ViewsOverlap() beside brute force: which elements, or bytes, two views have.
#include "tidepool/ndarray/view_overlap.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/repeated_places.h"

namespace tidepool {
namespace {

TEST(ViewOverlap, MatchesBruteForce) {
  // All pairs of blocks of one matrix, and of its transpose.
  const NDArray base = Zeros({4, 5});
  std::vector<NDArray> views;
  for (int64_t i = 0; i < 4; ++i) {
    for (int64_t i_end = i + 1; i_end <= 4; ++i_end) {
      for (int64_t j = 0; j < 5; ++j) {
        for (int64_t j_end = j + 1; j_end <= 5; ++j_end) {
          views.push_back(base.Slice(0, i, i_end).Slice(1, j, j_end));
        }
      }
    }
  }
  auto elements = [&](const NDArray& view) {
    std::vector<bool> used(20);
    for (int64_t i = 0; i < view.dim(0); ++i) {
      for (int64_t j = 0; j < view.dim(1); ++j) {
        const auto* at = reinterpret_cast<const float*>(view.raw_data()) + i * view.strides()[0] +
                         j * view.strides()[1];
        used[at - base.data<float>()] = true;
      }
    }
    return used;
  };
  int apart = 0, conservative = 0;
  for (const NDArray& a : views) {
    for (const NDArray& b : views) {
      const std::vector<bool> in_a = elements(a), in_b = elements(b);
      bool common = false;
      for (int k = 0; k < 20; ++k) common |= in_a[k] && in_b[k];
      const bool claimed = ViewsOverlap(a, b);
      EXPECT_TRUE(claimed || !common);  // never misses one
      EXPECT_EQ(claimed, ViewsOverlap(a.Transpose(), b.Transpose()));
      apart += !common;
      conservative += claimed && !common;
    }
  }
  EXPECT_EQ(conservative, 0) << "of " << apart;
  EXPECT_FALSE(ViewsOverlap(base, base.Dup()));
  EXPECT_FALSE(ViewsOverlap(base.Slice(0, 0, 0), base));
  EXPECT_TRUE(ViewsOverlap(base.Index(0, 1), base.Index(1, 1)));
}

// Which bytes of its buffer a view has.
std::vector<bool> BytesOf(const NDArray& view, const NDArray& base) {
  std::vector<bool> bytes(static_cast<size_t>(base.NumElements()));
  std::vector<int64_t> at(static_cast<size_t>(view.rank()));
  const auto width = static_cast<int64_t>(DTypeBytes(view.dtype()));
  for (int64_t n = 0; n < view.NumElements(); ++n) {
    int64_t rest = n, place = view.raw_data() - base.raw_data();
    for (int i = view.rank() - 1; i >= 0; --i) {
      place += rest % view.dim(i) * view.strides()[i] * width;
      rest /= view.dim(i);
    }
    for (int64_t k = 0; k < width; ++k) bytes[static_cast<size_t>(place + k)] = true;
  }
  return bytes;
}

// Steps that do not divide rows, backwards, axes in any order, other ranks, lines across, other types.
TEST(ViewOverlap, IsExactForAnyStrides) {
  std::mt19937 random(20);
  const auto below = [&](int64_t end) {
    return static_cast<int64_t>(random() % static_cast<uint64_t>(end));
  };
  int overlap = 0, apart = 0;
  for (int trial = 0; trial < 20000; ++trial) {
    const NDArray base = Zeros({8 * (2 + below(30))}, DType::kInt8);
    const auto draw = [&] {
      const DType dtype = below(3) == 0   ? DType::kFloat16
                          : below(2) == 0 ? DType::kFloat32
                                          : DType::kInt8;
      const int64_t elements = base.NumElements() / static_cast<int64_t>(DTypeBytes(dtype));
      int64_t lowest = below(std::min<int64_t>(elements, 12)), highest = lowest, first = lowest;
      std::vector<int64_t> dims, strides;
      for (int64_t axes = below(4); axes > 0; --axes) {
        const int64_t stride = 1 + below(axes == 1 ? 4 : 40);
        const int64_t dim = 1 + below(std::min<int64_t>(6, (elements - 1 - highest) / stride + 1));
        const bool backwards = below(4) == 0;
        highest += (dim - 1) * stride;
        if (backwards) first += (dim - 1) * stride;
        dims.push_back(dim);
        strides.push_back(backwards ? -stride : stride);
      }
      return NDArray::FromStrides(base.buffer(), first, Shape(dims), strides, dtype);
    };
    const NDArray a = draw(), b = draw();
    const std::vector<bool> in_a = BytesOf(a, base), in_b = BytesOf(b, base);
    bool common = false;
    for (size_t i = 0; i < in_a.size(); ++i) common |= in_a[i] && in_b[i];
    (common ? overlap : apart) += 1;
    ASSERT_EQ(ViewsOverlap(a, b), common) << "trial " << trial;
    ASSERT_EQ(ViewsOverlap(b, a), common) << "trial " << trial;
  }
  EXPECT_GT(overlap, 2000);
  EXPECT_GT(apart, 2000);
}

// A million elements in steps that hardly differ: no element is the 1,500,000th, which takes more than thousands of tries
// to say, so it counts as one of them.
TEST(ViewOverlap, WhatIsNotDecidedQuicklyCountsAsOverlapping) {
  const NDArray base = Zeros({1 << 22}, DType::kInt8);
  const auto comb = [&](int64_t dim) {
    return NDArray::FromStrides(base.buffer(), 0, Shape({dim, dim, dim}), {10007, 10009, 10037},
                                DType::kInt8);
  };
  const NDArray place = base.Slice(0, 1500000, 1500001);
  EXPECT_TRUE(ViewsOverlap(comb(100), place));
  EXPECT_FALSE(ViewsOverlap(comb(60), place));  // decided
}

// Axes in any order: the rule itself, and no view passes of which two indices are one place.
TEST(ViewOverlap, RepeatsMatchTheRuleAndBruteForce) {
  std::mt19937 random(5);
  const auto draw = [&](int most) { return static_cast<int64_t>(random() % (most + 1)); };
  int repeat = 0, apart = 0;
  for (int run = 0; run < 5000; ++run) {
    const int rank = static_cast<int>(draw(4));
    std::vector<int64_t> dims, strides;
    std::vector<std::pair<int64_t, int64_t>> axes;  // step and size, of those with places
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) {
      dims.push_back(draw(20) == 0 ? 0 : 1 + draw(3));
      strides.push_back(draw(12) * (draw(3) == 0 ? -1 : 1));
      count *= dims.back();
      if (dims.back() != 1) axes.emplace_back(std::abs(strides.back()), dims.back());
    }
    std::sort(axes.begin(), axes.end());
    int64_t reach = 0;
    bool expected = false;
    for (const auto& [step, size] : axes) {
      expected = expected || step <= reach;
      reach += step * (size - 1);
    }
    if (count == 0) expected = false;
    ASSERT_EQ(MayRepeat(rank, dims.data(), strides.data()), expected) << run;
    (expected ? repeat : apart) += 1;
    if (expected || count == 0) continue;
    std::vector<int64_t> places = {0};
    for (int i = 0; i < rank; ++i) {
      std::vector<int64_t> more;
      for (int64_t at = 0; at < dims[i]; ++at) {
        for (const int64_t place : places) more.push_back(place + at * strides[i]);
      }
      places = std::move(more);
    }
    std::sort(places.begin(), places.end());
    EXPECT_EQ(std::adjacent_find(places.begin(), places.end()), places.end()) << run;
  }
  EXPECT_GT(repeat, 500);
  EXPECT_GT(apart, 500);
}

}  // namespace
}  // namespace tidepool
