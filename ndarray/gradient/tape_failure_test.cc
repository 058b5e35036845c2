// A tape whose allocations are refused, one after the other: the error reaches the caller, and the tape may be used again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

using Arrays = std::vector<NDArray>;

TEST(TapeFailure, SegmentsPassRefusedAllocationsOn) {
  const NDArray x = Full({3}, 2, DType::kFloat64), b = Full({3}, 3, DType::kFloat64);
  const auto segment = [&](absl::Span<const NDArray> in) {
    NDArray h = in[0] * b;
    for (int i = 0; i < 20; ++i) h = h + b;  // a table of what was seen grows
    return Arrays{h * in[0]};
  };
  bool through = false;
  int refused = 0;
  for (int64_t nth = 0; !through; ++nth) {
    GradientTape tape;
    tape.Watch(x);
    until_fault = nth;
    through = Try([&] { tape.Backward(Sum(Recomputed(segment, {&x, 1})[0])); });
    if (through) {
      EXPECT_THAT(tape.Gradient(x).ToVector<double>(), testing::Each(72));
      break;
    }
    ++refused;
    tape.Restart();
    tape.Watch(x);
    tape.Backward(Sum(Recomputed(segment, {&x, 1})[0]));
    EXPECT_THAT(tape.Gradient(x).ToVector<double>(), testing::Each(72));
  }
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace tidepool
