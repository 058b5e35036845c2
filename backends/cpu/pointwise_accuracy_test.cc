// Errors of the f32 functions in units in the last place, over all exponents, against libm in
// double, for AVX2 and for any processor. Prints what it measures.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/instruction_set.h"
#include "tidepool/backends/cpu/pointwise_loops.h"

namespace tidepool::cpu {
namespace {

constexpr uint32_t kSeed = 20240229;

// Every exponent with random fractions and those at its ends; 0, infinities, NaN and denormals too. Sizes from 2^-5 to 16, where
// functions bend, have more, and both sides of where pieces of a table may meet.
std::vector<float> AllExponents() {
  std::mt19937 random(kSeed);
  std::vector<float> values;
  const auto add = [&](uint32_t high, uint32_t fraction) {
    values.push_back(std::bit_cast<float>(high << 23 | (fraction & 0x7fffff)));
  };
  for (uint32_t high = 0; high < 512; ++high) {
    add(high, 0);
    add(high, 0x7fffff);
    const uint32_t exponent = high & 255;
    const bool bends = exponent >= 122 && exponent <= 130;
    for (int i = 0; i < (bends ? 20'000 : 398); ++i) add(high, random());
    for (uint32_t edge = 0; bends && edge < 64; ++edge) {
      for (uint32_t beside = 0; beside < 5; ++beside) add(high, (edge << 17) + beside - 2);
    }
  }
  return values;
}

double UnitOf(double value) {
  int exponent;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(exponent, -125) - 24);
}

std::vector<const PointwiseLoops*> Tables() {
  std::vector<const PointwiseLoops*> tables = {&kPortablePointwise};
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx2) tables.push_back(&kAvx2Pointwise);
  if (BestInstructionSet() >= InstructionSet::kAvx512) tables.push_back(&kAvx512Pointwise);
#endif
  return tables;
}

// Largest error of results whose error is above `ignored`; NaN where NaN and infinities are not
// where they should be.
double WorstUlps(const char* name, const std::vector<float>& results, const std::vector<float>& x,
                 const std::vector<double>& expected, double ignored) {
  double worst = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    const float rounded = static_cast<float>(expected[i]);
    if (!std::isfinite(rounded) || !std::isfinite(results[i])) {
      if (std::isnan(rounded) ? std::isnan(results[i]) : rounded == results[i]) continue;
      ADD_FAILURE() << name << "(" << x[i] << ") is " << results[i] << ", expected " << rounded;
      return NAN;
    }
    const double error = std::abs(results[i] - expected[i]);
    if (error > ignored) worst = std::max(worst, error / UnitOf(expected[i]));
  }
  return worst;
}

struct Sweep {
  const char* name;
  const PointwiseLoop (FunctionLoops::*loops)[kFloatLoopTypes];
  double (*expected)(double);
  double most_ulps;                // with FMA
  double most_portable;            // without
  double ignored = 0;              // where factors are denormal numbers the product has lost digits
  double most_avx512 = most_ulps;  // of loops of its own

  double Most(const PointwiseLoops* table) const {
    if (table == &kPortablePointwise) return most_portable;
#if defined(__x86_64__)
    if (table == &kAvx512Pointwise) return most_avx512;
#endif
    return most_ulps;
  }
};

TEST(PointwiseAccuracy, FunctionsOverAllExponents) {
  using F = FunctionLoops;
  const Sweep sweeps[] = {
      {"exp", &F::Exp, [](double x) { return std::exp(x); }, 0.9, 1.2},
      {"expm1", &F::Expm1, [](double x) { return std::expm1(x); }, 1.0, 1.1, 0, 1.01},
      {"log", &F::Log, [](double x) { return std::log(x); }, 0.9, 1.1, 0, 0.8},
      {"log1p", &F::Log1p, [](double x) { return std::log1p(x); }, 1.4, 1.4},
      {"sin", &F::Sin, [](double x) { return std::sin(x); }, 0.6, 0.6},
      {"cos", &F::Cos, [](double x) { return std::cos(x); }, 0.6, 0.6},
      {"tanh", &F::Tanh, [](double x) { return std::tanh(x); }, 1.9, 1.9, 0, 1.1},
      {"erf", &F::Erf, [](double x) { return std::erf(x); }, 1.0, 1.2},
      {"sigmoid", &F::Sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }, 2.2, 2.4},
      {"softplus", &F::Softplus,
       [](double x) { return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x))); }, 1.6, 2.1},
      {"swish", &F::Swish, [](double x) { return x / (1 + std::exp(-x)); }, 2.8, 2.9, 1e-43},
      {"gelu", &F::Gelu, [](double x) { return x * (std::erfc(-x * M_SQRT1_2) / 2); }, 4, 5, 1e-42},
      {"sqrt", &F::Sqrt, [](double x) { return std::sqrt(x); }, 0.5, 0.5},
      {"rsqrt", &F::Rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1.5, 1.5},
      {"reciprocal", &F::Reciprocal, [](double x) { return 1 / x; }, 0.5, 0.5},
      {"round", &F::Round, [](double x) { return std::nearbyint(x); }, 0, 0},
      {"floor", &F::Floor, [](double x) { return std::floor(x); }, 0, 0},
      {"ceil", &F::Ceil, [](double x) { return std::ceil(x); }, 0, 0},
  };
  const std::vector<float> x = AllExponents();
  std::vector<float> results(x.size());
  std::vector<double> expected(x.size());
  for (const Sweep& sweep : sweeps) {
    for (size_t i = 0; i < x.size(); ++i) expected[i] = sweep.expected(x[i]);
    for (const PointwiseLoops* table : Tables()) {
      const void* in[] = {x.data()};
      (table->functions->*sweep.loops)[kLoopF32](in, results.data(), static_cast<int64_t>(x.size()),
                                                 {});
      const double worst = WorstUlps(sweep.name, results, x, expected, sweep.ignored);
      std::printf("%-8s %-10s at most %.3f ulp\n", table->name, sweep.name, worst);
      EXPECT_LE(worst, sweep.Most(table)) << sweep.name << " by " << table->name;
    }
  }
}

TEST(PointwiseAccuracy, OddFunctionsKeepTheSignOfZero) {
  using F = FunctionLoops;
  constexpr struct {
    const char* name;
    const PointwiseLoop (F::*loops)[kFloatLoopTypes];
  } kOdd[] = {{"sqrt", &F::Sqrt},   {"expm1", &F::Expm1}, {"log1p", &F::Log1p}, {"sin", &F::Sin},
              {"tanh", &F::Tanh},   {"erf", &F::Erf},     {"floor", &F::Floor}, {"ceil", &F::Ceil},
              {"round", &F::Round}, {"tan", &F::Tan},     {"asin", &F::Asin},   {"atan", &F::Atan},
              {"sinh", &F::Sinh},   {"asinh", &F::Asinh}, {"atanh", &F::Atanh}, {"cbrt", &F::Cbrt},
              {"trunc", &F::Trunc}};
  const std::vector<float> zeros = {0.0f, -0.0f};
  for (const PointwiseLoops* table : Tables()) {
    for (const auto& function : kOdd) {
      float results[] = {1, 1};
      const void* in[] = {zeros.data()};
      (table->functions->*function.loops)[kLoopF32](in, results, 2, {});
      for (size_t i = 0; i < zeros.size(); ++i) {
        EXPECT_EQ(std::bit_cast<uint32_t>(results[i]), std::bit_cast<uint32_t>(zeros[i]))
            << function.name << " of " << zeros[i] << " by " << table->name;
      }
    }
  }
}

TEST(PointwiseAccuracy, EluIsExpm1TimesItsParameterUpToZero) {
  const std::vector<float> x = AllExponents();
  std::vector<float> results(x.size()), below(x.size());
  LoopParameters parameters;
  parameters.reals[0] = 0.3;
  for (const PointwiseLoops* table : Tables()) {
    const void* in[] = {x.data()};
    const int64_t n = static_cast<int64_t>(x.size());
    table->functions->Elu[kLoopF32](in, results.data(), n, parameters);
    table->functions->Expm1[kLoopF32](in, below.data(), n, {});
    for (size_t i = 0; i < x.size(); ++i) {
      const float expected = x[i] > 0 ? x[i] : 0.3f * below[i];
      if (std::isnan(expected) && std::isnan(results[i])) continue;
      ASSERT_EQ(std::bit_cast<uint32_t>(results[i]), std::bit_cast<uint32_t>(expected))
          << x[i] << " by " << table->name;
    }
  }
}

TEST(PointwiseAccuracy, TanhIsOddAndWithinOne) {
  std::vector<float> x = AllExponents();
  std::erase_if(x, [](float value) { return std::isnan(value); });
  std::vector<float> mirrored = x, results(x.size()), of_mirrored(x.size());
  for (float& value : mirrored) value = -value;
  for (const PointwiseLoops* table : Tables()) {
    const void *in[] = {x.data()}, *mirrored_in[] = {mirrored.data()};
    const int64_t n = static_cast<int64_t>(x.size());
    table->functions->Tanh[kLoopF32](in, results.data(), n, {});
    table->functions->Tanh[kLoopF32](mirrored_in, of_mirrored.data(), n, {});
    for (size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(-results[i]), std::bit_cast<uint32_t>(of_mirrored[i]))
          << x[i] << " by " << table->name;
      ASSERT_LE(std::abs(results[i]), 1) << x[i] << " by " << table->name;
    }
  }
}

#if defined(__x86_64__)
// Its loop for AVX-512 is another one, by other instructions.
TEST(PointwiseAccuracy, ExpHasTheSameBitsByAvx2AndAvx512) {
  if (BestInstructionSet() < InstructionSet::kAvx512) GTEST_SKIP() << "no AVX-512";
  std::vector<float> x = AllExponents();
  std::erase_if(x, [](float value) { return std::isnan(value); });
  const void* in[] = {x.data()};
  const int64_t n = static_cast<int64_t>(x.size());
  std::vector<float> narrow(x.size()), wide(x.size());
  kAvx2Pointwise.functions->Exp[kLoopF32](in, narrow.data(), n, {});
  kAvx512Pointwise.functions->Exp[kLoopF32](in, wide.data(), n, {});
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(narrow[i]), std::bit_cast<uint32_t>(wide[i])) << x[i];
  }
}
#endif

TEST(PointwiseAccuracy, GeluByTanhIsCloseAbsolutely) {
  const std::vector<float> x = AllExponents();
  std::vector<float> results(x.size());
  LoopParameters parameters;
  parameters.tanh_form = true;
  for (const PointwiseLoops* table : Tables()) {
    const void* in[] = {x.data()};
    table->functions->Gelu[kLoopF32](in, results.data(), static_cast<int64_t>(x.size()),
                                     parameters);
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double v = x[i], u = 1.59576912160573071176 * (v + 0.044715 * v * v * v);
      const double expected = v / (1 + std::exp(-u));
      if (std::isfinite(expected)) {
        worst =
            std::max(worst, std::abs(results[i] - expected) / std::max(1.0, std::abs(expected)));
      } else {
        EXPECT_TRUE(std::isnan(expected) ? std::isnan(results[i]) : results[i] == expected) << v;
      }
    }
    std::printf("%-8s gelu by tanh at most %.3g\n", table->name, worst);
    EXPECT_LE(worst, 2e-7);
  }
}

// Pairs of all kinds for functions of two arguments.
TEST(PointwiseAccuracy, PowerAndRemainder) {
  std::mt19937 random(kSeed);
  std::vector<float> x, y;
  auto real = [&](double low, double high) {
    return static_cast<float>(low + (high - low) * (random() * 0x1p-32));
  };
  for (int i = 0; i < 400000; ++i) {
    const bool any = i % 8 == 0;  // of any exponent; else so that results are finite
    x.push_back(any ? std::bit_cast<float>(static_cast<uint32_t>(random()))
                    : std::exp2(real(-10, 10)) * (i % 5 == 0 ? -1 : 1));
    y.push_back(any          ? std::bit_cast<float>(static_cast<uint32_t>(random()))
                : i % 3 == 0 ? std::round(real(-12, 12))
                             : real(-12, 12));
  }
  std::vector<float> results(x.size());
  std::vector<double> expected(x.size());
  for (const PointwiseLoops* table : Tables()) {
    const void* in[] = {x.data(), y.data()};
    for (size_t i = 0; i < x.size(); ++i) {
      expected[i] = std::pow(static_cast<double>(x[i]), static_cast<double>(y[i]));
    }
    table->arithmetic->Power[kLoopF32](in, results.data(), static_cast<int64_t>(x.size()), {});
    double worst = WorstUlps("power", results, x, expected, 0);
    std::printf("%-8s power at most %.3f ulp\n", table->name, worst);
    EXPECT_LE(worst, 1.0);

    for (size_t i = 0; i < x.size(); ++i) {
      const double divisor = y[i];
      double rest = std::fmod(static_cast<double>(x[i]), divisor);
      if (rest != 0 && (rest < 0) != (divisor < 0)) rest += divisor;
      expected[i] = rest;
    }
    table->arithmetic->Remainder[kLoopF32](in, results.data(), static_cast<int64_t>(x.size()), {});
    worst = WorstUlps("remainder", results, x, expected, 0);
    std::printf("%-8s remainder at most %.3f ulp\n", table->name, worst);
    EXPECT_LE(worst, 0.5);
  }
}

// As NumPy has it.
TEST(PointwiseAccuracy, ARemainderOfNothingHasTheSignOfTheDivisor) {
  const float x[] = {0, 0, -0.0f, -0.0f, 6, 6, -6, -6}, y[] = {3, -3, 3, -3, 3, -3, 3, -3};
  for (const PointwiseLoops* table : Tables()) {
    float found[8];
    const void* in[] = {x, y};
    table->arithmetic->Remainder[kLoopF32](in, found, 8, {});
    for (int i = 0; i < 8; ++i) {
      EXPECT_EQ(std::bit_cast<uint32_t>(found[i]), std::bit_cast<uint32_t>(y[i] < 0 ? -0.0f : 0.0f))
          << x[i] << " and " << y[i] << " by " << table->name;
    }
  }
}

// Gradients against their formulas in double; where x is spread widely.
TEST(PointwiseAccuracy, Gradients) {
  std::mt19937 random(kSeed);
  std::vector<float> x, dz;
  for (int i = 0; i < 200000; ++i) {
    const double size = std::exp2(random() * 0x1p-32 * 14 - 7);
    x.push_back(static_cast<float>(i % 2 == 0 ? size : -size));
    dz.push_back(static_cast<float>(random() * 0x1p-32 + 0.5));
  }
  auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  std::vector<float> results(x.size());
  for (const PointwiseLoops* table : Tables()) {
    double worst[3] = {};
    for (int form = 0; form < 3; ++form) {
      const void* in[] = {x.data(), dz.data()};
      LoopParameters parameters;
      parameters.tanh_form = form == 1;
      const FunctionLoops& f = *table->functions;
      (form == 2 ? f.SwishGrad : f.GeluGrad)[kLoopF32](in, results.data(),
                                                       static_cast<int64_t>(x.size()), parameters);
      for (size_t i = 0; i < x.size(); ++i) {
        const double v = x[i];
        double slope;
        if (form == 0) {
          slope = std::erfc(-v * M_SQRT1_2) / 2 + v * std::exp(-v * v / 2) / std::sqrt(2 * M_PI);
        } else if (form == 1) {
          const double s = sigmoid(1.59576912160573071176 * (v + 0.044715 * v * v * v));
          slope = s + v * s * (1 - s) * 1.59576912160573071176 * (1 + 3 * 0.044715 * v * v);
        } else {
          slope = sigmoid(v) * (1 + v * sigmoid(-v));
        }
        worst[form] = std::max(worst[form], std::abs(results[i] - dz[i] * slope));
      }
    }
    std::printf("%-8s gradients of gelu %.3g, by tanh %.3g, swish %.3g\n", table->name, worst[0],
                worst[1], worst[2]);
    for (const double error : worst) EXPECT_LE(error, 8e-7);
  }
}

}  // namespace
}  // namespace tidepool::cpu
