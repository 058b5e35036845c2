// What segments that are computed again read and write beside what they return.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/host_view.h"
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

// Such a tape records nothing of what others call, and does again what segments call.
TEST(TapeSegment, RunsAgainOnATapeThatRecordsNoMore) {
  const auto sine = [](Inputs in) { return Arrays{Sin(in[0])}; };
  for (const bool is_inside : {false, true}) {
    const NDArray x = Of(2);
    GradientTape outer;
    outer.Watch(x);
    GradientTape tape;
    tape.Watch(x);
    const NDArray y = Sum(Recomputed(sine, {&x, 1})[0]);
    tape.Stop();
    if (!is_inside) outer.Stop();
    tape.Backward({&y, 1}, {}, /*keep=*/true);
    const std::vector<double> first = tape.Gradient(x).ToVector<double>();
    EXPECT_THAT(first, Each(testing::DoubleEq(std::cos(2.0))));
    tape.Backward(y);
    EXPECT_EQ(tape.Gradient(x).ToVector<double>(), first);
    EXPECT_EQ((x * 1.0).ToVector<double>(), (std::vector<double>{2, 2, 2}));
  }
}

// As an operator to which nothing watched flows, by its inputs nor by what it captures.
TEST(TapeSegment, IsKeptOnlyWhereSomethingWatchedFlowsToIt) {
  const NDArray x = Of(2), weight = Of(3), constant = Of(5);
  GradientTape tape;
  tape.Watch(weight);
  const NDArray of_constant =
      Recomputed([](Inputs in) { return Arrays{in[0] * in[0]}; }, {&x, 1})[0];
  EXPECT_EQ(tape.calls(), 0);
  const NDArray beside = Recomputed(
      [&](Inputs in) {
        const NoGradientScope constants;
        return Arrays{in[0] * weight};
      },
      {&x, 1})[0];
  EXPECT_EQ(tape.calls(), 0);
  const NDArray captured =
      Recomputed([&](Inputs in) { return Arrays{in[0] * weight}; }, {&x, 1})[0];
  EXPECT_EQ(tape.calls(), 1);
  const NDArray same = Recomputed([&](Inputs) { return Arrays{weight}; }, {&x, 1})[0];
  EXPECT_EQ(tape.calls(), 2);
  tape.Backward(Sum(captured + of_constant * constant + beside + same));
  EXPECT_THAT(tape.Gradient(weight).ToVector<double>(), Each(testing::DoubleEq(3)));
}

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
  EXPECT_THAT(MessageOf([&] {
                Recomputed(in_place, {&h, 1});
              }),
              HasSubstr("Op [scale_shift] in a segment overwrites f64 [3]"));
  EXPECT_THAT(h.ToVector<double>(), Each(2));
  const auto captured = [&](Inputs in) {
    h += in[0];
    return Arrays{Square(in[0])};
  };
  EXPECT_THAT(MessageOf([&] {
                Recomputed(captured, {&x, 1});
              }),
              HasSubstr("Op [add] in a segment overwrites f64 [3]"));
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
              AllOf(HasSubstr("Op [segment] kept its input 1 (f64 [3]"),
                    HasSubstr("and Op [scale_shift] overwrote it")));
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
                AllOf(HasSubstr("Op [multiply] in a segment read f64 [3]"),
                      HasSubstr("and Op [scale_shift] overwrote it")));
  }
}

// Of values that no operator made the first write by one is a write like others.
TEST(TapeSegment, SaysWhoOverwroteWhatNoOperatorHadMade) {
  const auto make = {
      +[] {
        return FromValues(std::vector<double>{1, 2, 3}, {3});
      },
      +[] { return Linspace(1, 3, 3, DType::kFloat64); },
      +[] { return Arange(1, 4, 1, DType::kFloat64); },
      +[] {
        NDArray filled({3}, DType::kFloat64);
        for (double& element : HostView<double>(filled)) element = 1;
        return filled;
      },
  };
  for (NDArray (*const made)() : make) {
    for (const bool is_input : {false, true}) {
      const NDArray x = Of(2);
      NDArray w = made();
      GradientTape tape;
      tape.Watch(x);
      const std::vector<NDArray> inputs = is_input ? Arrays{x, w} : Arrays{x};
      const Arrays z = Recomputed(
          [captured = is_input ? NDArray() : w](Inputs in) {
            return Arrays{Square(in[0]) * (captured.is_defined() ? captured : in[1])};
          },
          inputs);
      w(0) = 5;
      EXPECT_THAT(MessageOf([&] { tape.Backward(Sum(z[0])); }),
                  HasSubstr("and Op [fill] overwrote it"));
    }
    const NDArray x = Of(2);
    NDArray w = made();
    GradientTape tape;
    tape.Watch(x);
    EXPECT_THAT(MessageOf([&] {
                  Recomputed(
                      [&](Inputs in) {
                        w += 1.0;
                        return Arrays{in[0] * w};
                      },
                      {&x, 1});
                }),
                HasSubstr("Op [multiply] in a segment reads f64 [3], which Op [scale_shift] in the "
                          "segment overwrites"));
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

TEST(TapeSegment, IsLookedAtByEachTapeThatIsAround) {
  for (const bool outer_watches : {false, true}) {
    const NDArray x = Of(2), q = Of(1);
    NDArray w = Of(3);
    GradientTape outer;
    if (outer_watches) outer.Watch(q);
    GradientTape tape;
    tape.Watch(x);
    NDArray h = x * 1.0;
    EXPECT_THAT(MessageOf([&] {
                  Recomputed(
                      [&](Inputs in) {
                        h += in[0];
                        return Arrays{Square(in[0])};
                      },
                      {&x, 1});
                }),
                HasSubstr("Op [add] in a segment overwrites f64 [3]"));
    const Arrays z = Recomputed([w](Inputs in) { return Arrays{Square(in[0]) * w}; }, {&x, 1});
    w *= 3.0;
    EXPECT_THAT(MessageOf([&] { tape.Backward(Sum(z[0])); }),
                AllOf(HasSubstr("Op [multiply] in a segment read f64 [3]"),
                      HasSubstr("and Op [scale_shift] overwrote it")));
  }
}

TEST(TapeSegment, OfNestedTapesGivesGradientsOfGradients) {
  const NDArray x = Of(2);
  GradientTape outer;
  outer.Watch(x);
  NDArray first;
  {
    GradientTape tape;
    tape.Watch(x);
    const Arrays z = Recomputed([](Inputs in) { return Arrays{in[0] * in[0] * in[0]}; }, {&x, 1});
    tape.Backward(Sum(z[0]));
    first = tape.Gradient(x);
  }
  EXPECT_THAT(first.ToVector<double>(), Each(12));
  outer.Backward(Sum(first));
  EXPECT_THAT(outer.Gradient(x).ToVector<double>(), Each(12));
}

TEST(TapeSegment, SaysWhoOverwroteWhatItReadWithoutGradients) {
  for (const bool written_without : {false, true}) {
    for (const bool read_without : {false, true}) {
      const NDArray x = Of(2);
      NDArray w = Of(3);
      GradientTape tape;
      tape.Watch(x);
      const Arrays z = Recomputed(
          [w, read_without](Inputs in) {
            NDArray factor;
            if (read_without) {
              const NoGradientScope none;
              factor = w * 2.0;
            } else {
              factor = w * 2.0;
            }
            return Arrays{in[0] * factor};
          },
          {&x, 1});
      if (written_without) {
        const NoGradientScope none;
        w += Of(1);
      } else {
        w += Of(1);
      }
      EXPECT_THAT(MessageOf([&] { tape.Backward(Sum(z[0])); }),
                  AllOf(HasSubstr("Op [scale_shift] in a segment read f64 [3]"),
                        HasSubstr("and Op [add] overwrote it")));
    }
  }
}

TEST(TapeSegment, RefusesToReadWhatItOverwroteItself) {
  for (const bool without : {false, true}) {
    const NDArray x = Of(2);
    NDArray constant = Of(3);
    GradientTape tape;
    tape.Watch(x);
    NDArray known = x * 1.0;
    const auto writing_to = [&](NDArray& to) {
      return [&to, without](Inputs in) {
        if (without) {
          const NoGradientScope none;
          to += 1.0;
        } else {
          to += 1.0;
        }
        return Arrays{in[0] * to};
      };
    };
    EXPECT_THAT(MessageOf([&] {
                  Recomputed(writing_to(constant), {&x, 1});
                }),
                HasSubstr("Op [multiply] in a segment reads f64 [3], which Op [scale_shift] in the "
                          "segment overwrites"));
    EXPECT_THAT(MessageOf([&] {
                  Recomputed(writing_to(known), {&x, 1});
                }),
                HasSubstr("Op [scale_shift] in a segment overwrites f64 [3]"));
  }
}

// Planned memory is there before the segment that computes into it, and serves others behind it.
TEST(TapeSegment, MayReadWhatItHasComputedWhoeverWritesThereLater) {
  const NDArray x = Of(2), three = Of(3);
  NDArray scratch = Of(0);
  GradientTape tape;
  tape.Watch(x);
  const NDArray y = Recomputed(
      [&](Inputs in) {
        NDArray begin = scratch.Slice(0, 0, 2), end = scratch.Slice(0, 2, 3);
        CopyInto(three.Slice(0, 0, 2), begin);
        CopyInto(three.Slice(0, 2, 3), end);
        return Arrays{in[0] * scratch};
      },
      {&x, 1})[0];
  scratch += 5.0;
  tape.Backward(Sum(y));
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(), Each(3));
}

TEST(TapeSegment, HasNotComputedWhatItWroteBesideOrInBetween) {
  const NDArray x = Of(2), three = Of(3);
  for (const int64_t step : {1, 2}) {
    NDArray scratch = Of(0);
    GradientTape tape;
    tape.Watch(x);
    EXPECT_THAT(MessageOf([&] {
                  Recomputed(
                      [&](Inputs in) {
                        NDArray part = scratch.Slice(0, 0, step + 1, step);
                        CopyInto(three.Slice(0, 0, part.shape()[0]), part);
                        return Arrays{in[0] * scratch};
                      },
                      {&x, 1});
                }),
                HasSubstr("in a segment reads f64 [3], which Op [copy] in the segment overwrites"))
        << step;
  }
}

TEST(TapeSegment, MovesItsStateOnWithoutGradients) {
  const NDArray x = Of(2);
  NDArray average = Of(1);
  GradientTape tape;
  tape.Watch(x);
  const auto segment = [average](Inputs in) mutable {
    {
      const NoGradientScope none;
      const NDArray next = average * 0.5 + in[0] * 0.5;
      CopyInto(next, average);
    }
    NDArray own = FromValues(std::vector<double>{1, 1, 1}, {3});
    own += 1.0;
    return Arrays{in[0] * own};
  };
  const NDArray first = Recomputed(segment, {&x, 1})[0], second = Recomputed(segment, {&x, 1})[0];
  tape.Backward(Sum(first + second));
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(), Each(4));
}

TEST(TapeSegment, TapeThatEndsWithinAScopeWithoutGradientsIsNotAskedAgain) {
  const NDArray x = Of(2);
  auto tape = std::make_unique<GradientTape>();
  tape->Watch(x);
  Recomputed([](Inputs in) { return Arrays{Square(in[0])}; }, {&x, 1});
  {
    const NoGradientScope none;
    {
      const NoGradientScope inner;
      tape.reset();
      EXPECT_EQ(CallRecorder::Current(), nullptr);
    }
    EXPECT_EQ(CallRecorder::Current(), nullptr);
    NDArray y = Of(1);
    y += 1.0;
    EXPECT_THAT(y.ToVector<double>(), Each(2));
  }
  EXPECT_EQ(CallRecorder::Current(), nullptr);
}

}  // namespace
}  // namespace tidepool
