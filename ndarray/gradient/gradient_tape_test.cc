#include "tidepool/ndarray/gradient/gradient_tape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/linalg/decompositions.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/sorting.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using GradientList = absl::Span<const NDArray>;

NDArray Values(std::vector<float> values, const Shape& shape) {
  return FromValues(absl::MakeConstSpan(values), shape, Place::Heap());
}
NDArray Random64(const Shape& shape, uint64_t seed) {
  return RandomUniform(shape, -1, 1, DType::kFloat64, seed, 0, Place::Heap());
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TEST(GradientTape, GivesGradientsOfAFunction) {
  NDArray w = Values({1, 2, 3}, {3}), x = Values({2, 0, -1}, {3});
  GradientTape tape;
  tape.Watch(w);
  NDArray loss = Sum(Square(w * x + 1.0f));  // 2 (w x + 1) x
  tape.Backward(loss);
  EXPECT_THAT(tape.Gradient(w).ToVector<float>(), ElementsAre(12, 0, 4));
  EXPECT_FALSE(tape.is_recording());
  EXPECT_EQ(tape.saved_bytes(), 0);
}

TEST(GradientTape, AddsUpWhatIsUsedTwice) {
  NDArray x = Values({3, -2}, {2});
  GradientTape tape;
  tape.Watch(x);
  const NDArray y = x * x;  // both sides are one array
  tape.Backward(Sum(y + y + x));
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(13, -7));
}

TEST(GradientTape, IsZeroWhereNothingFlows) {
  NDArray x = Values({1, 2}, {2}), unused = Values({1, 2, 3, 4}, {2, 2}),
          given = Values({5, 5, 5, 5}, {2, 2});
  GradientTape tape;
  tape.Watch(x);
  tape.Watch(unused, given);
  tape.Backward(Sum(x));
  EXPECT_THAT(given.ToVector<float>(), ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(tape.Gradient(unused).ToVector<float>(), ElementsAre(0, 0, 0, 0));
}

TEST(GradientTape, TakesSeveralOutputsAndTheirGradients) {
  NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  const NDArray outputs[] = {x * 2.0f, Square(x)},
                gradients[] = {Values({1, 10}, {2}), Values({100, 1000}, {2})};
  tape.Backward(outputs, gradients);
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(202, 4020));
  gradients[0].CheckAlive("test", "gradient");
  EXPECT_THAT(gradients[0].ToVector<float>(), ElementsAre(1, 10));  // the caller's
}

TEST(GradientTape, WritesInPlaceAreCalls) {
  NDArray x = Values({1, 2, 3, 4}, {2, 2});
  GradientTape tape;
  tape.Watch(x);
  NDArray y = Zeros({3, 2});
  y(Range(0, 2), All()) = x;
  y(2, All()) = x(0, All());
  y(0, All()) = 7;  // what x wrote there flows nowhere
  y(1, All()) += x(1, All());
  x *= 3.0f;  // gradients are of the value that was watched
  tape.Backward(Sum(y) + Sum(x));
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(4, 4, 5, 5));
}

TEST(GradientTape, ValuesThatComeOtherwiseAreConstants) {
  NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  NDArray a = x * 2.0f, b;
  {
    const NoGradientScope none;
    b = x * 100.0f;
  }
  const NDArray c = Full({2}, x.At<float>({0}));
  tape.Backward(Sum(a * b + c));
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(200, 400));
}

TEST(GradientTape, KeepsArraysComputedOnItThatAreWatched) {
  NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  NDArray h = Square(x);
  tape.Watch(h);
  tape.Backward(Sum(h * 3.0f));
  NDArray dh = tape.Gradient(h);
  EXPECT_THAT(dh.ToVector<float>(), ElementsAre(3, 3));
  dh *= 0.0f;  // nobody else's
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(6, 12));
}

TEST(GradientTape, GradientsOfTwoArraysShareNothing) {
  NDArray x = Values({1, 2}, {2}), y = Values({3, 4}, {2}), dz = Values({5, 6}, {2});
  GradientTape tape;
  tape.Watch(x);
  tape.Watch(y);
  const NDArray z = x + y;
  tape.Backward({&z, 1}, {&dz, 1});
  NDArray dx = tape.Gradient(x);
  dx *= 0.0f;
  EXPECT_THAT(tape.Gradient(y).ToVector<float>(), ElementsAre(5, 6));
  EXPECT_THAT(dz.ToVector<float>(), ElementsAre(5, 6));
}

TEST(GradientTape, SaysWhoOverwroteWhatItKept) {
  NDArray x = Values({1, 2}, {2});
  const auto backward = [&](const std::function<void(NDArray&)>& write) {
    GradientTape tape;
    tape.Watch(x);
    NDArray h = x * 2.0f;
    NDArray y = Exp(h) + Square(h);
    write(h);
    return MessageOf([&] { tape.Backward(Sum(y)); });
  };
  EXPECT_EQ(backward([](NDArray&) {}), "no error");
  EXPECT_THAT(backward([](NDArray& h) { h += 1.0f; }),
              testing::AllOf(HasSubstr("Op [square] kept its X"),
                             HasSubstr("Op [scale_shift] overwrote it")));
  EXPECT_THAT(backward([](NDArray& h) { h.mutable_data<float>()[0] = 1; }),
              testing::AllOf(HasSubstr("Op [square] kept its X"), HasSubstr("no operator")));
  EXPECT_THAT(backward([](NDArray& h) {
                const NoGradientScope none;
                h += 1.0f;
              }),
              HasSubstr("Op [scale_shift] overwrote it"));
  MemoryTracing::Enable();
  EXPECT_THAT(backward([](NDArray& h) { h += 1.0f; }),
              testing::AllOf(HasSubstr("Op [square] (called at "),
                             HasSubstr("Op [scale_shift] (called at ")));
  MemoryTracing::Disable();
}

// The version is the buffer's; a write beside what was kept is none to it.
TEST(GradientTape, WritesBesideWhatItKeptAreNoMatter) {
  NDArray x = Values({1, 2, 3, 4}, {2, 2});
  GradientTape tape;
  tape.Watch(x);
  NDArray h = x * 1.0f;
  const NDArray y = Square(h(0, All()));
  h(1, All()) = 5;
  tape.Backward(Sum(y));
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(2, 4, 0, 0));
}

TEST(GradientTape, RefusesToOverwriteWhatItsGradientNeeds) {
  NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  NDArray h = x * 2.0f;
  EXPECT_THAT(MessageOf([&] { SquareInto(h, h); }), HasSubstr("Op [square] overwrites its X"));
  EXPECT_THAT(h.ToVector<float>(), ElementsAre(2, 4));  // nothing happened
  TanhInto(h, h);                                       // its gradient is by its result
  tape.Backward(Sum(h));
  EXPECT_NEAR(tape.Gradient(x).At<float>({0}), 2 * (1 - std::pow(std::tanh(2.0), 2)), 1e-6);
}

TEST(GradientTape, OfGradients) {
  NDArray x = Random64({5}, 1);
  GradientTape outer;
  outer.Watch(x);
  NDArray dx;
  {
    GradientTape inner;
    inner.Watch(x);
    inner.Backward(Sum(x * x * x + Sin(x)));
    dx = inner.Gradient(x);
  }
  outer.Backward(Sum(dx));
  for (int64_t i = 0; i < 5; ++i) {
    const double at = x.At<double>({i});
    EXPECT_NEAR(dx.At<double>({i}), 3 * at * at + std::cos(at), 1e-12);
    EXPECT_NEAR(outer.Gradient(x).At<double>({i}), 6 * at - std::sin(at), 1e-12);
  }
}

TEST(GradientTape, FunctionsOfOnesOwn) {
  NDArray x = Values({1, 4}, {2}), y = Values({2, 2}, {2});
  const auto clipped = [](const NDArray& a, const NDArray& b) {
    NDArray z;
    {
      const NoGradientScope none;
      z = a * b;
    }
    // Straight through, whatever a is.
    SetGradient("straight", {a, b}, {z}, [](GradientList dz) {
      return std::vector<NDArray>{dz[0], NDArray()};
    });
    return z;
  };
  GradientTape tape;
  tape.Watch(x);
  tape.Watch(y);
  tape.Backward(Sum(clipped(x, y) * 3.0f));
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(3, 3));
  EXPECT_THAT(tape.Gradient(y).ToVector<float>(), ElementsAre(0, 0));

  const auto wrong = [&](std::vector<NDArray> found) {
    GradientTape second;
    second.Watch(x);
    NDArray z = x.Dup();
    SetGradient("wrong", {&x, 1}, {&z, 1}, [found](GradientList) { return found; });
    return MessageOf([&] { second.Backward(Sum(z)); });
  };
  EXPECT_THAT(wrong({}), HasSubstr("Op [wrong]: its gradient function returned 0 arrays, expected "
                                   "one for each of 1 inputs"));
  EXPECT_THAT(
      wrong({Zeros({3})}),
      HasSubstr("Op [wrong]: the gradient of input 0 is f32 [3] on host, expected f32 [2]"));
  EXPECT_THAT(wrong({Zeros({2}, DType::kFloat64)}), HasSubstr("is f64 [2]"));
}

TEST(GradientTape, ErrorsNameWhatIsInTheWay) {
  NDArray x = Values({3, 1, 2}, {3});
  EXPECT_THAT(MessageOf([&] {
                GradientTape tape;
                tape.Watch(x);
                tape.Backward(Sum(linalg::SingularValues(x.Reshape({3, 1}))));
              }),
              HasSubstr("Op [singular_values]: it has no gradient"));
  EXPECT_THAT(MessageOf([&] {
                GradientTape tape;
                tape.Watch(x);
                tape.Backward(x * 2.0f);
              }),
              HasSubstr("output 0, f32 [3], has no gradient given, expected one element"));
  EXPECT_THAT(MessageOf([&] {
                const NDArray y = Sum(x * 2.0f);
                GradientTape tape;
                tape.Watch(x);
                tape.Backward(y);
              }),
              HasSubstr("does not come from a watched array"));
  EXPECT_THAT(MessageOf([&] {
                GradientTape tape;
                tape.Watch(x);
                const NDArray y = x * 2.0f, dy = Ones({2});
                tape.Backward({&y, 1}, {&dy, 1});
              }),
              HasSubstr("the gradient of output 0 is f32 [2] on host, expected f32 [3]"));
  GradientTape tape;
  EXPECT_THAT(MessageOf([&] { tape.Watch(Zeros({2}, DType::kInt64)); }),
              HasSubstr("found i64 [2], expected floats"));
  EXPECT_THAT(MessageOf([&] { tape.Watch(x.Slice(0, 0, 1).BroadcastTo({4})); }),
              HasSubstr("whose elements repeat"));
  EXPECT_THAT(MessageOf([&] { tape.Watch(NDArray()); }), HasSubstr("undefined"));
  EXPECT_THAT(MessageOf([&] { tape.Watch(x, Zeros({4})); }),
              HasSubstr("the gradient is f32 [4] on host, expected f32 [3]"));
  EXPECT_THAT(MessageOf([&] { tape.Watch(x, x); }), HasSubstr("over X itself"));
  tape.Watch(x);
  tape.Watch(x);
  EXPECT_THAT(MessageOf([&] { tape.Watch(x.Slice(0, 0, 2)); }),
              HasSubstr("overlaps that of another watched array"));
  EXPECT_THAT(MessageOf([&] { tape.Gradient(x); }), HasSubstr("before Backward()"));
  tape.Backward(Sum(x));
  EXPECT_THAT(MessageOf([&] { tape.Gradient(x.Slice(0, 0, 2)); }), HasSubstr("is not watched"));
  EXPECT_THAT(MessageOf([&] { tape.Backward(Sum(x)); }), HasSubstr("what was recorded is gone"));
  EXPECT_THAT(MessageOf([&] { tape.Watch(x); }), HasSubstr("no longer records"));
}

TEST(GradientTape, RunsAgainWhereItKeeps) {
  NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  const NDArray y = Square(x), first = y(0), second = y(1);
  tape.Backward({&first, 1}, {}, /*keep=*/true);
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(2, 0));
  tape.Backward({&second, 1}, {}, /*keep=*/true);
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(0, 4));
  tape.Backward(first);
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(2, 0));
  EXPECT_THAT(MessageOf([&] { tape.Backward(second); }), HasSubstr("is gone"));
}

TEST(GradientTape, NoticesACycleThatEnded) {
  NDArray x = Values({1, 2}, {2});
  Workspace workspace("step");
  GradientTape tape;
  tape.Watch(x);
  NDArray y;
  {
    WorkspaceScope scope(workspace);
    y = Sum(Square(x * 2.0f)).Detach();
  }
  EXPECT_THAT(MessageOf([&] { tape.Backward(y); }),
              testing::AllOf(HasSubstr("gradient of square"), HasSubstr("workspace [step]")));
}

TEST(GradientTape, FramesEndInAnyOrder) {
  NDArray x = Values({1, 2}, {2});
  auto first = std::make_unique<GradientTape>();
  auto scope = std::make_unique<NoGradientScope>();
  auto second = std::make_unique<GradientTape>();
  first->Watch(x);
  second->Watch(x);
  const NDArray y = Square(x);
  EXPECT_EQ(second->calls(), 1);
  EXPECT_EQ(first->calls(), 0);  // the scope is between them
  scope.reset();
  const NDArray z = Square(x);
  EXPECT_EQ(second->calls(), 2);
  EXPECT_EQ(first->calls(), 1);
  first.reset();
  second->Backward(Sum(y + z));
  EXPECT_THAT(second->Gradient(x).ToVector<float>(), ElementsAre(4, 8));
  second.reset();
  EXPECT_EQ(CallRecorder::Current(), nullptr);
}

TEST(GradientTape, IsOfItsThread) {
  NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  std::string message;
  std::thread([&] {
    const NDArray y = Square(x);
    message = MessageOf([&] { tape.Backward(Sum(y)); });
  }).join();
  EXPECT_EQ(tape.calls(), 0);
  EXPECT_THAT(message, HasSubstr("on another thread"));
  tape.Backward(Sum(x));
}

TEST(GradientTape, AnOperatorThatFailsIsNotRecorded) {
  NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  const NDArray y = Square(x);
  EXPECT_NE(MessageOf([&] { MatMul(x, Zeros({3, 3})); }), "no error");
  NDArray z = Zeros({5});
  EXPECT_NE(MessageOf([&] { CopyInto(y, z); }), "no error");
  tape.Backward(Sum(y));
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(2, 4));
}

}  // namespace
}  // namespace tidepool
