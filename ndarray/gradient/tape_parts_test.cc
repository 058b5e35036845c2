// Operands that are parts of one array: their gradients come to lie where they belong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/gradient/operator_counter_for_test.h"
#include "tidepool/ndarray/ops/attention.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using testing::ElementsAre;

NDArray Random64(const Shape& shape, uint64_t stream) {
  return RandomUniform(shape, -1, 1, DType::kFloat64, 5, stream, Place::Heap());
}

struct Found {
  std::map<std::string, int> counts;
  std::vector<double> gradient;
};

// Of the sum of function(x + 0), which the tape has made and nobody watches.
template <typename Function>
Found GradientOf(const NDArray& x, const Function& function) {
  OperatorCounter counter;  // around the tape
  GradientTape tape;
  tape.Watch(x);
  const NDArray loss = function(x + 0);
  counter.counts.clear();
  tape.Backward(loss);
  return {counter.counts, tape.Gradient(x).ToVector<double>()};
}

constexpr int64_t kBatch = 2, kLength = 3, kHeads = 2, kWidth = 4;

NDArray Sums(const NDArray& q, const NDArray& k, const NDArray& v) {
  const auto by_heads = [](const NDArray& x) { return x.Transpose({0, 2, 1, 3}); };
  return Sum(Attention(by_heads(q), by_heads(k), by_heads(v)).output *
             Random64({kBatch, kHeads, kLength, kWidth}, 9));
}

// The gradient by three parts of so many heads, that begin there, and what it is where they are copied to arrays of their own.
void CheckParts(int64_t heads, const std::vector<int64_t>& begins, bool is_one_kernel) {
  const NDArray x = Random64({kBatch, kLength, heads, kWidth}, 1);
  const auto part = [&](const NDArray& of, int64_t i) {
    return of.Slice(2, begins[i], begins[i] + kHeads);
  };
  Found together =
      GradientOf(x, [&](const NDArray& y) { return Sums(part(y, 0), part(y, 1), part(y, 2)); });
  const Found apart = GradientOf(x, [&](const NDArray& y) {
    return Sums(part(y, 0).Dup(), part(y, 1).Dup(), part(y, 2).Dup());
  });
  EXPECT_EQ(together.gradient, apart.gradient);
  EXPECT_EQ(together.counts["attention_grad"], 1);
  EXPECT_EQ(together.counts["fill"], is_one_kernel ? 1 : 2);  // one is the sum's own gradient
  EXPECT_EQ(together.counts["copy"] + together.counts["add"], is_one_kernel ? 0 : 3);
}

TEST(TapeParts, QueryKeyAndValueOfOneArrayAreNeitherClearedNorAdded) {
  CheckParts(3 * kHeads, {0, kHeads, 2 * kHeads}, true);
  CheckParts(3 * kHeads, {2 * kHeads, 0, kHeads}, true);
}

TEST(TapeParts, PartsThatOverlapOrLeaveSomeOutAre) {
  CheckParts(3 * kHeads, {0, kHeads, kHeads}, false);
  CheckParts(3 * kHeads, {0, 1, 2}, false);
  CheckParts(4 * kHeads, {0, kHeads, 2 * kHeads}, false);
}

// Written with another order of axes than it is read in.
TEST(TapeParts, AxesInAnotherOrderAreNoCopies) {
  const NDArray x = Random64({3, 2, 4}, 1), weights = Random64({6, 4}, 2);
  const Found found = GradientOf(x, [&](const NDArray& y) {
    NDArray z = Empty({2, 3, 4}, DType::kFloat64, Place::Heap());
    NDArray across = z.Transpose({1, 0, 2});
    MultiplyInto(y, 3, across);
    return Sum(z.Reshape({6, 4}) * weights);
  });
  EXPECT_EQ(found.gradient,
            (weights.Reshape({2, 3, 4}).Transpose({1, 0, 2}) * 3).ToVector<double>());
  EXPECT_EQ(found.counts.count("copy"), 0u);
}

// Parts in another order, of two of them, that overlap, that leave some out, and of an array that has a gradient already.
TEST(TapeParts, OtherPartsHaveTheirGradients) {
  const NDArray x = FromValues<double>({1, 2, 3, 4, 5, 6}, {6}, Place::Heap());
  const auto part = [](const NDArray& y, int64_t begin, int64_t end) {
    return y.Slice(0, begin, end);
  };
  const auto gradient = [&](auto function) { return GradientOf(x, function).gradient; };
  EXPECT_THAT(
      gradient([&](const NDArray& y) { return Sum(Maximum(part(y, 0, 3), part(y, 3, 6))); }),
      ElementsAre(0, 0, 0, 1, 1, 1));
  EXPECT_THAT(gradient([&](const NDArray& y) { return Sum(part(y, 3, 6) * part(y, 0, 3)); }),
              ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(gradient([&](const NDArray& y) { return Sum(part(y, 0, 3) * part(y, 1, 4)); }),
              ElementsAre(2, 1 + 3, 2 + 4, 3, 0, 0));
  EXPECT_THAT(gradient([&](const NDArray& y) { return Sum(part(y, 0, 2) * part(y, 4, 6)); }),
              ElementsAre(5, 6, 0, 0, 1, 2));
  EXPECT_THAT(
      gradient([&](const NDArray& y) { return Sum(y * y) + Sum(part(y, 0, 3) * part(y, 3, 6)); }),
      ElementsAre(2 + 4, 4 + 5, 6 + 6, 8 + 1, 10 + 2, 12 + 3));
  EXPECT_THAT(gradient([&](const NDArray& y) { return Sum(part(y, 0, 3) + part(y, 3, 6)); }),
              ElementsAre(1, 1, 1, 1, 1, 1));
}

// Every step-th column kept, those between written to, whether the step divides the rows or not.
TEST(TapeParts, ColumnsWhoseStepDoesNotDivideTheRowsAreApart) {
  for (int64_t columns = 2; columns <= 12; ++columns) {
    for (int64_t step = 2; step <= std::min<int64_t>(columns, 4); ++step) {
      NDArray x = Full({3, columns}, 2.0, DType::kFloat64);
      {
        GradientTape tape;
        tape.Watch(x);
        const NDArray y = Sum(Square(x(All(), Range(0, {}, step))));
        x(All(), Range(1, {}, step)) = 0;
        tape.Backward(y);
        EXPECT_EQ(tape.Gradient(x).At<double>({2, 0}), 4);
      }
      GradientTape tape;
      tape.Watch(x(All(), Range(0, {}, step)));
      tape.Watch(x(All(), Range(1, {}, step)));
      tape.Backward(Sum(x));
      EXPECT_THAT(tape.Gradient(x(All(), Range(1, {}, step))).ToVector<double>(), testing::Each(1));
    }
  }
}

}  // namespace
}  // namespace tidepool
