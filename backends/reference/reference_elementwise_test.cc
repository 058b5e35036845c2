// Values of the reference's elementwise operators, against numbers worked out by hand and formulas
// written another way, in every type.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::IsNan;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr DType kFloatDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16,
                                  DType::kBFloat16};
constexpr DType kSignedDTypes[] = {DType::kInt8, DType::kInt32, DType::kInt64};

NDArray D(std::vector<double> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
NDArray Of(DType dtype, const std::vector<double>& values) { return Cast(D(values), dtype); }
std::vector<double> Values(const NDArray& x) { return Cast(x, DType::kFloat64).ToVector<double>(); }
template <typename T>
std::vector<int64_t> Whole(const NDArray& x) {
  const std::vector<T> values = x.ToVector<T>();
  return std::vector<int64_t>(values.begin(), values.end());
}
template <typename T>
NDArray Ints(std::vector<T> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
NDArray Flags(const std::vector<double>& values) { return Of(DType::kBool, values); }
std::vector<bool> Bools(const NDArray& x) { return x.ToVector<bool>(); }

// Units in the last place of 1, for comparisons of values about 1.
double Precision(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 0x1p-52;
    case DType::kFloat16:
      return 0x1p-10;
    case DType::kBFloat16:
      return 0x1p-7;
    default:
      return 0x1p-23;
  }
}

TEST(ReferenceArithmetic, EveryFloatType) {
  for (const DType dtype : kFloatDTypes) {
    const NDArray x = Of(dtype, {1, -2, kInf, 0.5}), y = Of(dtype, {4, 0, kInf, -0.25});
    EXPECT_EQ((x + y).dtype(), dtype);
    EXPECT_THAT(Values(x + y), ElementsAre(5, -2, kInf, 0.25));
    EXPECT_THAT(Values(x - y), ElementsAre(-3, -2, IsNan(), 0.75));
    EXPECT_THAT(Values(x * y), ElementsAre(4, 0, kInf, -0.125));
    EXPECT_THAT(Values(x / y), ElementsAre(0.25, -kInf, IsNan(), -2));
    EXPECT_THAT(Values(ScaleShift(x, 2, 1)), ElementsAre(3, -3, kInf, 2));
    EXPECT_THAT(Values(Maximum(x, y)), ElementsAre(4, 0, kInf, 0.5));
    EXPECT_THAT(Values(Minimum(x, y)), ElementsAre(1, -2, kInf, -0.25));
  }
}

TEST(ReferenceArithmetic, RoundsOnce) {
  // 1 + 2^-11 is a tie of f16 and goes to even; with 2^-12 more it does not.
  const NDArray one = Of(DType::kFloat16, {1}), tie = Of(DType::kFloat16, {0x1p-11});
  EXPECT_THAT(Values(one + tie), ElementsAre(1));
  EXPECT_THAT(Values(one + Of(DType::kFloat16, {0x1.8p-11})), ElementsAre(1 + 0x1p-10));
  EXPECT_THAT(Values(Of(DType::kFloat16, {60000}) + Of(DType::kFloat16, {60000})),
              ElementsAre(kInf));
  // Through a wider type this sum of doubles would be rounded twice.
  EXPECT_THAT(Values(D({1}) + D({0x1.002p-53})), ElementsAre(1 + 0x1p-52));
}

TEST(ReferenceArithmetic, IntegersWrap) {
  EXPECT_THAT(Whole<int8_t>(Ints<int8_t>({127, -128}) + Ints<int8_t>({1, -1})),
              ElementsAre(-128, 127));
  EXPECT_THAT(Whole<uint8_t>(Ints<uint8_t>({250, 3}) * Ints<uint8_t>({2, 4})),
              ElementsAre(244, 12));
  EXPECT_THAT(Whole<uint8_t>(Ints<uint8_t>({1}) - Ints<uint8_t>({2})), ElementsAre(255));
  EXPECT_THAT(Whole<int32_t>(Ints<int32_t>({INT32_MIN, -7, 7}) / Ints<int32_t>({-1, 2, -2})),
              ElementsAre(INT32_MIN, -3, -3));
  EXPECT_THAT(Whole<int64_t>(Negate(Ints<int64_t>({INT64_MIN, 5}))), ElementsAre(INT64_MIN, -5));
  EXPECT_THAT(Whole<uint8_t>(Negate(Ints<uint8_t>({1, 0}))), ElementsAre(255, 0));
  EXPECT_THAT(Whole<int8_t>(Abs(Ints<int8_t>({-128, -5, 5}))), ElementsAre(-128, 5, 5));
  EXPECT_THAT(Whole<int8_t>(Square(Ints<int8_t>({-5, 16}))), ElementsAre(25, 0));
  EXPECT_THAT(Whole<int8_t>(ScaleShift(Ints<int8_t>({100, 3}), 2, 1)), ElementsAre(-55, 7));
  EXPECT_THAT(Whole<uint8_t>(ScaleShift(Ints<uint8_t>({7, 200}), 0.5, 0)), ElementsAre(3, 100));
}

TEST(ReferenceArithmetic, MaximumAndMinimumPropagateNaN) {
  for (const DType dtype : kFloatDTypes) {
    const NDArray x = Of(dtype, {kNaN, 1, -kInf}), y = Of(dtype, {1, kNaN, kNaN});
    EXPECT_THAT(Values(Maximum(x, y)), ElementsAre(IsNan(), IsNan(), IsNan()));
    EXPECT_THAT(Values(Minimum(x, y)), ElementsAre(IsNan(), IsNan(), IsNan()));
  }
  EXPECT_THAT(Whole<int64_t>(Maximum(Ints<int64_t>({-1, 2}), Ints<int64_t>({0, 1}))),
              ElementsAre(0, 2));
}

TEST(ReferenceArithmetic, Power) {
  for (const DType dtype : kFloatDTypes) {
    const NDArray x = Of(dtype, {2, -2, 9, -1, 0, kNaN, 2});
    const NDArray y = Of(dtype, {3, 3, 0.5, 0.5, 0, 0, -kInf});
    EXPECT_THAT(Values(Power(x, y)), ElementsAre(8, -8, 3, IsNan(), 1, 1, 0));
  }
  EXPECT_THAT(Whole<int64_t>(Power(Ints<int64_t>({3, -2, 0, 2}), Ints<int64_t>({4, 3, 0, 64}))),
              ElementsAre(81, -8, 1, 0));
  EXPECT_THAT(Whole<uint8_t>(Power(Ints<uint8_t>({3}), Ints<uint8_t>({5}))), ElementsAre(243));
}

TEST(ReferenceArithmetic, RemainderHasTheSignOfTheDivisor) {
  for (const DType dtype : kFloatDTypes) {
    const NDArray x = Of(dtype, {5, -5, 5, -5, 6, -5, 5, 1});
    const NDArray y = Of(dtype, {3, 3, -3, -3, 3, kInf, kInf, 0});
    EXPECT_THAT(Values(Remainder(x, y)), ElementsAre(2, 1, -1, -2, 0, kInf, 5, IsNan()));
    // A 0 as well, as NumPy has it, and its sign is no number's.
    const std::vector<double> zeros =
        Values(Remainder(Of(dtype, {0, -0.0, 6, -6}), Of(dtype, {-3, 3, -3, 3})));
    for (size_t i = 0; i < 4; ++i) EXPECT_EQ(std::signbit(zeros[i]), i % 2 == 0) << zeros[i];
    EXPECT_FALSE(std::signbit(Values(Sign(Of(dtype, {-0.0})))[0]));
  }
  for (const DType dtype : kSignedDTypes) {
    const NDArray x = Of(dtype, {5, -5, 5, -5, 6, -128}), y = Of(dtype, {3, 3, -3, -3, 3, -1});
    EXPECT_THAT(Values(Remainder(x, y)), ElementsAre(2, 1, -1, -2, 0, 0));
  }
}

TEST(ReferenceComparison, EveryType) {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    const NDArray x = Of(dtype, {0, 1, 1}), y = Of(dtype, {1, 1, 0});
    EXPECT_THAT(Bools(Equal(x, y)), ElementsAre(false, true, false));
    EXPECT_THAT(Bools(NotEqual(x, y)), ElementsAre(true, false, true));
    EXPECT_THAT(Bools(Less(x, y)), ElementsAre(true, false, false));
    EXPECT_THAT(Bools(LessEqual(x, y)), ElementsAre(true, true, false));
    EXPECT_THAT(Bools(Greater(x, y)), ElementsAre(false, false, true));
    EXPECT_THAT(Bools(GreaterEqual(x, y)), ElementsAre(false, true, true));
    const NDArray condition = Flags({1, 0, 1});
    EXPECT_EQ(Where(condition, x, y).dtype(), dtype);
    EXPECT_THAT(Values(Where(condition, x, y)), ElementsAre(0, 1, 1));
  }
}

TEST(ReferenceComparison, NaNIsUnordered) {
  for (const DType dtype : kFloatDTypes) {
    const NDArray x = Of(dtype, {kNaN, 0, kInf}), y = Of(dtype, {kNaN, kNaN, kInf});
    EXPECT_THAT(Bools(Equal(x, y)), ElementsAre(false, false, true));
    EXPECT_THAT(Bools(NotEqual(x, y)), ElementsAre(true, true, false));
    EXPECT_THAT(Bools(Less(x, y)), ElementsAre(false, false, false));
    EXPECT_THAT(Bools(GreaterEqual(x, y)), ElementsAre(false, false, true));
    EXPECT_THAT(Bools(IsNan(x)), ElementsAre(true, false, false));
    EXPECT_THAT(Bools(IsFinite(x)), ElementsAre(false, true, false));
  }
  EXPECT_THAT(Bools(Equal(D({0.0}), D({-0.0}))), ElementsAre(true));
}

TEST(ReferenceComparison, Logic) {
  const NDArray x = Flags({0, 0, 1, 1}), y = Flags({0, 1, 0, 1});
  EXPECT_THAT(Bools(LogicalAnd(x, y)), ElementsAre(false, false, false, true));
  EXPECT_THAT(Bools(LogicalOr(x, y)), ElementsAre(false, true, true, true));
  EXPECT_THAT(Bools(LogicalXor(x, y)), ElementsAre(false, true, true, false));
  EXPECT_THAT(Bools(LogicalNot(x)), ElementsAre(true, true, false, false));
}

TEST(ReferenceUnary, ExactFunctions) {
  for (const DType dtype : kFloatDTypes) {
    const NDArray x = Of(dtype, {-2.5, -0.5, 0, 0.5, 1.5, 4, kNaN, -kInf});
    EXPECT_THAT(Values(Negate(x)), ElementsAre(2.5, 0.5, 0, -0.5, -1.5, -4, IsNan(), kInf));
    EXPECT_THAT(Values(Abs(x)), ElementsAre(2.5, 0.5, 0, 0.5, 1.5, 4, IsNan(), kInf));
    EXPECT_THAT(Values(Sign(x)), ElementsAre(-1, -1, 0, 1, 1, 1, IsNan(), -1));
    EXPECT_THAT(Values(Square(x)), ElementsAre(6.25, 0.25, 0, 0.25, 2.25, 16, IsNan(), kInf));
    EXPECT_THAT(Values(Floor(x)), ElementsAre(-3, -1, 0, 0, 1, 4, IsNan(), -kInf));
    EXPECT_THAT(Values(Ceil(x)), ElementsAre(-2, 0, 0, 1, 2, 4, IsNan(), -kInf));
    EXPECT_THAT(Values(Round(x)), ElementsAre(-2, 0, 0, 0, 2, 4, IsNan(), -kInf));
    EXPECT_THAT(Values(Clip(x, -1, 1)), ElementsAre(-1, -0.5, 0, 0.5, 1, 1, IsNan(), -1));
    EXPECT_THAT(Values(Sqrt(Of(dtype, {0, 4, -1}))), ElementsAre(0, 2, IsNan()));
    EXPECT_THAT(Values(Rsqrt(Of(dtype, {4, 0, kInf}))), ElementsAre(0.5, kInf, 0));
    EXPECT_THAT(Values(Reciprocal(Of(dtype, {-4, 0, -kInf}))), ElementsAre(-0.25, kInf, 0));
  }
  EXPECT_THAT(Whole<uint8_t>(Sign(Ints<uint8_t>({0, 200}))), ElementsAre(0, 1));
  EXPECT_THAT(Whole<int32_t>(Sign(Ints<int32_t>({-9, 0, 4}))), ElementsAre(-1, 0, 1));
  EXPECT_THAT(Whole<int8_t>(Clip(Ints<int8_t>({-100, 5, 100}), -50, 1000)),
              ElementsAre(-50, 5, 100));
  EXPECT_THAT(Whole<int64_t>(Clip(Ints<int64_t>({INT64_MIN, INT64_MAX}), -kInf, kInf)),
              ElementsAre(INT64_MIN, INT64_MAX));
}

// Each function at `points` against a formula in long double.
struct FunctionCase {
  const char* name;
  std::function<NDArray(const NDArray&)> function;
  long double (*expected)(long double);
  std::vector<double> points;
};

long double Series(long double x) {  // erf by its Taylor series
  long double sum = 0, term = x;
  for (int n = 0; n < 60; ++n) {
    sum += term / (2 * n + 1);
    term *= -x * x / (n + 1);
  }
  return sum * 1.12837916709551257390L;
}
long double Logistic(long double x) { return std::exp(x) / (1 + std::exp(x)); }

const std::vector<double> kPoints = {-2, -1, -0.25, 0, 0.125, 0.5, 1, 2};

TEST(ReferenceUnary, FunctionsOfRealNumbers) {
  using L = long double;
  const std::vector<FunctionCase> cases = {
      {"exp", &Exp, [](L x) { return std::pow(2.71828182845904523536L, x); }, kPoints},
      {"expm1", &Expm1, [](L x) { return 2 * std::exp(x / 2) * std::sinh(x / 2); }, kPoints},
      {"log", &Log, [](L x) { return std::log2(x) * 0.69314718055994530942L; }, {0.25, 1, 3, 10}},
      {"log1p", &Log1p, [](L x) { return 2 * std::atanh(x / (2 + x)); }, {-0.5, 0, 0.25, 3}},
      {"sin", &Sin, [](L x) { return 2 * std::sin(x / 2) * std::cos(x / 2); }, kPoints},
      {"cos", &Cos, [](L x) { return 1 - 2 * std::sin(x / 2) * std::sin(x / 2); }, kPoints},
      {"tanh", &Tanh, [](L x) { return 2 * Logistic(2 * x) - 1; }, kPoints},
      {"sigmoid", &Sigmoid, &Logistic, kPoints},
      {"erf", &Erf, &Series, kPoints},
      {"softplus", &Softplus, [](L x) { return std::log(1 + std::exp(x)); }, kPoints},
      {"swish", &Swish, [](L x) { return x * Logistic(x); }, kPoints},
      {"gelu", [](const NDArray& x) { return Gelu(x); },
       [](L x) { return x / 2 * (1 + Series(x / std::sqrt(2.0L))); }, kPoints},
      {"gelu by tanh", [](const NDArray& x) { return Gelu(x, GeluForm::kTanh); },
       [](L x) {
         return x / 2 * (1 + std::tanh(0.79788456080286535588L * (x + 0.044715L * x * x * x)));
       },
       kPoints},
      {"elu", [](const NDArray& x) { return Elu(x, 0.5); },
       [](L x) { return x > 0 ? x : 0.5L * (std::exp(x) - 1); }, kPoints},
      {"leaky_relu", [](const NDArray& x) { return LeakyRelu(x, 0.25); },
       [](L x) { return x > 0 ? x : 0.25L * x; }, kPoints},
  };
  for (const FunctionCase& c : cases) {
    for (const DType dtype : kFloatDTypes) {
      const std::vector<double> results = Values(c.function(Of(dtype, c.points)));
      for (size_t i = 0; i < results.size(); ++i) {
        const double expected = static_cast<double>(c.expected(c.points[i]));
        EXPECT_NEAR(results[i], expected, Precision(dtype) * std::max(1.0, std::abs(expected)))
            << c.name << "(" << c.points[i] << ") in " << DTypeName(dtype);
      }
    }
  }
}

TEST(ReferenceUnary, Extremes) {
  EXPECT_THAT(Values(Exp(D({-kInf, kInf, 1000}))), ElementsAre(0, kInf, kInf));
  EXPECT_THAT(Values(Log(D({0, kInf, -1}))), ElementsAre(-kInf, kInf, IsNan()));
  EXPECT_THAT(Values(Sigmoid(D({-kInf, kInf, 0}))), ElementsAre(0, 1, 0.5));
  EXPECT_THAT(Values(Softplus(D({-kInf, kInf, 1e6}))), ElementsAre(0, kInf, 1e6));
  EXPECT_THAT(Values(Tanh(D({-kInf, kInf}))), ElementsAre(-1, 1));
  EXPECT_THAT(Values(Gelu(D({kInf, -kInf, 1e300}))), ElementsAre(kInf, IsNan(), 1e300));
  // Without cancellation: f32 keeps its digits where exp(x) is far below 1.
  EXPECT_FLOAT_EQ(Softplus(Cast(D({-50}), DType::kFloat32)).Item<float>(), 1.9287498e-22f);
}

TEST(ReferenceActivation, GradientsAtKnownPoints) {
  const NDArray dz = D({2, 2, 2}), x = D({-1, 0, 1});
  EXPECT_THAT(Values(ReluGrad(D({0, 1, kNaN}), dz)), ElementsAre(0, 2, 0));
  EXPECT_THAT(Values(SigmoidGrad(D({0, 0.5, 1}), dz)), ElementsAre(0, 0.5, 0));
  EXPECT_THAT(Values(TanhGrad(D({-1, 0, 0.5}), dz)), ElementsAre(0, 2, 1.5));
  EXPECT_THAT(Values(LeakyReluGrad(x, dz, 0.25)), ElementsAre(0.5, 0.5, 2));
  EXPECT_THAT(Values(EluGrad(D({0, 1, -kInf}), dz, 0.5)), ElementsAre(1, 2, 0));
  EXPECT_THAT(Values(SoftplusGrad(D({0, kInf, -kInf}), dz)), ElementsAre(1, 2, 0));
  EXPECT_THAT(Values(SwishGrad(D({0, 1e3, -1e3}), dz)), ElementsAre(1, 2, 0));
  for (const GeluForm form : {GeluForm::kErf, GeluForm::kTanh}) {
    EXPECT_THAT(Values(GeluGrad(D({0, 1e3, -1e3}), dz, form)), ElementsAre(1, 2, 0));
  }
}

}  // namespace
}  // namespace tidepool
