#include "tidepool/backends/cpu/int8/int8_dense.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/instruction_set.h"
#include "tidepool/backends/cpu/int8/int8_loops.h"

namespace tidepool::cpu {
namespace {

std::vector<const Int8Loops*> Tables() {
  std::vector<const Int8Loops*> tables = {&kPortableInt8Loops};
#if defined(__x86_64__)
  if (BestInstructionSet() >= InstructionSet::kAvx2) tables.push_back(&kAvx2Int8Loops);
  if (BestInstructionSet() >= InstructionSet::kAvx512Vnni) tables.push_back(&kVnniInt8Loops);
#endif
  return tables;
}

// A layer with its arrays.
struct Layer {
  Layer(int64_t its_units, int64_t its_inputs, uint32_t seed)
      : units(its_units),
        inputs(its_inputs),
        weight(static_cast<size_t>(units * inputs) + 64),
        scales(static_cast<size_t>(units)),
        bias(static_cast<size_t>(units)),
        sums(static_cast<size_t>(Int8WeightSums(units, inputs))) {
    std::mt19937 random(seed);
    for (int8_t& each : weight) each = static_cast<int8_t>(static_cast<int>(random() % 255) - 127);
    // Powers of two: exact.
    for (float& each : scales) each = std::ldexp(1.0f, -static_cast<int>(random() % 4));
    for (float& each : bias) each = static_cast<float>(random() % 64);
    SumInt8Weights(weight.data(), units, inputs, sums.data());
  }

  std::vector<float> Run(const Int8Loops& loops, int64_t batch, const std::vector<float>& x,
                         bool relu = false) const {
    std::vector<float> z(static_cast<size_t>(batch * units), NAN);
    std::vector<uint8_t> scratch(Int8ScratchBytes(inputs) + 64, 0xEE);
    void* const aligned =
        scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64) % 64;
    RunInt8Dense({units, inputs, weight.data(), scales.data(), bias.data(), relu, sums.data()},
                 loops, batch, x.data(), z.data(), aligned);
    return z;
  }

  double Weight(int64_t unit, int64_t input) const {
    return weight[static_cast<size_t>(unit * inputs + input)] *
           double{scales[static_cast<size_t>(unit)]};
  }

  int64_t units, inputs;
  std::vector<int8_t> weight;
  std::vector<float> scales, bias;
  std::vector<int32_t> sums;
};

// Whole numbers from `low` to `low` + 255, both of which are there: steps of 1.
std::vector<float> WholeNumbers(int64_t batch, int64_t inputs, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> x;
  for (int64_t r = 0; r < batch; ++r) {
    const int low = static_cast<int>(random() % 3000) - 1500;
    for (int64_t i = 0; i < inputs; ++i)
      x.push_back(static_cast<float>(low + static_cast<int>(random() % 256)));
    float* const row = x.data() + r * inputs;
    row[0] = static_cast<float>(low);
    row[inputs - 1] = static_cast<float>(low + 255);
  }
  return x;
}

TEST(Int8Dense, WholeNumbersAreExactInEachShapeAndTable) {
  for (const int64_t inputs : {2, 3, 63, 64, 65, 127, 300, 1000}) {
    for (const int64_t units : {1, 3, 4, 5, 64, 67, 130}) {
      const Layer layer(units, inputs, static_cast<uint32_t>(inputs * 1000 + units));
      for (const int64_t batch : {1, 2, 3, 4, 7, 66}) {
        const std::vector<float> x =
            WholeNumbers(batch, inputs, static_cast<uint32_t>(inputs + batch));
        for (const bool relu : {false, true}) {
          for (const Int8Loops* loops : Tables()) {
            const std::vector<float> z = layer.Run(*loops, batch, x, relu);
            for (int64_t r = 0; r < batch; ++r) {
              for (int64_t u = 0; u < units; ++u) {
                double sum = layer.bias[static_cast<size_t>(u)];
                for (int64_t i = 0; i < inputs; ++i)
                  sum += x[static_cast<size_t>(r * inputs + i)] * layer.Weight(u, i);
                if (relu) sum = std::max(sum, 0.0);
                // Sums beyond 2^24 are rounded when they become floats, and once more with the bias.
                ASSERT_NEAR(z[static_cast<size_t>(r * units + u)], sum, std::abs(sum) * 2e-7 + 1e-5)
                    << loops->name << " " << batch << " x " << inputs << " to " << units << " at "
                    << r << ", " << u;
              }
            }
          }
        }
      }
    }
  }
}

// The largest products that there are, on both sides of what 32 bits hold.
TEST(Int8Dense, SumsOfManyInputsDoNotOverflow) {
  for (const int64_t inputs : {65536, 65537, 200000}) {
    Layer layer(5, inputs, 1);
    std::fill(layer.weight.begin(), layer.weight.end(), int8_t{127});
    std::fill(layer.scales.begin(), layer.scales.end(), 1.0f);
    SumInt8Weights(layer.weight.data(), 5, inputs, layer.sums.data());
    std::vector<float> x(static_cast<size_t>(inputs), 255.0f);
    for (const float low : {255.0f, 0.0f, -255.0f}) {  // all but one number are these
      std::fill(x.begin() + 1, x.end(), low);
      for (const Int8Loops* loops : Tables()) {
        const std::vector<float> z = layer.Run(*loops, 1, x);
        const double sum = 127.0 * (255.0 + low * static_cast<double>(inputs - 1));
        const double step = low < 0 ? 2 : 1;
        for (size_t u = 0; u < 5; ++u) {
          ASSERT_NEAR(z[u], sum + layer.bias[u],
                      std::abs(sum) * 1e-6 + step / 2 * 127 * static_cast<double>(inputs))
              << loops->name << " " << inputs;
          if (low >= 0) {
            ASSERT_NEAR(z[u], sum + layer.bias[u], std::abs(sum) * 1e-6 + 1);
          }
        }
      }
    }
  }
}

TEST(Int8Dense, TablesGiveTheSameBitsWithinHalfAStepOfTheProduct) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  for (int round = 0; round < 200; ++round) {
    const int64_t inputs = 1 + static_cast<int64_t>(random() % 400),
                  units = 1 + static_cast<int64_t>(random() % 40),
                  batch = 1 + static_cast<int64_t>(random() % 9);
    const Layer layer(units, inputs, static_cast<uint32_t>(round));
    std::vector<float> x;
    for (int64_t r = 0; r < batch; ++r) {
      const float size = std::ldexp(1.0f, static_cast<int>(random() % 200) - 100),
                  shift = static_cast<float>(random() % 3) - 1;
      for (int64_t i = 0; i < inputs; ++i) x.push_back((normal(random) + 2 * shift) * size);
    }
    const std::vector<float> expected = layer.Run(kPortableInt8Loops, batch, x);
    for (const Int8Loops* loops : Tables()) {
      const std::vector<float> z = layer.Run(*loops, batch, x);
      ASSERT_EQ(std::memcmp(z.data(), expected.data(), z.size() * sizeof(float)), 0) << loops->name;
    }
    for (int64_t r = 0; r < batch; ++r) {
      const float* const row = x.data() + r * inputs;
      const double low = *std::min_element(row, row + inputs),
                   high = *std::max_element(row, row + inputs);
      for (int64_t u = 0; u < units; ++u) {
        double sum = layer.bias[static_cast<size_t>(u)], size = 0;
        for (int64_t i = 0; i < inputs; ++i) {
          sum += row[i] * layer.Weight(u, i);
          size += (high - low) / 510 * std::abs(layer.Weight(u, i));
        }
        // Half a step for each number.
        ASSERT_NEAR(expected[static_cast<size_t>(r * units + u)], sum,
                    size * 1.001 + std::abs(sum) * 1e-6 + 1e-30);
      }
    }
  }
}

TEST(Int8Dense, ARowDoesNotDependOnThoseBesideIt) {
  const Layer layer(37, 100, 3);
  std::vector<float> x = WholeNumbers(70, 100, 9);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= static_cast<float>(1 + i / 100);
  for (const Int8Loops* loops : Tables()) {
    const std::vector<float> all = layer.Run(*loops, 70, x);
    for (int64_t r = 0; r < 70; ++r) {
      const std::vector<float> one(x.begin() + r * 100, x.begin() + (r + 1) * 100);
      const std::vector<float> z = layer.Run(*loops, 1, one);
      ASSERT_EQ(std::memcmp(z.data(), all.data() + r * 37, sizeof(float) * 37), 0)
          << loops->name << " row " << r;
    }
  }
}

// Where all numbers lie is no part of what 8 bits are for.
TEST(Int8Dense, NumbersFarFrom0AreAsExactAsOthers) {
  const Layer layer(9, 64, 8);
  std::vector<float> x;
  for (int i = 0; i < 64; ++i) x.push_back(i % 2 == 0 ? 1000.0f : 1001.0f);
  std::vector<float> equal(64, 7.25f);
  for (const Int8Loops* loops : Tables()) {
    for (const std::vector<float>& row : {x, equal}) {
      const std::vector<float> z = layer.Run(*loops, 1, row);
      for (int64_t u = 0; u < 9; ++u) {
        double sum = layer.bias[static_cast<size_t>(u)];
        for (int64_t i = 0; i < 64; ++i) sum += row[static_cast<size_t>(i)] * layer.Weight(u, i);
        EXPECT_NEAR(z[static_cast<size_t>(u)], sum, std::abs(sum) * 1e-6 + 1e-3) << loops->name;
      }
    }
  }
}

// A weight's scale times a row's step is beyond floats, and what they are multiplied with is 0.
TEST(Int8Dense, LargeScalesOfNothingAreNothing) {
  Layer layer(5, 2, 1);
  layer.weight.assign(layer.weight.size(), 0);
  for (size_t u = 0; u < 5; ++u) layer.weight[2 * u] = 127;
  layer.scales.assign(5, 1e38f / 127);
  SumInt8Weights(layer.weight.data(), 5, 2, layer.sums.data());
  for (const Int8Loops* loops : Tables())
    EXPECT_EQ(layer.Run(*loops, 1, {0.0f, 1e38f}), layer.bias) << loops->name;
}

TEST(Int8Dense, RowsWithoutARangeGiveTheBiasAndOthersEndAllTheSame) {
  const Layer layer(6, 70, 4);
  constexpr float kLargest = std::numeric_limits<float>::max();
  for (const Int8Loops* loops : Tables()) {
    for (const float value : {0.0f, -0.0f, 1e-37f, 1e-45f})
      EXPECT_EQ(layer.Run(*loops, 1, std::vector<float>(70, value)), layer.bias) << value;
    // The largest range that there is.
    std::vector<float> x(70, 0.0f);
    x[0] = kLargest;
    x[1] = -kLargest;
    for (const float value : layer.Run(*loops, 1, x)) EXPECT_FALSE(std::isnan(value));
    for (const float value : {NAN, -NAN, HUGE_VALF, -HUGE_VALF}) {
      x[2] = value;
      layer.Run(*loops, 1, x);  // any numbers
    }
  }
}

}  // namespace
}  // namespace tidepool::cpu
