// Gradients where a formula would be 0 times infinity, and of functions that overwrite what they made on the way.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/statistics.h"

namespace tidepool {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

using Function = std::function<NDArray(const NDArray&)>;

NDArray F(std::vector<double> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}

// Of the sum of what the function makes of x.
std::vector<double> GradientOf(const Function& function, const NDArray& x) {
  GradientTape tape;
  tape.Watch(x);
  tape.Backward(Sum(function(x)));
  return tape.Gradient(x).ToVector<double>();
}

using Numbers = std::vector<double>;

TEST(Corners, ReductionsWithoutNaN) {
  const NDArray x = F({1, kNaN, 4, 2, kNaN, kNaN}).Reshape({2, 3});
  const auto rows = [](NDArray (*reduce)(const NDArray&, const Axes&, bool)) {
    return [reduce](const NDArray& a) { return reduce(a, 1, false) * F({10, 100}); };
  };
  EXPECT_EQ(GradientOf(rows(&NanMax), x), (Numbers{0, 0, 10, 100, 0, 0}));
  EXPECT_EQ(GradientOf(rows(&NanMin), x), (Numbers{10, 0, 0, 100, 0, 0}));
  EXPECT_EQ(GradientOf(rows(&NanSum), x), (Numbers{10, 0, 10, 100, 0, 0}));
  EXPECT_EQ(GradientOf(rows(&NanMean), x), (Numbers{5, 0, 5, 100, 0, 0}));
  // Of nothing but NaN nothing flows.
  EXPECT_EQ(GradientOf([](const NDArray& a) { return NanMax(a); }, F({kNaN, kNaN})),
            (Numbers{0, 0}));
}

TEST(Corners, DeviationOfEquals) {
  const auto of_rows = [](const NDArray& a) { return Std(a, 1) * F({1, 10}); };
  // (x - mean) / (count * deviation) for the second row.
  EXPECT_EQ(GradientOf(of_rows, F({5, 5, 1, 3}).Reshape({2, 2})), (Numbers{0, 0, -5, 5}));
  EXPECT_EQ(GradientOf([](const NDArray& a) { return Std(a); }, F({7})), (Numbers{0}));
  const NDArray half = Cast(F({1, 3}), DType::kFloat16);
  GradientTape tape;
  tape.Watch(half);
  tape.Backward(Std(half));
  EXPECT_EQ(Cast(tape.Gradient(half), DType::kFloat64).ToVector<double>(), (Numbers{-0.5, 0.5}));
}

TEST(Corners, Powers) {
  EXPECT_EQ(GradientOf([](const NDArray& a) { return Power(a, 0); }, F({0, 2, -3, kInf})),
            (Numbers{0, 0, 0, 0}));
  EXPECT_EQ(GradientOf([](const NDArray& a) { return Power(a, 1); }, F({0, 2})), (Numbers{1, 1}));
  EXPECT_EQ(GradientOf(
                [](const NDArray& a) {
                  return Power(a, F({0, 1, 2, -1, 3}));
                },
                F({0, 0, 0, 0, 2})),
            (Numbers{0, 1, 0, -kInf, 12}));
  EXPECT_EQ(GradientOf([](const NDArray& y) { return Power(0, y); }, F({0, 2, -1})),
            (Numbers{0, 0, -kInf}));
  EXPECT_EQ(GradientOf(
                [](const NDArray& y) {
                  return Power(F({0, 1}), y);
                },
                F({2, 2})),
            (Numbers{0, 0}));
  EXPECT_NEAR(GradientOf([](const NDArray& y) { return Power(2, y); }, F({3}))[0], 8 * std::log(2),
              1e-14);
  // Twice over.
  const NDArray x = F({0, 0, 0, 3});
  GradientTape outer;
  outer.Watch(x);
  NDArray first;
  {
    GradientTape inner;
    inner.Watch(x);
    inner.Backward(Sum(Power(x, F({0, 1, 2, 3}))));
    first = inner.Gradient(x);
  }
  EXPECT_EQ(first.ToVector<double>(), (Numbers{0, 1, 0, 27}));
  outer.Backward(Sum(first));
  EXPECT_EQ(outer.Gradient(x).ToVector<double>(), (Numbers{0, 0, 2, 18}));
}

TEST(Corners, AngleOfNothing) {
  EXPECT_EQ(GradientOf(
                [](const NDArray& a) {
                  return Atan2(a, F({0, 2}));
                },
                F({0, 0})),
            (Numbers{0, 0.5}));
  EXPECT_EQ(GradientOf(
                [](const NDArray& a) {
                  return Atan2(F({0, 2}), a);
                },
                F({0, 0})),
            (Numbers{0, -0.5}));
}

// Where one is infinite it alone counts; of equals each has half.
TEST(Corners, SumsOfExponentialsOfInfinities) {
  for (NDArray (*const function)(const NDArray&, const NDArray&) : {&LogAddExp, &LogAddExp2}) {
    const NDArray x = F({kInf, 0, -kInf, 0, 3, 800}), y = F({0, kInf, 0, -kInf, 3, -800});
    const auto left = [&](const NDArray& a) { return function(a, y); };
    const auto right = [&](const NDArray& a) { return function(x, a); };
    EXPECT_EQ(GradientOf(left, x), (Numbers{1, 0, 0, 1, 0.5, 1}));
    EXPECT_EQ(GradientOf(right, y), (Numbers{0, 1, 1, 0, 0.5, 0}));
  }
}

// What was computed with an array before it was watched is not of its gradient, wherever that goes.
TEST(Corners, AGradientIsOfWhatComesBehindWatch) {
  for (const bool is_given : {false, true}) {
    for (const bool is_read_later : {false, true}) {
      const NDArray x = F({0.5});
      GradientTape tape;
      tape.Watch(x);
      const NDArray h = x * 3.0;
      const NDArray y = Elu(h);
      NDArray given = F({9});
      is_given ? tape.Watch(h, given) : tape.Watch(h);
      const NDArray z = is_read_later ? y + h * 5.0 : y;
      tape.Backward(z);
      EXPECT_EQ(tape.Gradient(h).ToVector<double>(), (Numbers{is_read_later ? 5.0 : 0.0}));
      EXPECT_EQ(tape.Gradient(x).ToVector<double>(), (Numbers{is_read_later ? 18.0 : 3.0}));
      if (is_given) {
        EXPECT_EQ(given.ToVector<double>(), (Numbers{is_read_later ? 5.0 : 0.0}));
      }
    }
  }
}

// Nothing of an empty part can be overwritten.
TEST(Corners, AnEmptyPartKeepsNothing) {
  for (int64_t at = 0; at <= 4; ++at) {
    NDArray h = F({2, 2, 2, 2});
    GradientTape tape;
    tape.Watch(h);
    NDArray empty = h.Slice(0, at, at);
    SwishInto(empty, empty);
    h += 1.0;
    tape.Backward(Sum(h) + Sum(empty));
    EXPECT_EQ(tape.Gradient(h).ToVector<double>(), (Numbers{1, 1, 1, 1})) << at;
  }
}

}  // namespace
}  // namespace tidepool
