#include "tidepool/backends/cpu/indexing/radix_sort.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/indexing/sort_keys.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/sorting.h"

namespace tidepool::cpu {
namespace {

template <typename Key>
void CheckAgainstStableSort(uint64_t mask) {
  std::mt19937_64 random(mask);
  using Item = KeyedPlace<Key, uint32_t>;
  for (const int64_t n : {0, 1, 2, 40, 41, 255, 1000, 5000}) {
    std::vector<Item> items(n), other(n);
    for (int64_t i = 0; i < n; ++i) {
      items[i] = {static_cast<Key>(random() & mask), static_cast<uint32_t>(i)};
    }
    std::vector<Item> expected = items;
    std::stable_sort(expected.begin(), expected.end(),
                     [](const Item& a, const Item& b) { return a.key < b.key; });
    const Item* sorted = RadixSort(items.data(), other.data(), n);
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(sorted[i].key, expected[i].key) << n << " items, mask " << mask;
      ASSERT_EQ(sorted[i].place, expected[i].place) << n << " items, mask " << mask;
    }
  }
}

TEST(RadixSort, AsStableSort) {
  CheckAgainstStableSort<uint8_t>(0xff);
  CheckAgainstStableSort<uint16_t>(0xffff);
  CheckAgainstStableSort<uint32_t>(0xffffffff);
  CheckAgainstStableSort<uint64_t>(UINT64_MAX);
  // Bytes that are all the same are left out, in the middle and at the ends.
  CheckAgainstStableSort<uint64_t>(0x00ff00000000ff00);
  CheckAgainstStableSort<uint32_t>(0x000f0000);
  CheckAgainstStableSort<uint32_t>(0);
}

TEST(RadixSort, KeysAloneTakeNoMoreRoom) {
  EXPECT_EQ(sizeof(KeyedPlace<uint16_t, NoPlace>), 2u);
  EXPECT_EQ(sizeof(KeyedPlace<uint32_t, uint32_t>), 8u);
}

template <typename T>
void CheckKeysOfEveryHalf() {
  for (uint32_t i = 0; i <= 0xffff; ++i) {
    const T value = std::bit_cast<T>(static_cast<uint16_t>(i));
    const uint16_t key = KeyOf<T, true>(value);
    if (std::isnan(static_cast<float>(value))) {
      ASSERT_EQ(key, 0xffff);
      ASSERT_TRUE(std::isnan(static_cast<float>(ValueOf<T>(key))));
    } else {
      ASSERT_EQ(std::bit_cast<uint16_t>(ValueOf<T>(key)), i);
      ASSERT_LT(key, 0xffff);
    }
  }
}

TEST(SortKeys, EveryHalfComesBack) {
  CheckKeysOfEveryHalf<Float16>();
  CheckKeysOfEveryHalf<BFloat16>();
}

TEST(SortKeys, InTheOrderOfTheValues) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<double> ascending = {-inf, -1e300, -2, -1e-310, 0, 1e-310, 3, 1e300, inf, NAN};
  for (size_t i = 1; i < ascending.size(); ++i) {
    EXPECT_LT((KeyOf<double, false>(ascending[i - 1])), (KeyOf<double, false>(ascending[i])));
  }
  EXPECT_EQ((KeyOf<float, false>(-0.0f)), (KeyOf<float, false>(0.0f)));
  EXPECT_LT((KeyOf<float, true>(-0.0f)), (KeyOf<float, true>(0.0f)));
  EXPECT_EQ((KeyOf<double, false>(-NAN)), (KeyOf<double, false>(NAN)));
  EXPECT_LT((KeyOf<int32_t, false>(INT32_MIN)), (KeyOf<int32_t, false>(-1)));
  EXPECT_LT((KeyOf<int64_t, false>(-1)), (KeyOf<int64_t, false>(0)));
  EXPECT_EQ(ValueOf<int8_t>(KeyOf<int8_t, true>(-128)), -128);
  EXPECT_EQ(ValueOf<uint64_t>(KeyOf<uint64_t, true>(7)), 7u);
}

// Zeros of both signs are equals: by insertion and by bytes, along rows and columns.
template <typename T>
void CheckOrderOfZeros() {
  std::mt19937_64 random(7);
  for (const int64_t n : {2, 30, 300}) {
    NDArray x({n, 3}, DTypeOf<T>::value);
    T* const values = x.mutable_data<T>();
    for (int64_t i = 0; i < x.NumElements(); ++i) {
      const float choice[] = {0.0f, -0.0f, 1.0f, -2.0f};
      values[i] = T(choice[random() % (i % 3 == 2 ? 2 : 4)]);
    }
    for (const NDArray& lanes : {x, x.Transpose().Dup().Transpose()}) {
      for (const bool descending : {false, true}) {
        const NDArray sorted = Sort(lanes, 0, descending);
        for (int64_t lane = 0; lane < 3; ++lane) {
          std::vector<float> expected;
          for (int64_t i = 0; i < n; ++i) expected.push_back(lanes.At<T>({i, lane}));
          std::stable_sort(expected.begin(), expected.end(),
                           [&](float a, float b) { return descending ? a > b : a < b; });
          for (int64_t i = 0; i < n; ++i) {
            ASSERT_EQ(std::bit_cast<uint32_t>(static_cast<float>(sorted.At<T>({i, lane}))),
                      std::bit_cast<uint32_t>(expected[static_cast<size_t>(i)]))
                << n << ", " << descending << ", lane " << lane << ", element " << i;
          }
        }
      }
    }
  }
}

TEST(SortKernel, ZerosOfBothSignsKeepTheirOrder) {
  CheckOrderOfZeros<float>();
  CheckOrderOfZeros<double>();
  CheckOrderOfZeros<Float16>();
}

}  // namespace
}  // namespace tidepool::cpu
