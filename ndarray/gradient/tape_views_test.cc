// Views whose elements have several names, or lie between those of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Arrays = std::vector<NDArray>;
using Inputs = absl::Span<const NDArray>;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

NDArray Counted(const Shape& shape) {
  return Arange(1, static_cast<double>(shape.NumElements() + 1), 1, DType::kFloat64).Reshape(shape);
}

NDArray Windows(const NDArray& x, int64_t count, int64_t length) {
  return NDArray::FromStrides(x.buffer(), 0, {count, length}, {1, 1}, x.dtype());
}

TEST(TapeViews, SegmentsMayReturnBroadcastViews) {
  const NDArray x = Counted({3}), weights = Counted({3});
  const auto segment = [](Inputs in) {
    return Arrays{Sum(in[0] * in[0], {}, true).BroadcastTo({3})};
  };
  GradientTape tape;
  tape.Watch(x);
  tape.Backward(Sum(Recomputed(segment, {&x, 1})[0] * weights));
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(), ElementsAre(12, 24, 36));
}

TEST(TapeViews, FunctionsMayReturnBroadcastViews) {
  const NDArray x = Counted({3});
  GradientTape tape;
  tape.Watch(x);
  NDArray both, z;
  {
    const NoGradientScope none;
    both = Counted({4});
    both(0) = Mean(x);
    z = both.Slice(0, 0, 1).BroadcastTo({4});
  }
  NDArray seen;
  SetGradient("mean", {&x, 1}, {&z, 1}, [&](Inputs dz) {
    seen = dz[0].Dup();
    return Arrays{(Sum(dz[0], {}, true) / 3.0).BroadcastTo({3}).Dup()};
  });
  // What lies beside it in the buffer has a gradient too, which is nobody's.
  tape.Backward(Sum(z * z) + Sum(both.Slice(0, 1, 4)));
  EXPECT_THAT(seen.ToVector<double>(), Each(4));
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(), Each(testing::DoubleEq(16.0 / 3)));
}

TEST(TapeViews, FunctionsMayNotReturnWindows) {
  const NDArray x = Counted({4});
  GradientTape tape;
  tape.Watch(x);
  const NDArray z = Windows(Counted({4}), 3, 2);
  EXPECT_THAT(MessageOf([&] {
                SetGradient("windows", {&x, 1}, {&z, 1}, [](Inputs dz) { return Arrays{dz[0]}; });
              }),
              HasSubstr("Op [windows]: found an output, f64 [3, 2], whose strides name elements "
                        "more than once"));
}

TEST(TapeViews, GradientsOfWindowsAreAddedUp) {
  const NDArray x = Counted({5}), weights = Counted({3, 3});
  GradientTape tape;
  tape.Watch(x);
  const NDArray y = x * 2.0;
  tape.Backward(Sum(Windows(x, 3, 3) * weights) + Sum(y) + Sum(Square(Windows(y, 4, 2))));
  // Of the squares 8 x for each window that has the element.
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(),
              ElementsAre(1 + 2 + 8, 6 + 2 + 32, 15 + 2 + 48, 14 + 2 + 64, 9 + 2 + 40));
}

TEST(TapeViews, WritesBesideWhatNoOperatorHadMadeDoNotMatter) {
  const NDArray x = Counted({2});
  NDArray w = Counted({2, 2});
  GradientTape tape;
  tape.Watch(x);
  const NDArray loss = Sum(x * w(0));
  w(1) = 7.0;
  tape.Backward(loss);
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(), ElementsAre(1, 2));
}

TEST(TapeViews, TellWhoWasTheFirstToOverwriteAnArray) {
  const NDArray x = Counted({2});
  NDArray w = Counted({2});
  GradientTape tape;
  tape.Watch(x);
  const NDArray loss = Sum(x * w);
  w += 1.0;
  EXPECT_THAT(MessageOf([&] { tape.Backward(loss); }), HasSubstr("Op [scale_shift] overwrote it"));
}

}  // namespace
}  // namespace tidepool
