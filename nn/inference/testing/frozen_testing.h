// What tests of frozen networks have in common: they are skipped where no engine is linked, and compare with the reference's
// kernels.
#ifndef TIDEPOOL_NN_INFERENCE_TESTING_FROZEN_TESTING_H_
#define TIDEPOOL_NN_INFERENCE_TESTING_FROZEN_TESTING_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

class FrozenTest : public testing::Test {
 protected:
  void SetUp() override {
    if (LinkedFrozenEngine() == nullptr) GTEST_SKIP() << "no engine is linked";
    if (!LinkedFrozenEngine()->WhyNotHere().empty())
      GTEST_SKIP() << LinkedFrozenEngine()->WhyNotHere();
  }
};

// [batch] + input, from -1 to 1.
inline NDArray RandomBatch(int64_t batch, const Shape& input, uint64_t seed) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), input.span().begin(), input.span().end());
  return RandomUniform(Shape(dims), -1, 1, seed, 99, Place::Heap());
}

inline std::vector<float> ByReference(const Network& network, const NDArray& x) {
  const ScopedProvider reference("reference");
  return network.Forward(x).ToVector<float>();
}

// The largest difference, of the largest value; NaN is infinitely far.
inline double RelativeError(const std::vector<float>& found, const std::vector<float>& expected) {
  EXPECT_EQ(found.size(), expected.size());
  double error = 0, largest = 1e-3;
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i])) return HUGE_VAL;
    error = std::max<double>(error, std::abs(found[i] - expected[i]));
    largest = std::max<double>(largest, std::abs(expected[i]));
  }
  return error / largest;
}

// Everything at first is zeros or ones where it is added, shifted or scaled, which would hide what is lost.
inline void Randomise(Network& network, uint64_t seed) {
  for (const NamedParameter& parameter : network.named_parameters()) {
    NDArray value = parameter.value;
    if (value.rank() != 1) continue;
    const bool is_positive =
        parameter.name.ends_with("variance") || parameter.name.ends_with("scale");
    CopyInto(RandomUniform(value.shape(), is_positive ? 0.5 : -0.5, is_positive ? 2 : 0.5, seed++,
                           7, Place::Heap()),
             value);
  }
}

// The message of a refusal that is kUnimplemented.
inline std::string WhyNot(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented) << error.what();
    return error.what();
  }
  return "no error";
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_TESTING_FROZEN_TESTING_H_
