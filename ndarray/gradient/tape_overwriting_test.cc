// Gradients that lie over what they were taken of: the same bits, and as much memory less.
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using Function = std::function<NDArray(const NDArray&)>;

Function Pooled(int64_t kernel, int64_t stride, int64_t pad = 0) {
  Pool2dAttributes a;
  a.kernel_height = a.kernel_width = kernel;
  a.stride_height = a.stride_width = stride;
  a.pad_top = a.pad_left = pad;
  return [a](const NDArray& x) { return MaxPool2d(x, a); };
}

struct Found {
  std::vector<float> gradient;
  bool is_over = false;
};

// Of the sum of squares of function(h), where h is `held` by somebody else, or by nobody: its gradient, and whether that lies over h.
Found GradientOf(const Function& function, bool held) {
  Found found;
  const NDArray x = RandomNormal({2, 9, 8, 4}, 0, 1, 1);
  GradientTape tape;
  tape.Watch(x);
  NDArray h;
  {
    const NoGradientScope constants;
    h = x * 3.0;
  }
  const NDArray kept = held ? h : NDArray();
  SetGradient("probe", {&x, 1}, {&h, 1},
              [&found, at = h.raw_data()](absl::Span<const NDArray> gradients) {
                found.is_over = gradients[0].raw_data() == at;
                found.gradient = gradients[0].ToVector<float>();
                return std::vector<NDArray>{gradients[0]};
              });
  const NDArray loss = Sum(Square(function(h)));
  h = NDArray();
  tape.Backward(loss);
  return found;
}

TEST(TapeOverwriting, GradientsLieOverWhatTheyWereTakenOf) {
  const NDArray ones = Ones({4}), zeros = Zeros({4});
  struct Case {
    const char* name;
    Function function;
    bool is_over;
  };
  const Case cases[] = {
      {"max pooling", Pooled(2, 2), true},
      {"with parts in no window", Pooled(3, 3), true},
      {"windows that overlap", Pooled(3, 2), false},
      {"windows with padding", Pooled(2, 2, 1), false},
      {"batch", [&](const NDArray& x) { return BatchNorm(x, ones, zeros).output; }, true},
      {"layer", [&](const NDArray& x) { return LayerNorm(x, ones, zeros).output; }, true},
      {"group", [&](const NDArray& x) { return GroupNorm(x, ones, zeros, {.groups = 2}).output; },
       true},
      {"root of the mean square", [&](const NDArray& x) { return RmsNorm(x, ones).output; }, true},
  };
  for (const Case& c : cases) {
    const Found apart = GradientOf(c.function, true), found = GradientOf(c.function, false);
    EXPECT_FALSE(apart.is_over) << c.name;
    EXPECT_EQ(found.is_over, c.is_over) << c.name;
    EXPECT_EQ(found.gradient, apart.gradient) << c.name;
  }
}

// What a convolution keeps for its ReLU, which the pooling's gradient goes through, is in nobody's way; where something else read
// that too, it is needed.
TEST(TapeOverwriting, BehindAReluWhatIsKeptForItGoes) {
  const NDArray filter = RandomNormal({4, 3, 3, 4}, 0, 1, 2),
                x = RandomNormal({2, 9, 8, 4}, 0, 1, 1);
  const auto both = [](const Function& a, const Function& b) {
    return [a, b](const NDArray& h) {
      const NDArray first = a(h), second = b(h);
      return Sum(Square(first)) + Sum(Square(second));
    };
  };
  const Function sum = [](const NDArray& h) { return Sum(h); };
  const Function cases[] = {
      [](const NDArray& h) { return Sum(Square(Pooled(2, 2)(h))); },
      both(Pooled(2, 2), Pooled(3, 3)),
      both(Pooled(2, 2), sum),
      both(sum, Pooled(2, 2)),
  };
  for (size_t i = 0; i < std::size(cases); ++i) {
    std::vector<float> expected;
    int64_t made[2];  // arrays by Backward()
    for (const bool held : {true, false}) {
      GradientTape tape;
      tape.Watch(filter);
      NDArray h = Conv2d(x, filter, nullptr, {.relu = true}), kept = held ? h : NDArray();
      const NDArray loss = cases[i](h);
      h = NDArray();
      const int64_t before = MemoryTracker::Global().system_allocations();
      tape.Backward(loss);
      made[held] = MemoryTracker::Global().system_allocations() - before;
      const std::vector<float> found = tape.Gradient(filter).ToVector<float>();
      if (held) {
        expected = found;
      } else {
        EXPECT_EQ(found, expected) << i;
        EXPECT_EQ(made[true] - made[false], i == 0 ? 1 : 0) << i;
      }
    }
  }
}

// As docs/gradients.md has them; in a NoGradientScope the gradients are those of torch.no_grad().
TEST(TapeOverwriting, WritesInANoGradientScopeChangeValuesAlone) {
  using Write = std::function<void(NDArray & x, NDArray & h, NDArray & constant)>;
  struct Case {
    const char* name;
    Write write;
    std::vector<float> recorded, not_recorded;  // gradients of x
  };
  const NDArray ones = Ones({2});
  // Of the sum of h, of x (1 of each gradient) and of a constant, with h = 3 x.
  const Case cases[] = {
      {"no write", [](NDArray&, NDArray&, NDArray&) {}, {4, 4}, {4, 4}},
      {"sum", [](NDArray&, NDArray& h, NDArray&) { h += 1.0f; }, {4, 4}, {4, 4}},
      {"product", [](NDArray&, NDArray& h, NDArray&) { h *= 5.0f; }, {16, 16}, {4, 4}},
      {"number into a part", [](NDArray&, NDArray& h, NDArray&) { h(0) = 7.0f; }, {1, 4}, {4, 4}},
      {"constant", [&](NDArray&, NDArray& h, NDArray&) { h(All()) = ones; }, {1, 1}, {4, 4}},
      {"what is watched", [](NDArray& x, NDArray&, NDArray&) { x *= 2.0f; }, {5, 5}, {4, 4}},
      {"into a constant", [](NDArray& x, NDArray&, NDArray& c) { c += x; }, {5, 5}, {4, 4}},
  };
  for (const Case& c : cases) {
    float sums[2];
    for (const bool is_recorded : {true, false}) {
      NDArray x = Full({2}, 2.0f);
      GradientTape tape;
      tape.Watch(x);
      NDArray h = x * 3.0f, constant = Ones({2});
      if (is_recorded) {
        c.write(x, h, constant);
      } else {
        const NoGradientScope none;
        c.write(x, h, constant);
      }
      const NDArray sum = Sum(h) + Sum(x) + Sum(constant);
      sums[is_recorded] = sum.Item<float>();
      tape.Backward(sum);
      EXPECT_EQ(tape.Gradient(x).ToVector<float>(), is_recorded ? c.recorded : c.not_recorded)
          << c.name << ", recorded: " << is_recorded;
    }
    EXPECT_EQ(sums[0], sums[1]) << c.name;
  }
}

// Calls behind the write have gradients at what they read.
TEST(TapeOverwriting, CallsBehindAWriteThatIsNotRecordedReadTheNewValues) {
  NDArray x = Full({2}, 2.0f);
  GradientTape tape;
  tape.Watch(x);
  NDArray h = x * 3.0f;
  {
    const NoGradientScope none;
    h *= 5.0f;
    x += 1.0f;
  }
  tape.Backward(Sum(Square(h)) + Sum(Square(x)));
  EXPECT_EQ(tape.Gradient(x).ToVector<float>(), (std::vector<float>{186, 186}));  // 2 30 3 + 2 3
}

}  // namespace
}  // namespace tidepool
