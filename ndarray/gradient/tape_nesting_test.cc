// Tapes within tapes, and what is called while one runs its gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Arrays = std::vector<NDArray>;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

NDArray Of(double value, const Shape& shape = {3}) { return Full(shape, value, DType::kFloat64); }

// The n-th derivative of `function` at `x`, by a tape within a tape.
NDArray Derivative(int n, const NDArray& x,
                   const std::function<NDArray(const NDArray&)>& function) {
  if (n == 0) return function(x);
  GradientTape tape;
  tape.Watch(x);
  const NDArray y = Derivative(n - 1, x, function);
  tape.Backward(y);
  return tape.Gradient(x);
}

TEST(TapeNesting, DerivativesOfAnyOrder) {
  const NDArray x = Of(0.3, {1});
  for (int n = 1; n <= 5; ++n) {
    EXPECT_NEAR(Derivative(n, x, [](const NDArray& at) { return Exp(at * 2.0); }).Item<double>(),
                std::pow(2, n) * std::exp(0.6), 1e-9)
        << n;
    EXPECT_NEAR(Derivative(n, x, [](const NDArray& at) { return Sin(at); }).Item<double>(),
                std::sin(0.3 + n * std::acos(0.0)), 1e-12)
        << n;
  }
  EXPECT_NEAR(Derivative(3, x, [](const NDArray& at) { return Square(Square(at)); }).Item<double>(),
              24 * 0.3, 1e-12);
}

TEST(TapeNesting, MemoryThatIsHandedInIsRecordedByTheTapeAround) {
  for (const GradientWrite write : {GradientWrite::kReplace, GradientWrite::kAdd}) {
    const NDArray x = Of(0.5);
    NDArray dx = Of(0);
    GradientTape outer;
    outer.Watch(x);
    {
      GradientTape inner;
      inner.Watch(x, dx, write);
      inner.Backward(Sum(x * x * x));
    }
    outer.Backward(Sum(Square(dx)));  // of 9 x^4
    EXPECT_THAT(outer.Gradient(x).ToVector<double>(), ElementsAre(4.5, 4.5, 4.5));
  }
}

Arrays Twice(NDArray& z, const NDArray& x) {
  const NoGradientScope none;
  z = x * 2.0;
  return {z};
}

TEST(TapeNesting, NothingEndsATapeFromItsOwnBackward) {
  const NDArray x = Of(1);
  GradientTape tape;
  for (const auto& [call, expected] : std::vector<std::pair<std::function<void()>, std::string>>{
           {[&] { tape.Stop(); }, "Stop while Backward runs"},
           {[&] { tape.Clear(); }, "Clear while Backward runs"},
           {[&] { tape.Restart(); }, "Restart while Backward runs"}}) {
    tape.Restart();
    tape.Watch(x);
    NDArray z;
    Twice(z, x);
    std::string message;
    SetGradient("mine", {&x, 1}, {&z, 1}, [&](absl::Span<const NDArray> dz) {
      message = MessageOf(call);
      return Arrays{dz[0] * 2.0};
    });
    tape.Backward(Sum(z));
    EXPECT_THAT(message, HasSubstr(expected));
    EXPECT_THAT(tape.Gradient(x).ToVector<double>(), ElementsAre(2, 2, 2));
    EXPECT_FALSE(tape.is_recording());
  }
}

TEST(TapeNesting, NothingEndsATapeFromItsOwnSegment) {
  const NDArray x = Of(1);
  GradientTape outer, tape;
  for (GradientTape* const one : {&outer, &tape}) {
    for (const auto& [call, expected] : std::vector<std::pair<std::function<void()>, std::string>>{
             {[&] { one->Stop(); }, "Stop within a segment"},
             {[&] { one->Clear(); }, "Clear within a segment"},
             {[&] { one->Restart(); }, "Restart within a segment"},
             {[&] { one->Backward(x); }, "Backward within a segment"}}) {
      outer.Restart();
      tape.Restart();
      outer.Watch(x);
      tape.Watch(x);
      std::string message;
      const NDArray z = Recomputed(
          [&](absl::Span<const NDArray> in) {
            if (message.empty()) message = MessageOf(call);
            return Arrays{in[0] * 2.0};
          },
          {&x, 1})[0];
      EXPECT_THAT(message, HasSubstr(expected));
      tape.Backward(Sum(z));
      EXPECT_THAT(tape.Gradient(x).ToVector<double>(), ElementsAre(2, 2, 2));
    }
  }
  EXPECT_DEATH(
      {
        auto gone = std::make_unique<GradientTape>();
        Recomputed(
            [&](absl::Span<const NDArray>) {
              gone.reset();
              return Arrays{};
            },
            {&x, 1});
      },
      "destroyed within its Backward");
}

// Of other tapes than the segment's: those that begin in it and stay, and those that are not asked about it.
TEST(TapeNesting, TapesMayBeginAndEndInASegment) {
  const NDArray x = Of(1);
  for (const bool in_scope : {false, true}) {
    for (const bool ends_first : {false, true}) {
      GradientTape outer;
      outer.Watch(x);
      auto scope = std::make_unique<NoGradientScope>();
      auto tape = std::make_unique<GradientTape>();
      std::unique_ptr<GradientTape> stays;
      tape->Watch(x);
      const auto segment = [&](absl::Span<const NDArray> in) {
        if (stays == nullptr) {
          std::unique_ptr<NoGradientScope> within;
          if (in_scope) within = std::make_unique<NoGradientScope>();
          outer.Restart();
          outer.Watch(x);
          stays = std::make_unique<GradientTape>();
          stays->Watch(x);
        }
        return Arrays{in[0] * 2.0};
      };
      const NDArray z = Recomputed(segment, {&x, 1})[0];
      NDArray y = Square(x);
      if (ends_first) tape.reset();
      stays->Backward(Sum(y));
      EXPECT_THAT(stays->Gradient(x).ToVector<double>(), ElementsAre(2, 2, 2));
      if (!ends_first) {
        tape->Backward(Sum(z));
        EXPECT_THAT(tape->Gradient(x).ToVector<double>(), ElementsAre(2, 2, 2));
      }
      stays.reset();
      tape.reset();
      scope.reset();
      outer.Backward(Sum(y));
      EXPECT_THAT(outer.Gradient(x).ToVector<double>(), ElementsAre(2, 2, 2));
      EXPECT_EQ(CallRecorder::Current(), nullptr);
    }
  }
}

// A gradient function's own scopes and tapes end where they began: outside of the tape that calls it.
TEST(TapeNesting, GradientFunctionsMayHaveScopesAndTapes) {
  const NDArray x = Of(3);
  GradientTape tape;
  tape.Watch(x);
  const NDArray before = x * 1.0;
  NDArray z;
  Twice(z, before);
  int64_t calls = -1;
  SetGradient("mine", {&before, 1}, {&z, 1}, [&](absl::Span<const NDArray> dz) {
    { const NoGradientScope none; }
    const NDArray y = Of(5);
    GradientTape own;
    own.Watch(y);
    own.Backward(Sum(Square(y)));
    const NDArray zeros = before * 0.0;  // of what the tape knows
    calls = tape.calls();
    return Arrays{dz[0] * own.Gradient(y) + zeros};
  });
  tape.Backward(Sum(z));
  EXPECT_EQ(calls, 3);  // no more than were recorded before
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(), ElementsAre(10, 10, 10));
}

// One that was made in a gradient function and outlives it is the thread's innermost from there on.
TEST(TapeNesting, TapesMadeInAGradientFunctionMayOutliveIt) {
  const NDArray x = Of(3), y = Of(5);
  std::unique_ptr<GradientTape> left;
  {
    GradientTape tape;
    for (int i = 0; i < 2; ++i) {
      tape.Restart();
      tape.Watch(x);
      NDArray z;
      Twice(z, x);
      SetGradient("mine", {&x, 1}, {&z, 1}, [&](absl::Span<const NDArray> dz) {
        if (left == nullptr) left = std::make_unique<GradientTape>();
        return Arrays{dz[0] * 2.0};
      });
      tape.Backward(Sum(z));
      EXPECT_THAT(tape.Gradient(x).ToVector<double>(), ElementsAre(2, 2, 2));
    }
  }
  left->Watch(y);
  left->Backward(Sum(Square(y)));
  EXPECT_THAT(left->Gradient(y).ToVector<double>(), ElementsAre(10, 10, 10));
}

TEST(TapeNesting, RestartOnAnotherThreadSaysSo) {
  GradientTape tape;
  std::string message;
  std::thread([&] { message = MessageOf([&] { tape.Restart(); }); }).join();
  EXPECT_THAT(message, HasSubstr("Restart on another thread"));
}

TEST(TapeNesting, EachWatchedArrayHasAGradientOfItsOwn) {
  const NDArray x = Of(1), y = Of(1), z = Of(1);
  NDArray flat = Of(0, {9}), both = flat.Slice(0, 1, 4);
  GradientTape tape;
  tape.Watch(x, flat.Slice(0, 3, 6));
  tape.Watch(y, flat.Slice(0, 6, 9));
  EXPECT_THAT(MessageOf([&] { tape.Watch(z, both); }),
              HasSubstr("shares memory with that of another watched array"));
  EXPECT_THAT(MessageOf([&] { tape.Watch(z, flat.Slice(0, 6, 9)); }),
              HasSubstr("shares memory with"));
  tape.Watch(z, flat.Slice(0, 0, 3));
  tape.Backward(Sum(x + y * 2.0 + z * 3.0));
  EXPECT_THAT(flat.ToVector<double>(), ElementsAre(3, 3, 3, 1, 1, 1, 2, 2, 2));
}

}  // namespace
}  // namespace tidepool
