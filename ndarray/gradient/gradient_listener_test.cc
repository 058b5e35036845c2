// When a tape says that a gradient is final, against what it is then.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using testing::ElementsAre;

NDArray Random(const Shape& shape, uint64_t seed) {
  return RandomUniform(shape, -1, 1, DType::kFloat64, seed, 0, Place::Heap());
}

// Notes the order, and each gradient as it is when it is said to be final.
class Recording final : public GradientListener {
 public:
  explicit Recording(std::vector<NDArray> gradients) : gradients_(std::move(gradients)) {}
  void GradientIsFinal(int watched) override {
    order.push_back(watched);
    values.push_back(gradients_[static_cast<size_t>(watched)].ToVector<double>());
    if (then) then(watched);
  }
  std::vector<int> order;
  std::vector<std::vector<double>> values;
  std::function<void(int)> then;

 private:
  std::vector<NDArray> gradients_;
};

// Views of one flat array, as networks have their parameters.
struct Flat {
  explicit Flat(int parts)
      : values(Random({parts * 16}, 7)), gradients(Full({parts * 16}, 9, DType::kFloat64)) {
    for (int i = 0; i < parts; ++i) {
      w.push_back(values.Slice(0, i * 16, i * 16 + 16).Reshape({4, 4}));
      g.push_back(gradients.Slice(0, i * 16, i * 16 + 16).Reshape({4, 4}));
    }
  }
  NDArray values, gradients;
  std::vector<NDArray> w, g;
};

// Runs forward and backward, and expects each gradient to be what it is at the end when it is said to be final.
std::vector<int> OrderOf(Flat& flat, const std::function<NDArray()>& loss,
                         GradientWrite write = GradientWrite::kReplace, bool keep = false) {
  Recording recording(flat.g);
  GradientTape tape;
  tape.set_listener(&recording);
  for (size_t i = 0; i < flat.w.size(); ++i) tape.Watch(flat.w[i], flat.g[i], write);
  const NDArray total = loss();
  tape.Backward({&total, 1}, {}, keep);
  for (size_t i = 0; i < recording.order.size(); ++i) {
    EXPECT_EQ(recording.values[i],
              flat.g[static_cast<size_t>(recording.order[i])].ToVector<double>())
        << "gradient " << recording.order[i] << " changed after it was said to be final";
  }
  EXPECT_EQ(recording.order.size(), flat.w.size());
  return recording.order;
}

TEST(GradientListener, LastLayersAreFinalFirst) {
  Flat flat(3);
  const NDArray x = Random({5, 4}, 1);
  EXPECT_THAT(
      OrderOf(flat,
              [&] {
                return Sum(MatMul(Tanh(MatMul(Relu(MatMul(x, flat.w[0])), flat.w[1])), flat.w[2]));
              }),
      ElementsAre(2, 1, 0));
}

TEST(GradientListener, GradientsAreFinalWhileThePassGoesOn) {
  Flat flat(2);
  const NDArray x = Random({5, 4}, 1);
  Recording recording(flat.g);
  GradientTape tape;
  tape.set_listener(&recording);
  for (size_t i = 0; i < 2; ++i) tape.Watch(flat.w[i], flat.g[i]);
  const NDArray h = MatMul(x, flat.w[0]);
  NDArray copy;
  {
    const NoGradientScope constants;
    copy = h.Dup();
  }
  std::vector<int> by_then;
  SetGradient("probe", {&h, 1}, {&copy, 1}, [&](absl::Span<const NDArray> dh) {
    by_then = recording.order;
    return std::vector<NDArray>{dh[0]};
  });
  tape.Backward(Sum(MatMul(copy, flat.w[1])));
  EXPECT_THAT(by_then, ElementsAre(1));
  EXPECT_THAT(recording.order, ElementsAre(1, 0));
}

TEST(GradientListener, IsToldOfPartsBeforeTheirRecordsAndBehindThoseOfLaterOnes) {
  class Parts final : public GradientListener {
   public:
    void GradientIsFinal(int watched) override { events.push_back(watched); }
    void PartIsNext(int part) override { events.push_back(-part); }
    std::vector<int> events;
  };
  for (const bool in_segments : {false, true}) {
    Flat flat(3);
    Parts parts;
    GradientTape tape;
    tape.set_listener(&parts);
    for (size_t i = 0; i < 3; ++i) tape.Watch(flat.w[i], flat.g[i]);
    NDArray h = Random({5, 4}, 1);
    for (int i = 0; i < 3; ++i) {
      tape.set_part(10 * (i + 1));
      const NDArray& w = flat.w[static_cast<size_t>(i)];
      // What a segment records when it runs again is of its part, of which nobody is told a second time.
      h = in_segments ? Recomputed(
                            [w](absl::Span<const NDArray> x) {
                              return std::vector<NDArray>{Tanh(MatMul(x[0], w))};
                            },
                            {&h, 1})[0]
                      : Tanh(MatMul(h, w));
    }
    tape.set_part(0);
    const NDArray loss = Sum(h);
    tape.Backward(loss);
    // What is watched was noted before all, in part 0.
    if (in_segments) {
      EXPECT_THAT(parts.events, ElementsAre(-0, -30, -20, -10, testing::AnyOf(0, 1, 2),
                                            testing::AnyOf(0, 1, 2), testing::AnyOf(0, 1, 2), -0));
    } else {
      EXPECT_THAT(parts.events, ElementsAre(-0, -30, 2, -20, 1, -10, 0, -0));
    }
  }
}

TEST(GradientListener, AnArrayThatIsReadTwiceIsFinalBehindTheFirstReader) {
  Flat flat(3);
  const NDArray x = Random({5, 4}, 1);
  const auto loss = [&] {
    const NDArray h = MatMul(Tanh(MatMul(x, flat.w[1])), flat.w[0]);
    return Sum(MatMul(Tanh(MatMul(h, flat.w[2])), flat.w[1]));
  };
  EXPECT_THAT(OrderOf(flat, loss), ElementsAre(2, 0, 1));
  EXPECT_THAT(OrderOf(flat, loss, GradientWrite::kAdd), ElementsAre(2, 0, 1));
}

TEST(GradientListener, ViewsOfAnArrayReadIt) {
  Flat flat(2);
  const NDArray x = Random({5, 4}, 1);
  // The first row of w[1] is read before w[0], all of it after.
  EXPECT_THAT(
      OrderOf(flat,
              [&] {
                return Sum(MatMul(
                    Tanh(MatMul(x * flat.w[1].Slice(0, 0, 1).Reshape({4}), flat.w[0])), flat.w[1]));
              }),
      ElementsAre(0, 1));
}

TEST(GradientListener, ArraysThatNothingReadsAreFinalWithZeros) {
  Flat flat(2);
  const NDArray x = Random({5, 4}, 1);
  EXPECT_THAT(OrderOf(flat, [&] { return Sum(MatMul(x, flat.w[1])); }), ElementsAre(1, 0));
  EXPECT_EQ(flat.g[0].ToVector<double>(), std::vector<double>(16, 0));
}

TEST(GradientListener, ASegmentMayReadEverything) {
  Flat flat(3);
  const NDArray x = Random({5, 4}, 1);
  const auto loss = [&] {
    const NDArray h = MatMul(x, flat.w[0]);
    const std::vector<NDArray> out = Recomputed(
        [&](absl::Span<const NDArray> in) {
          return std::vector<NDArray>{MatMul(Tanh(MatMul(in[0], flat.w[2])), flat.w[1])};
        },
        {&h, 1});
    return Sum(Tanh(MatMul(out[0], flat.w[1])));
  };
  // w[1] is read behind the segment, but the segment might have read it too.
  const std::vector<int> order = OrderOf(flat, loss);
  EXPECT_EQ(order.back(), 0);
}

TEST(GradientListener, FunctionsReadTheirInputs) {
  Flat flat(2);
  const NDArray x = Random({5, 4}, 1);
  const auto loss = [&] {
    NDArray h;
    {
      const NoGradientScope constants;
      h = MatMul(x, flat.w[1]);
    }
    SetGradient("hand made", {&flat.w[1], 1}, {&h, 1}, [&](absl::Span<const NDArray> dh) {
      return std::vector<NDArray>{MatMul(x, dh[0], {.transpose_x = true})};
    });
    return Sum(MatMul(Tanh(MatMul(Tanh(h), flat.w[0])), flat.w[1]));
  };
  EXPECT_THAT(OrderOf(flat, loss), ElementsAre(0, 1));
}

TEST(GradientListener, APassThatIsKeptTellsAgain) {
  Flat flat(2);
  const NDArray x = Random({5, 4}, 1);
  Recording recording(flat.g);
  GradientTape tape;
  tape.set_listener(&recording);
  for (size_t i = 0; i < 2; ++i) tape.Watch(flat.w[i], flat.g[i]);
  const NDArray loss = Sum(MatMul(Tanh(MatMul(x, flat.w[0])), flat.w[1]));
  tape.Backward({&loss, 1}, {}, /*keep=*/true);
  tape.Backward({&loss, 1});
  EXPECT_THAT(recording.order, ElementsAre(1, 0, 1, 0));
  EXPECT_EQ(recording.values[0], recording.values[2]);
}

TEST(GradientListener, WhatItThrowsEndsThePass) {
  Flat flat(2);
  const NDArray x = Random({5, 4}, 1);
  Recording recording(flat.g);
  recording.then = [](int) { ThrowFailedPrecondition("the network is down"); };
  GradientTape tape;
  tape.set_listener(&recording);
  for (size_t i = 0; i < 2; ++i) tape.Watch(flat.w[i], flat.g[i]);
  const NDArray loss = Sum(MatMul(Tanh(MatMul(x, flat.w[0])), flat.w[1]));
  EXPECT_THROW(tape.Backward(loss), Error);
  EXPECT_THAT(recording.order, ElementsAre(1));
}

}  // namespace
}  // namespace tidepool
