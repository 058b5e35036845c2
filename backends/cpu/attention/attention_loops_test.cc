// The loops of each instruction set, of which attention_test.cc sees only one, beside the library in double.
#include "tidepool/backends/cpu/attention/attention_loops.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/instruction_set.h"

namespace tidepool::cpu {
namespace {

std::vector<const AttentionLoops<float>*> Tables() {
  std::vector<const AttentionLoops<float>*> tables = {&kPortableAttentionLoops};
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx2) tables.push_back(&kAvx2AttentionLoops);
  if (BestInstructionSet() >= InstructionSet::kAvx512) tables.push_back(&kAvx512AttentionLoops);
#endif
  return tables;
}

class AttentionLoopsTest : public ::testing::Test {
 protected:
  std::vector<float> Values(int64_t n) {
    std::vector<float> values(n);
    std::uniform_real_distribution<float> draw(-2, 2);
    for (float& value : values) value = draw(random_);
    return values;
  }
  std::mt19937 random_{7};
};

TEST_F(AttentionLoopsTest, WeightsBesideTheLibrary) {
  constexpr double kShift = 0.25;
  for (const AttentionLoops<float>* const loops : Tables()) {
    for (int64_t n = 1; n <= 100; ++n) {
      const std::vector<float> mask = Values(n), s = Values(n);
      for (const bool masked : {false, true}) {
        for (const double scale : {0.5, -0.5}) {  // of which the least score has the largest weight
          const auto score = [&](int64_t i) {
            return s[i] * scale + kShift + (masked ? mask[i] : 0);
          };
          double largest = -1;
          for (int64_t i = 0; i < n; ++i) largest = std::max(largest, score(i));
          std::vector<float> weights = s;
          float found = -1;
          const double sum = loops->weights(weights.data(), n, static_cast<float>(scale), kShift,
                                            masked ? mask.data() : nullptr, &found);
          ASSERT_NEAR(found, largest, 1e-6) << n;
          double expected = 0;
          for (int64_t i = 0; i < n; ++i) {
            const double weight = std::exp(score(i) - found);
            ASSERT_NEAR(weights[i], weight, 1e-6) << i << " of " << n;
            expected += weight;
          }
          ASSERT_NEAR(sum, expected, 1e-6 * static_cast<double>(n)) << n;
        }
      }
    }
  }
}

TEST_F(AttentionLoopsTest, NanReachesTheSumWhereverItIs) {
  for (const AttentionLoops<float>* const loops : Tables()) {
    for (const int64_t n : {1, 15, 16, 33, 70}) {
      for (int64_t at = 0; at < n; ++at) {
        std::vector<float> s = Values(n);
        s[at] = NAN;
        float largest = -INFINITY;
        ASSERT_TRUE(std::isnan(loops->weights(s.data(), n, 1, 0, nullptr, &largest)))
            << at << " of " << n;
        ASSERT_FALSE(std::isnan(largest));
      }
    }
  }
}

TEST_F(AttentionLoopsTest, NothingSeenIsZeros) {
  for (const AttentionLoops<float>* const loops : Tables()) {
    for (const int64_t n : {1, 16, 70}) {
      std::vector<float> s = Values(n);
      const std::vector<float> mask(n, -INFINITY), zeros(n);
      float largest = -INFINITY;
      EXPECT_EQ(loops->weights(s.data(), n, 1, 0, mask.data(), &largest), 0);
      EXPECT_EQ(s, zeros);
      EXPECT_EQ(largest, -INFINITY);
    }
  }
}

}  // namespace
}  // namespace tidepool::cpu
