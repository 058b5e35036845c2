// The loops of each instruction set, of which the contract test sees only one.
#include "tidepool/backends/cpu/random/random_loops.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/kernel/philox.h"

namespace tidepool::cpu {
namespace {

std::vector<const RandomLoops*> Tables() {
  std::vector<const RandomLoops*> tables = {&kPortableRandomLoops};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    tables.push_back(&kAvx2RandomLoops);
  }
  if (__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq"))
    tables.push_back(&kAvx512RandomLoops);
#endif
  return tables;
}

TEST(RandomLoops, WordsArePhiloxs) {
  for (const RandomLoops* loops : Tables()) {
    for (const int64_t blocks : {1, 3, 15, 16, 17, 40}) {
      for (const uint64_t first : {uint64_t{0}, uint64_t{0xfffffffa}, UINT64_MAX - 5}) {
        const uint64_t seed = 0x0123456789abcdef, stream = 0xfedcba9876543210;
        std::vector<uint32_t> words(4 * blocks + 1, 77);
        loops->words(seed, stream, first, blocks, words.data());
        for (int64_t b = 0; b < blocks; ++b) {
          const PhiloxWords expected = Philox(seed, stream, first + static_cast<uint64_t>(b));
          for (int w = 0; w < 4; ++w) ASSERT_EQ(words[4 * b + w], expected.word[w]) << b;
        }
        ASSERT_EQ(words[4 * blocks], 77u);  // nothing behind
      }
    }
  }
}

TEST(RandomLoops, TransformsOfWords) {
  std::vector<uint32_t> words;
  for (uint64_t block = 0; block < 100; ++block) {
    for (const uint32_t word : Philox(1, 2, block).word) words.push_back(word);
  }
  words[0] = UINT32_MAX;
  words[1] = 0;
  const auto n = static_cast<int64_t>(words.size());
  const UniformTransform uniform(-1, 2);
  for (const RandomLoops* loops : Tables()) {
    std::vector<float> z(n), x(n, 3);
    loops->uniform(words.data(), -1, 3, std::nextafterf(2, -1), z.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(z[i], uniform(words[i]));
    for (const auto& [mean, deviation] :
         {std::pair<double, double>{0, 1}, {3, 1e-3}, {-1e30, 1e30}}) {
      loops->normal(words.data(), mean, deviation, z.data(), n / 2);
      for (int64_t i = 0; i < n; i += 2) {
        float pair[2];
        NormalPair(words[i], words[i + 1], mean, deviation, pair);
        ASSERT_EQ(std::memcmp(&z[i], pair, sizeof(pair)), 0) << i;
      }
    }
    const uint32_t limit = 1u << 30;
    loops->dropout_f32(words.data(), limit, x.data(), 2, z.data(), n);
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(z[i], words[i] < limit ? 0 : 6);
    std::vector<double> wide(n, 3);
    loops->dropout_f64(words.data(), limit, wide.data(), 2, wide.data(), n);  // in place
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(wide[i], words[i] < limit ? 0 : 6);
    for (int width = 0; width < 4; ++width) {
      std::vector<unsigned char> bytes(n << width);
      loops->ones[width](words.data(), limit, 1, bytes.data(), n);
      for (int64_t i = 0; i < n; ++i) {
        uint64_t value = 0;
        std::memcpy(&value, &bytes[i << width], size_t{1} << width);
        ASSERT_EQ(value, words[i] < limit ? 1u : 0u);
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::cpu
