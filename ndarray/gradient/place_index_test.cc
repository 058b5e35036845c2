// What shares bytes is found, whatever came in whatever order, and few others are looked at.
#include "tidepool/ndarray/gradient/place_index.h"

#include <algorithm>
#include <bitset>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/destinations.h"
#include "tidepool/ndarray/gradient/shadow_memory.h"
#include "tidepool/ndarray/gradient/taped_view.h"

namespace tidepool {
namespace {

struct Item {
  Places where;
};

class PlaceIndexTest : public testing::Test {
 protected:
  // As a tape watches: what lies apart from all before.
  bool Add(const NDArray& view) {
    const Places where{FreeView(view)};
    if (index_.FindOverlapping(where) != nullptr) return false;
    items_.push_back({where});
    index_.Add(items_.back());
    return true;
  }
  // Each that was added is found, without looking at many others.
  void ExpectEachIsFound() {
    const int64_t before = index_.compared();
    for (Item& item : items_) ASSERT_EQ(index_.FindOverlapping(item.where), &item);
    EXPECT_LE(index_.compared() - before, 2 * static_cast<int64_t>(items_.size()));
  }
  std::set<const Item*> Found(const Places& where) const {
    std::set<const Item*> found;
    index_.VisitOverlapping(where, [&](const Item& item) {
      found.insert(&item);
      return false;
    });
    return found;
  }

  PlaceIndex<Item> index_;
  std::deque<Item> items_;
};

constexpr int64_t kMany = 1000;

// 0 to count - 1, each once: in this order, the other way round, or mixed.
std::vector<int64_t> Order(int64_t count, int kind) {
  std::vector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) order.push_back(kind == 1 ? count - 1 - i : i);
  if (kind == 2) std::shuffle(order.begin(), order.end(), std::mt19937_64(7));
  return order;
}

TEST_F(PlaceIndexTest, OfColumnsInAnyOrderFewAreLookedAt) {
  const NDArray matrix = Ones({4, kMany});
  for (const int kind : {0, 1, 2}) {
    const int64_t before = index_.compared();
    for (const int64_t i : Order(kMany, kind)) ASSERT_TRUE(Add(matrix.Slice(1, i, i + 1)));
    EXPECT_LE(index_.compared() - before, 2 * kMany) << kind;
    ExpectEachIsFound();
    EXPECT_FALSE(Add(matrix.Slice(1, 7, 8)));
    EXPECT_FALSE(Add(matrix.Slice(1, 7, 9)));
    EXPECT_FALSE(Add(matrix.Slice(0, 2, 3)));
    EXPECT_FALSE(Add(matrix));
    index_.Clear();
    items_.clear();
  }
}

TEST_F(PlaceIndexTest, OfBlocksOfColumnsAndOfRowsAsWell) {
  const NDArray matrix = Ones({8, 3 * kMany});
  for (const int kind : {0, 1, 2}) {
    const int64_t before = index_.compared();
    // A wide block, narrow ones in two halves, and rows beside them.
    ASSERT_TRUE(Add(matrix.Slice(1, 0, kMany)));
    for (const int64_t i : Order(kMany / 2, kind)) {
      const NDArray block = matrix.Slice(1, kMany + 2 * i, kMany + 2 * i + 2);
      ASSERT_TRUE(Add(block.Slice(0, 0, 4)));
      ASSERT_TRUE(Add(block.Slice(0, 4, 8)));
    }
    const NDArray others = matrix.Slice(1, 2 * kMany, 3 * kMany);
    for (const int64_t i : Order(8, kind)) ASSERT_TRUE(Add(others.Slice(0, i, i + 1)));
    EXPECT_LE(index_.compared() - before, 4 * kMany) << kind;
    ExpectEachIsFound();
    index_.Clear();
    items_.clear();
  }
}

TEST_F(PlaceIndexTest, OfSeveralMatricesInOneBufferAsWell) {
  const NDArray flat = Ones({40 * kMany});
  const NDArray wide = flat.Slice(0, 5, 5 + 4 * kMany).Reshape({4, kMany}),
                narrow = flat.Slice(0, 10 * kMany, 20 * kMany).Reshape({20, kMany / 2});
  for (const int kind : {0, 1, 2}) {
    const int64_t before = index_.compared();
    for (const int64_t i : Order(kMany, kind)) {
      ASSERT_TRUE(Add(wide.Slice(1, i, i + 1)));
      if (i < kMany / 2) {
        ASSERT_TRUE(Add(narrow.Slice(1, i, i + 1)));
      }
      ASSERT_TRUE(Add(flat.Slice(0, 30 * kMany + 3 * i, 30 * kMany + 3 * i + 2)));
    }
    EXPECT_LE(index_.compared() - before, 6 * kMany) << kind;
    ExpectEachIsFound();
    index_.Clear();
    items_.clear();
  }
}

TEST(DestinationsOfColumns, FewAreLookedAt) {
  const NDArray matrix = Ones({4, kMany});
  Destinations destinations;
  std::deque<Destination> all;
  for (const int64_t i : Order(kMany, 2)) {
    const NDArray column = matrix.Slice(1, i, i + 1);
    all.emplace_back().Set(column);
    ASSERT_EQ(destinations.Find(all.back()), nullptr);
    destinations.Add(all.back());
  }
  EXPECT_LE(destinations.compared(), 2 * kMany);
}

constexpr int64_t kElements = 426;

// The gradient of a matrix, column by column, and columns added to what was taken.
TEST(ShadowOfColumns, FewOfThoseTakenAreLookedAt) {
  const NDArray matrix = Ones({4, kMany});
  FreeView whole(matrix);
  whole.slot = 0;
  ShadowMemory shadows;
  shadows.Add(whole, matrix.NumElements(), Full({4, kMany}, 3));
  for (const int64_t i : Order(kMany, 2)) {
    FreeView column(matrix.Slice(1, i, i + 1));
    column.slot = 0;
    if (i % 2 == 0) {
      const NDArray taken = shadows.Take(column, matrix.NumElements()).gradient;
      ASSERT_EQ(taken.ToVector<float>(), std::vector<float>(4, 3));
      shadows.Add(column, matrix.NumElements(), Full({4, 1}, 5));
    }
    const float expected = i % 2 == 0 ? 5 : 3;
    const NDArray left = shadows.Take(column, matrix.NumElements()).gradient;
    ASSERT_EQ(left.ToVector<float>(), std::vector<float>(4, expected)) << i;
  }
  EXPECT_TRUE(shadows.IsEmpty(0));
  EXPECT_LE(shadows.compared(), 6 * kMany);
}

// Slices of three axes with steps, from either end, of arrays of several shapes in one buffer.
NDArray RandomSlice(const NDArray& flat, std::mt19937_64& random) {
  const auto from = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  static constexpr int64_t kShapes[][4] = {
      {0, 5, 6, 7}, {210, 3, 4, 12}, {354, 1, 8, 9}, {0, 7, 5, 6}, {0, 1, 1, kElements}};
  const auto& [first, a, b, c] = kShapes[from(0, 4)];
  NDArray view = flat.Slice(0, first, first + a * b * c).Reshape({a, b, c});
  for (int axis = 0; axis < 3; ++axis) {
    if (from(0, 2) == 0) continue;
    const int64_t begin = from(0, view.dim(axis) - 1), end = from(begin + 1, view.dim(axis));
    view = view.Slice(axis, begin, std::min(end, begin + 1 + from(0, 3)), from(1, 3));
  }
  return view;
}

using Elements = std::bitset<kElements>;
Elements ElementsOf(const NDArray& view) {
  Elements elements;
  for (const float number : view.ToVector<float>()) elements.set(static_cast<size_t>(number));
  return elements;
}

TEST_F(PlaceIndexTest, MissesNoneThatSharesElements) {
  const NDArray flat = Arange(0, kElements, 1, DType::kFloat32);
  int64_t shared = 0, found = 0, removed = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 random(seed);
    // Whether what overlaps comes too, as gradients that are written over each other one after the other.
    const bool any = seed % 4 == 0;
    std::map<const Item*, Elements> there;
    for (int i = 0; i < 60; ++i) {
      const NDArray view = RandomSlice(flat, random);
      const Places where{FreeView(view)};
      const Elements elements = ElementsOf(view);
      const std::set<const Item*> of_view = Found(where);
      found += static_cast<int64_t>(of_view.size());
      for (const auto& [item, others] : there) {
        const bool is_found = of_view.contains(item);
        ASSERT_TRUE(is_found || (elements & others).none());
        ASSERT_TRUE(!is_found || item->where.MayOverlap(where));
        shared += (elements & others).any() ? 1 : 0;
      }
      if (of_view.empty() || any) {
        items_.push_back({where});
        index_.Add(items_.back());
        there.emplace(&items_.back(), elements);
      } else if (random() % 2 == 0) {
        Item* const other = index_.FindOverlapping(where);
        ASSERT_EQ(there.erase(other), 1u);
        index_.Remove(*other);
        ++removed;
      }
    }
    index_.Clear();
    EXPECT_TRUE(Found(Places(FreeView(flat))).empty());
    items_.clear();
  }
  EXPECT_GT(shared, 10000);
  EXPECT_LT(found, shared + shared / 4);
  EXPECT_GT(removed, 1000);
}

}  // namespace
}  // namespace tidepool
