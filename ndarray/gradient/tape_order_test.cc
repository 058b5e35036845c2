// Gradients of what orders, picks, places and multiplies along axes. Expected numbers are PyTorch's (2.15, autograd) where no
// comment says otherwise.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/searching.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/statistics.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using Numbers = std::vector<double>;

NDArray D(const Numbers& values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
NDArray I(const std::vector<int64_t>& values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
const NDArray& Weights() {
  static const NDArray weights = D({1, 10, 100, 1000});
  return weights;
}

using Function = std::function<NDArray(const NDArray&)>;

Numbers GradientOf(const Function& function, const NDArray& x) {
  GradientTape tape;
  tape.Watch(x);
  tape.Backward(Sum(function(x)));
  return tape.Gradient(x).ToVector<double>();
}

// Of the sum of the gradient times weights.
Numbers SecondGradientOf(const Function& function, const NDArray& x, const NDArray& weights) {
  GradientTape outer;
  outer.Watch(x);
  NDArray first;
  {
    GradientTape inner;
    inner.Watch(x);
    inner.Backward(Sum(function(x)));
    first = inner.Gradient(x);
  }
  outer.Backward(Sum(first * weights));
  return outer.Gradient(x).ToVector<double>();
}

TEST(TapeOrder, ProductsWithZeros) {
  const Function prod = [](const NDArray& x) { return Prod(x) * 3.0; };
  EXPECT_EQ(GradientOf(prod, D({2, 0, 4})), Numbers({0, 24, 0}));
  EXPECT_EQ(GradientOf(prod, D({2, 0, 0})), Numbers({0, 0, 0}));
  const Function cumprod = [](const NDArray& x) { return CumProd(x) * Weights(); };
  EXPECT_EQ(GradientOf(cumprod, D({2, 0, 3, 5})), Numbers({1, 30620, 0, 0}));
  EXPECT_EQ(GradientOf(cumprod, D({2, 0, 0, 5})), Numbers({1, 20, 0, 0}));
  EXPECT_EQ(SecondGradientOf(prod, D({2, 0, 4}), D({1, 10, 100})), Numbers({120, 612, 60}));
  EXPECT_EQ(SecondGradientOf(cumprod, D({2, 0, 3, 5}), Weights()),
            Numbers({153100, 7035310, 102000, 60000}));
}

// Over axes in the middle, by differences of what each element is multiplied by.
TEST(TapeOrder, ProductsOverSomeAxes) {
  const NDArray x = RandomUniform({2, 3, 2, 2}, 0.5, 1.5, DType::kFloat64, 7);
  const NDArray w = RandomUniform({3, 2}, 0.5, 1.5, DType::kFloat64, 8);
  const Numbers found = GradientOf([&](const NDArray& a) { return Prod(a, {0, 2}) * w; }, x);
  const Numbers expected =
      ((Prod(x, {0, 2}, true) / x) * w.Reshape({1, 3, 1, 2})).ToVector<double>();
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-12) << i;
}

TEST(TapeOrder, WhatIsSortedGoesBackToWhereItCameFrom) {
  const NDArray x = D({3, 1, 4, 2});
  const auto sorted = [](bool descending) -> Function {
    return [=](const NDArray& a) { return Sort(a, 0, descending) * Weights(); };
  };
  EXPECT_EQ(GradientOf(sorted(false), x), Numbers({100, 1, 1000, 10}));
  EXPECT_EQ(GradientOf(sorted(true), x), Numbers({10, 1000, 1, 100}));
  EXPECT_EQ(GradientOf(
                [](const NDArray& a) {
                  return TopK(a, 2).values * D({1, 10});
                },
                x),
            Numbers({10, 0, 1, 0}));
  EXPECT_EQ(GradientOf([](const NDArray& a) { return Median(a); }, x), Numbers({0.5, 0, 0, 0.5}));
  // Of equals the first; PyTorch has none of this.
  EXPECT_EQ(GradientOf(
                [](const NDArray& a) {
                  return Unique(a) * D({1, 10});
                },
                D({4, 2, 4})),
            Numbers({10, 1, 0}));
  const Numbers quantiles = GradientOf(
      [](const NDArray& a) {
        return Quantile(a, Numbers{0.25, 0.9});
      },
      x);
  const Numbers expected = {0.3, 0.25, 0.7, 0.75};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(quantiles[i], expected[i], 1e-12) << i;
  EXPECT_EQ(SecondGradientOf([](const NDArray& a) { return Square(Sort(a)) * Weights(); }, x,
                             Ones({4}, DType::kFloat64)),
            Numbers({200, 2, 2000, 20}));  // 2 w of each one's place
}

TEST(TapeOrder, NormsSignsAndRemainders) {
  EXPECT_EQ(GradientOf([](const NDArray& a) { return NormInf(a); }, D({3, -4, 4, 2})),
            Numbers({0, -0.5, 0.5, 0}));
  const NDArray x = D({3, -4, 0, 2}), y = D({-1, -1, 1, -0.0});
  EXPECT_EQ(GradientOf([&](const NDArray& a) { return CopySign(a, y) * Weights(); }, x),
            Numbers({-1, 10, 0, -1000}));
  EXPECT_EQ(GradientOf([&](const NDArray& a) { return CopySign(x, a) * Weights(); }, y),
            Numbers({0, 0, 0, 0}));
  const NDArray seven = D({7, -7, 7, -7}), three = D({3, 3, -3, -3});
  EXPECT_EQ(GradientOf([&](const NDArray& a) { return Remainder(a, three) * Weights(); }, seven),
            Weights().ToVector<double>());
  EXPECT_EQ(GradientOf([&](const NDArray& a) { return Remainder(seven, a) * Weights(); }, three),
            Numbers({-2, 30, 300, -2000}));
  EXPECT_EQ(GradientOf([&](const NDArray& a) { return FMod(seven, a) * Weights(); }, three),
            Numbers({-2, 20, 200, -2000}));
}

// Target and updates at once, for which the second gradient is what the first takes away.
TEST(TapeOrder, UpdatesOfAScatter) {
  const auto both = [](const std::vector<int64_t>& places, const Numbers& updates,
                       ScatterReduction reduction) {
    const NDArray target = D({1, 2, 3}), u = D(updates);
    GradientTape tape;
    tape.Watch(target);
    tape.Watch(u);
    tape.Backward(Sum(Square(Scatter(target, 0, I(places), u, reduction))));
    Numbers found = tape.Gradient(target).ToVector<double>();
    for (const double each : tape.Gradient(u).ToVector<double>()) found.push_back(each);
    return found;
  };
  EXPECT_EQ(both({2, 0, 2}, {5, 6, 7}, ScatterReduction::kAdd), Numbers({14, 4, 30, 30, 14, 30}));
  EXPECT_EQ(both({2, 0}, {5, 6}, ScatterReduction::kNone), Numbers({0, 4, 0, 10, 12}));
  // Of two at one place the first has been written over, for which PyTorch promises nothing.
  EXPECT_EQ(both({2, 0, 2}, {5, 6, 7}, ScatterReduction::kNone), Numbers({0, 4, 0, 0, 12, 14}));
  const auto status = CatchStatus([&] { both({2, 0}, {5, 6}, ScatterReduction::kMultiply); });
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("Op [scatter]: there is no gradient with respect to its updates"),
            std::string::npos)
      << status.message();
}

// In place, into a view with gaps and of rows; a tape that keeps runs again to the same numbers.
TEST(TapeOrder, UpdatesInPlace) {
  const NDArray x = RandomUniform({4, 6}, 1, 2, DType::kFloat64, 1),
                w = RandomUniform({4, 6}, 1, 2, DType::kFloat64, 2), rows = Ones({2, 3}, x.dtype()),
                one = Ones({1, 3}, x.dtype());
  GradientTape tape;
  tape.Watch(x);
  tape.Watch(rows);
  tape.Watch(one);
  const NDArray h = x * 2.0;
  NDArray columns = h.Slice(1, 0, 6, 2);
  ScatterAddInto(rows, I({3, 1}), 0, columns);
  ScatterInto(0, I({2, 2, 2}).Reshape({1, 3}), one, ScatterReduction::kNone, columns);
  const NDArray loss = Sum(h * w);
  for (int pass = 0; pass < 2; ++pass) {
    tape.Backward({&loss, 1}, {}, /*keep=*/pass == 0);
    EXPECT_EQ(tape.Gradient(rows).ToVector<double>(),
              Gather(w.Slice(1, 0, 6, 2), I({3, 1}), 0).ToVector<double>());
    EXPECT_EQ(tape.Gradient(one).ToVector<double>(),
              w.Slice(1, 0, 6, 2).Slice(0, 2, 3).ToVector<double>());
    NDArray of_x = w * 2.0;
    of_x.Slice(0, 2, 3).Slice(1, 0, 6, 2) = 0.0;
    EXPECT_EQ(tape.Gradient(x).ToVector<double>(), of_x.ToVector<double>());
  }
}

TEST(TapeOrder, WeightsOfBins) {
  const NDArray bins = I({0, 2, 2, 1});
  EXPECT_EQ(GradientOf(
                [&](const NDArray& a) {
                  return BinCount(bins, a) * D({1, 10, 100});
                },
                D({1, 2, 3, 4})),
            Numbers({1, 100, 100, 10}));  // each its bin's weight
}

// What picks by indices: the gradient of a gradient.
TEST(TapeOrder, SecondGradientsOfWhatPicks) {
  const NDArray x = D({1, 2, 3}), ones = Ones({3}, DType::kFloat64), picked = I({2, 0, 2});
  const auto cube = [](const NDArray& a) { return Square(a) * a; };
  const Numbers expected = {6, 0, 36};
  EXPECT_EQ(SecondGradientOf([&](const NDArray& a) { return cube(Gather(a, picked)); }, x, ones),
            expected);
  EXPECT_EQ(SecondGradientOf([&](const NDArray& a) { return cube(Gather(a, 0, picked)); }, x, ones),
            expected);
  EXPECT_EQ(SecondGradientOf(
                [&](const NDArray& a) {
                  return cube(EmbeddingLookup(a.Reshape({3, 1}), picked));
                },
                x, ones),
            expected);
}

// Sorted in place by itself a watched array is refused at once, as what its gradient is by goes.
TEST(TapeOrder, SortingOverWhatItsGradientNeedsIsRefused) {
  const NDArray x = D({3, 1, 2});
  GradientTape tape;
  tape.Watch(x);
  NDArray h = x * 2.0;
  EXPECT_EQ(CatchStatus([&] { SortInto(h, 0, false, h); }).code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tidepool
