// What segments that are computed again read and write beside what they return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using testing::AllOf;
using testing::Each;
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

NDArray Of(double value) { return Full({3}, value, DType::kFloat64); }

TEST(TapeSegment, RefusesToOverwriteWhatTheTapeKnows) {
  const NDArray x = Of(2);
  GradientTape tape;
  tape.Watch(x);
  NDArray h = x * 1.0;
  const auto in_place = [](Inputs in) {
    NDArray a = in[0];
    a *= 2.0;
    return Arrays{Square(a)};
  };
  EXPECT_THAT(MessageOf([&] { Recomputed(in_place, {&h, 1}); }),
              HasSubstr("Op [scale_shift] in a segment overwrites f64 [3]"));
  EXPECT_THAT(h.ToVector<double>(), Each(2));
  const auto captured = [&](Inputs in) {
    h += in[0];
    return Arrays{Square(in[0])};
  };
  EXPECT_THAT(MessageOf([&] { Recomputed(captured, {&x, 1}); }), HasSubstr("Op [add] in a segment overwrites f64 [3]"));
}

TEST(TapeSegment, SaysWhoOverwroteAnInputItIsComputedFromAgain) {
  const NDArray x = Of(2);
  NDArray constant = Of(2);
  GradientTape tape;
  tape.Watch(x);
  const NDArray inputs[] = {x, constant};
  const Arrays z = Recomputed(
      [](Inputs in) {
        NDArray a = in[1];
        a *= 2.0;
        return Arrays{in[0] * a};
      },
      inputs);
  EXPECT_THAT(MessageOf([&] { tape.Backward(Sum(z[0])); }),
              AllOf(HasSubstr("Op [segment] kept its input 1 (f64 [3]"), HasSubstr("and Op [scale_shift] overwrote it")));
}

TEST(TapeSegment, SaysWhoOverwroteWhatItCaptured) {
  for (const bool is_watched : {false, true}) {
    const NDArray x = Of(2);
    NDArray w = Of(3);
    GradientTape tape;
    tape.Watch(x);
    if (is_watched) tape.Watch(w);
    const Arrays z = Recomputed([w](Inputs in) { return Arrays{Square(in[0]) * w}; }, {&x, 1});
    w *= 3.0;
    EXPECT_THAT(MessageOf([&] { tape.Backward(Sum(z[0])); }),
                AllOf(HasSubstr("Op [multiply] in a segment read f64 [3]"), HasSubstr("and Op [scale_shift] overwrote it")));
  }
}

TEST(TapeSegment, MayWriteToItsOwnAndBesideWhatItReads) {
  const NDArray x = Of(2);
  NDArray both = Full({6}, 1, DType::kFloat64), average = both.Slice(0, 3, 6);
  const NDArray w = both.Slice(0, 0, 3);
  GradientTape tape;
  tape.Watch(x);
  tape.Watch(w);
  const Arrays z = Recomputed(
      [w, average](Inputs in) mutable {
        {
          const NoGradientScope none;
          average += 1.0;
        }
        NDArray h = in[0] * w;
        h *= 2.0;
        return Arrays{Square(h)};
      },
      {&x, 1});
  EXPECT_EQ(tape.calls(), 1);  // nothing of its inside, behind the scope neither
  average += 1.0;
  tape.Backward(Sum(z[0]));
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(), Each(16));
  EXPECT_THAT(tape.Gradient(w).ToVector<double>(), Each(32));
}

}  // namespace
}  // namespace tidepool
