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

TEST(TapeFailure, WhatWasRefusedToBeWatchedIsNot) {
  constexpr int64_t kColumns = 70;
  const NDArray x = Full({2, kColumns}, 3, DType::kFloat64);
  const NDArray gradients = Zeros({2, kColumns}, DType::kFloat64);
  bool through = false;
  int refused = 0;
  for (int64_t nth = 0; !through; ++nth) {
    GradientTape tape;
    int64_t next = 0;
    const auto watch = [&] {
      for (; next < kColumns; ++next)
        tape.Watch(x.Slice(1, next, next + 1), gradients.Slice(1, next, next + 1));
    };
    until_fault = nth;
    through = Try(watch);
    refused += through ? 0 : 1;
    watch();
    tape.Backward(Sum(x * x));
    ASSERT_THAT(gradients.ToVector<double>(), testing::Each(6)) << nth;
    NDArray again = gradients;
    FillInto(0, again);
  }
  EXPECT_GT(refused, 10);
}

}  // namespace
}  // namespace tidepool
