#include "tidepool/ndarray/kernel/philox.h"

#include <cmath>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

// The known answers of the authors' Random123 library (kat_vectors, philox4x32 10).
TEST(Philox, KnownAnswers) {
  const PhiloxWords zeros = Philox(0, 0, 0);
  EXPECT_EQ(zeros.word[0], 0x6627e8d5u);
  EXPECT_EQ(zeros.word[1], 0xe169c58du);
  EXPECT_EQ(zeros.word[2], 0xbc57ac4cu);
  EXPECT_EQ(zeros.word[3], 0x9b00dbd8u);
  const PhiloxWords ones = Philox(UINT64_MAX, UINT64_MAX, UINT64_MAX);
  EXPECT_EQ(ones.word[0], 0x408f276du);
  EXPECT_EQ(ones.word[1], 0x41c83b0eu);
  EXPECT_EQ(ones.word[2], 0xa20bc7c6u);
  EXPECT_EQ(ones.word[3], 0x6d5451fdu);
  const PhiloxWords pi = Philox(0x299f31d0a4093822u, 0x0370734413198a2eu, 0x85a308d3243f6a88u);
  EXPECT_EQ(pi.word[0], 0xd16cfe09u);
  EXPECT_EQ(pi.word[1], 0x94fdccebu);
  EXPECT_EQ(pi.word[2], 0x5001e420u);
  EXPECT_EQ(pi.word[3], 0x24126ea1u);
}

TEST(Philox, UniformIsHalfOpen) {
  const UniformTransform unit(0, 1);
  EXPECT_EQ(unit(0), 0.0f);
  EXPECT_EQ(unit(0xff), 0.0f);  // the low byte is not used
  EXPECT_EQ(unit(0x80000000u), 0.5f);
  EXPECT_EQ(unit(UINT32_MAX), 1 - 0x1p-24f);
  // 1 + (1 - 2^-24) rounds to 2.
  EXPECT_EQ(UniformTransform(1, 2)(UINT32_MAX), std::nextafterf(2, 1));
  EXPECT_EQ(UniformTransform(-1, 0)(UINT32_MAX), -0x1p-24f);
  EXPECT_EQ(UniformTransform(3, 3)(UINT32_MAX), 3.0f);
}

TEST(Philox, NormalIsBoxMuller) {
  float pair[2];
  NormalPair(UINT32_MAX, 0, 5, 2, pair);  // u = 1: radius 0
  EXPECT_EQ(pair[0], 5.0f);
  EXPECT_EQ(pair[1], 5.0f);
  NormalPair(0x80000000u - 1, 0, 0, 1, pair);  // u = 1/2, angle 0
  EXPECT_FLOAT_EQ(pair[0], 1.17741002f);       // sqrt(2 ln 2)
  EXPECT_EQ(pair[1], 0.0f);
  NormalPair(0x80000000u - 1, 0x40000000u, 0, 1, pair);  // a quarter turn
  EXPECT_EQ(pair[0], 0);
  EXPECT_FLOAT_EQ(pair[1], 1.17741002f);
}

// Of words near all that the formula decides by, and others.
TEST(Philox, NormalIsNearThatOfWiderNumbers) {
  constexpr long double kPi = 3.141592653589793238462643383279502884L;
  std::vector<std::pair<uint32_t, uint32_t>> words;
  for (const uint32_t first :
       {0u, 1u, 2u, 0x7fffffffu, 0xaaaaaaa9u, 0xaaaaaaaau, 0xaaaaaaabu, 0xfffffffdu, 0xfffffffeu}) {
    for (const uint32_t second :
         {1u, 0x1fffffffu, 0x20000000u, 0x3fffffffu, 0x40000001u, 0x5fffffffu, 0x60000000u,
          0x7fffffffu, 0x80000001u, 0x9fffffffu, 0xa0000000u, 0xbfffffffu, 0xc0000001u, 0xdfffffffu,
          0xffffffffu}) {
      words.emplace_back(first, second);
    }
  }
  for (uint64_t block = 0; block < 50000; ++block) {
    const PhiloxWords drawn = Philox(3, 5, block);
    words.emplace_back(drawn.word[0], drawn.word[1]);
    words.emplace_back(~(drawn.word[2] >> block % 32), drawn.word[3]);  // near 1
  }
  for (const auto& [first, second] : words) {
    if (first == UINT32_MAX || second % 0x40000000u == 0)
      continue;  // zeros, which NormalIsBoxMuller looks at
    double pair[2];
    NormalPair(first, second, 0, 1, pair);
    const long double r = std::sqrt(-2 * std::log((first + 1.0L) * 0x1p-32L)),
                      angle = kPi * (second * 0x1p-31L);
    const long double cosine = r * std::cos(angle), sine = r * std::sin(angle);
    ASSERT_LT(std::fabs(pair[0] - cosine), 4e-7L * std::fabs(cosine)) << first << " " << second;
    ASSERT_LT(std::fabs(pair[1] - sine), 4e-7L * std::fabs(sine)) << first << " " << second;
  }
}

TEST(Philox, NormalHasItsMoments) {
  double sum = 0, squares = 0, fourths = 0;
  constexpr int kBlocks = 100000;
  for (int block = 0; block < kBlocks; ++block) {
    const PhiloxWords words = Philox(7, 1, block);
    for (int k = 0; k < 4; k += 2) {
      float pair[2];
      NormalPair(words.word[k], words.word[k + 1], 0, 1, pair);
      for (const double value : pair) {
        sum += value;
        squares += value * value;
        fourths += value * value * value * value;
      }
    }
  }
  const double n = 4.0 * kBlocks;  // standard errors: 0.0016, 0.0022, 0.016
  EXPECT_NEAR(sum / n, 0, 0.007);
  EXPECT_NEAR(squares / n, 1, 0.01);
  EXPECT_NEAR(fourths / n, 3, 0.07);
}

}  // namespace
}  // namespace tidepool
