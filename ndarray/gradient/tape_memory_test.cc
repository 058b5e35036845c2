// What a tape keeps and for how long, where gradients are written, and which operators run for them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/gradient/operator_counter_for_test.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
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

TEST(TapeMemory, WhatBackwardFromBeginsWithGoesBeforeAnythingIsComputed) {
  const NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  NDArray y = x * x;
  BufferHandle held;
  NDArray z = y.Dup(), dz = Values({3, 4}, {2});
  SetGradient("probe", {&y, 1}, {&z, 1}, [&](GradientList gradient) {
    EXPECT_EQ(held->references.load(), 1u);
    return std::vector<NDArray>{gradient[0]};
  });
  NDArray last = Exp(z);
  held = last.buffer();
  tape.BackwardFrom(std::move(last), std::move(dz));
  const std::vector<float> found = tape.Gradient(x).ToVector<float>();
  EXPECT_FLOAT_EQ(found[0], 3 * std::exp(1.0f) * 2);
  EXPECT_FLOAT_EQ(found[1], 4 * std::exp(4.0f) * 4);
}

TEST(TapeMemory, LossesAreWeighedByOneNumberAsByOneForEach) {
  const NDArray x = Random64({5, 3}, 1), targets = Random64({5, 3}, 2);
  const NDArray labels = FromValues(std::vector<int64_t>{0, 2, 1, 1, 0}, {5});
  using Function = std::function<NDArray()>;
  for (const Function& losses : {Function([&] { return SoftmaxCrossEntropy(x, labels).loss; }),
                                 Function([&] { return MeanSquaredError(x, targets); }),
                                 Function([&] { return HuberError(x, targets, 0.3); })}) {
    const auto gradient = [&](const NDArray& weights) {
      GradientTape tape;
      tape.Watch(x);
      tape.BackwardFrom(losses(), weights);
      return tape.Gradient(x).ToVector<double>();
    };
    const std::vector<double> whole = gradient(Ones({5}, DType::kFloat64));
    for (const double weight : {0.3, 0.25, 16.0}) {
      const std::vector<double> found =
          gradient(Full({}, weight, DType::kFloat64).BroadcastTo({5}));
      EXPECT_EQ(found, gradient(Full({5}, weight, DType::kFloat64))) << weight;  // to the last bit
      for (size_t i = 0; i < found.size(); ++i)
        EXPECT_NEAR(found[i], weight * whole[i], 1e-15 * (1 + weight));
    }
  }
}

TEST(TapeMemory, WritesToMemoryThatIsHandedIn) {
  NDArray flat = RandomUniform({64}, -1, 1, 1), gradients = Full({64}, 9);
  NDArray w = flat.Slice(0, 0, 12).Reshape({3, 4}), b = flat.Slice(0, 16, 20);
  NDArray dw = gradients.Slice(0, 0, 12).Reshape({3, 4}), db = gradients.Slice(0, 16, 20);
  const NDArray x = RandomUniform({5, 3}, -1, 1, 2);
  OperatorCounter count;
  GradientTape tape;
  tape.Watch(w, dw);
  tape.Watch(b, db);
  const NDArray loss = Sum(MatMul(x, w, {}, &b));
  count.counts.clear();
  tape.Backward(loss);
  EXPECT_EQ(
      count["copy"],
      1);  // of a sum's gradient, each element of which is one; the product and the sum wrote there
  EXPECT_EQ(dw.raw_data(), tape.Gradient(w).raw_data());
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_NEAR(dw.At<float>({i, 0}), Sum(x(All(), i)).Item<float>(), 1e-5);
  }
  EXPECT_THAT(db.ToVector<float>(), ElementsAre(5, 5, 5, 5));
  EXPECT_EQ(gradients.At<float>({12}), 9);  // between them nothing is written
  EXPECT_EQ(gradients.At<float>({20}), 9);
}

TEST(TapeMemory, AddsToMemoryThatIsHandedIn) {
  NDArray x = Values({1, 2}, {2}), dx = Zeros({2});
  for (int batch = 0; batch < 3; ++batch) {
    GradientTape tape;
    tape.Watch(x, dx, GradientWrite::kAdd);
    tape.Backward(Sum(Square(x)));
  }
  EXPECT_THAT(dx.ToVector<float>(), ElementsAre(6, 12));
}

TEST(TapeMemory, KeepsWhatWantedGradientsNeedAlone) {
  const NDArray x = RandomUniform({8, 16}, -1, 1, 1), w = RandomUniform({16, 4}, -1, 1, 2);
  GradientTape tape;
  tape.Watch(x);
  const NDArray z = MatMul(x, w);
  ASSERT_EQ(tape.Saved().size(), 1u);  // of frozen weights not what they are multiplied by
  EXPECT_EQ(tape.Saved()[0].op, "matmul");
  EXPECT_EQ(tape.Saved()[0].operand, "Y");
  EXPECT_EQ(tape.Saved()[0].array, "f32 [16, 4]");
  EXPECT_EQ(tape.saved_bytes(), 16 * 4 * 4);
  const NDArray h = z + 1.0f;  // nothing
  EXPECT_EQ(tape.saved_bytes(), 16 * 4 * 4);
  const NDArray r = Relu(h);
  EXPECT_EQ(tape.saved_bytes(), 16 * 4 * 4 + 8 * 4 * 4);
  EXPECT_EQ(tape.calls(), 3);
  const NDArray other = MatMul(w, r, {.transpose_x = false, .transpose_y = true});
  EXPECT_THAT(tape.Report(), HasSubstr("matmul keeps Y: f32 [16, 4], 256 bytes"));
}

TEST(TapeMemory, LetsGoOfWhatItKeptAsItGoes) {
  NDArray x = Values({1, 2}, {2});
  GradientTape tape;
  tape.Watch(x);
  const NDArray early = Square(x);
  NDArray z;
  {
    const NoGradientScope none;
    z = early * 1.0f;
  }
  const Buffer* const kept = z.buffer().get();
  int at_function = 0;
  SetGradient("probe", {&early, 1}, {&z, 1}, [&at_function, kept](GradientList dz) {
    at_function = kept->references.load();
    return std::vector<NDArray>{dz[0]};
  });
  const NDArray loss = Sum(Square(z));
  EXPECT_EQ(kept->references.load(), 2);
  tape.Backward(loss);
  EXPECT_EQ(at_function, 1);  // ours: the square behind it has let go
  EXPECT_EQ(early.buffer()->references.load(), 1);
}

TEST(TapeMemory, AReluBeforeAPoolIsNotGoneThroughTwice) {
  const NDArray x = RandomUniform({2, 8, 8, 3}, -1, 1, 1);
  NDArray filter = RandomUniform({4, 3, 3, 3}, -1, 1, 2), bias = RandomUniform({4}, -1, 1, 3);
  const Pool2dAttributes pool{
      .kernel_height = 2, .kernel_width = 2, .stride_height = 2, .stride_width = 2};
  const auto gradients = [&](bool fused, OperatorCounter* count) {
    GradientTape tape;
    tape.Watch(filter);
    tape.Watch(bias);
    NDArray h = Conv2d(x, filter, &bias, {.relu = fused});
    if (!fused) h = Relu(h);
    const NDArray loss = Sum(Square(MaxPool2d(h, pool)));
    h = NDArray();
    if (count != nullptr) count->counts.clear();
    tape.Backward(loss);
    return std::pair(tape.Gradient(filter).ToVector<float>(),
                     tape.Gradient(bias).ToVector<float>());
  };
  const auto apart = gradients(false, nullptr);
  OperatorCounter count;
  EXPECT_EQ(gradients(true, &count), apart);
  EXPECT_EQ(count["relu_grad"], 0);
  EXPECT_EQ(count["max_pool2d_grad"], 1);
  EXPECT_EQ(count["conv2d_grad_input"], 0);  // nobody wants it
}

TEST(TapeMemory, SegmentsAreComputedAgain) {
  NDArray x = Random64({6, 6}, 1), w = Random64({6, 6}, 2);
  const auto block = [&](absl::Span<const NDArray> inputs) {
    NDArray h = inputs[0];
    for (int i = 0; i < 4; ++i) h = Tanh(MatMul(h, w));
    return std::vector<NDArray>{h};
  };
  const auto run = [&](bool again, int64_t* saved) {
    GradientTape tape;
    tape.Watch(x);
    tape.Watch(w);
    NDArray h = x;
    for (int i = 0; i < 3; ++i) h = again ? Recomputed(block, {&h, 1})[0] : block({&h, 1})[0];
    const NDArray loss = Sum(h);
    *saved = tape.saved_bytes();
    tape.Backward(loss);
    return std::pair(tape.Gradient(x).ToVector<double>(), tape.Gradient(w).ToVector<double>());
  };
  int64_t kept = 0, kept_again = 0;
  EXPECT_EQ(run(false, &kept), run(true, &kept_again));
  EXPECT_EQ(kept_again, 3 * 36 * 8);  // the inputs of the segments
  EXPECT_GT(kept, 12 * 36 * 8);
  EXPECT_EQ(block({&x, 1})[0].ToVector<double>(), Recomputed(block, {&x, 1})[0].ToVector<double>());
}

TEST(TapeMemory, GradientsOnTheHeapAreOfTheirKind) {
  NDArray x = Values({1, 2}, {2});
  const auto bytes = [] {
    return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kGradientStandard);
  };
  const auto before = bytes();
  GradientTape tape;
  tape.Watch(x);
  tape.Backward(Sum(Square(x)));
  EXPECT_EQ(bytes() - before, 8);
}

TEST(TapeMemory, FunctionsAreToldWhichGradientsGoAnywhere) {
  const NDArray x = Values({1, 4}, {2}), constant = Values({1, 1}, {2}), z = Values({1, 4}, {2});
  std::vector<bool> used;
  std::string refused;
  GradientTape tape;
  tape.Watch(x);
  const NDArray twice = x * 2.0f;
  SetGradient("asks", {constant, twice, x}, {z}, [&](GradientList dz) {
    for (int i = 0; i < 3; ++i) used.push_back(IsGradientUsed(i));
    refused = std::string(CatchStatus([] { IsGradientUsed(3); }).message());
    // One that is within another, and afterwards.
    NDArray y = Values({1}, {1});
    GradientTape inner;
    inner.Watch(y);
    NDArray w = y.Dup();
    SetGradient("inner", {y, Values({1}, {1})}, {w}, [&](GradientList dw) {
      used.push_back(IsGradientUsed(1));
      return std::vector<NDArray>{dw[0], NDArray()};
    });
    inner.Backward(Sum(w));
    used.push_back(IsGradientUsed(0));
    return std::vector<NDArray>{NDArray(), dz[0], dz[0]};
  });
  tape.Backward(Sum(z));
  EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(3, 3));
  EXPECT_THAT(used, ElementsAre(false, true, true, false, false));
  EXPECT_THAT(refused, HasSubstr("input 3 of a function of 3 inputs"));
  EXPECT_TRUE(IsGradientUsed(7));
}

TEST(TapeMemory, ProductsOfBatchesByOneMatrixAreOneProduct) {
  NDArray x = RandomUniform({3, 5, 4}, -1, 1, 1), w = RandomUniform({4, 2}, -1, 1, 2),
          dw = Zeros({4, 2});
  OperatorCounter count;
  GradientTape tape;
  tape.Watch(w, dw);
  const NDArray loss = Sum(Square(MatMul(x, w)));
  count.counts.clear();
  tape.Backward(loss);
  EXPECT_EQ(count["matmul"], 1);
  EXPECT_EQ(count["sum"], 0);
  const NDArray expected =
      MatMul(x.Reshape({15, 4}), MatMul(x, w).Reshape({15, 2}) * 2.0f, {.transpose_x = true});
  EXPECT_LT(Max(Abs(expected - dw)).Item<float>(), 1e-5);
}
// Handed in from outside: written where it is, counted as external, and its owner's again with what was written.
TEST(TapeMemory, ExternalGradientsAreWrittenAndGoBackToTheirOwner) {
  const auto bytes = [](MemoryKind kind) {
    return MemoryTracker::Global().CurrentBytes(Host(), kind);
  };
  struct Owner {
    alignas(64) float values[32] = {};
    int given_back = 0;
  } owner;
  const auto external = bytes(MemoryKind::kGradientExternal),
             standard = bytes(MemoryKind::kGradientStandard);
  const NDArray x = Values({1, 2, 3}, {3});
  for (const GradientWrite write : {GradientWrite::kReplace, GradientWrite::kAdd}) {
    const auto release = [](void* context) { ++static_cast<Owner*>(context)->given_back; };
    NDArray dx(BufferHandle(NewImportedBuffer(owner.values, sizeof(owner.values), release, &owner,
                                              MemoryKind::kGradientExternal)),
               {3}, DType::kFloat32);
    {
      GradientTape tape;
      tape.Watch(x, dx, write);
      tape.Backward(Sum(Square(x)));
      EXPECT_EQ(tape.Gradient(x).raw_data(), static_cast<const void*>(owner.values));
      EXPECT_EQ(bytes(MemoryKind::kGradientExternal) - external,
                static_cast<int64_t>(sizeof(owner.values)));
      EXPECT_EQ(bytes(MemoryKind::kGradientStandard) - standard, 0);
      dx = NDArray();
      EXPECT_EQ(owner.given_back, write == GradientWrite::kAdd ? 1 : 0);  // the tape has it still
    }
    EXPECT_EQ(owner.given_back, write == GradientWrite::kAdd ? 2 : 1);
    EXPECT_EQ(bytes(MemoryKind::kGradientExternal) - external, 0);
    const float times = write == GradientWrite::kAdd ? 2 : 1;
    EXPECT_THAT(std::vector<float>(owner.values, owner.values + 3),
                ElementsAre(2 * times, 4 * times, 6 * times));
  }
}

// Of one's own memory: told when nobody asks again, and when nobody has it.
TEST(TapeMemory, GradientFunctionsAreToldWhetherTheyAreAskedAgain) {
  struct Seen {
    std::vector<bool> is_last;
    int done = 0;
  } seen;
  class Passes final : public HandGradient {
   public:
    explicit Passes(Seen& seen) : seen_(seen) {}
    void Run(GradientList dz, absl::Span<NDArray> dx, bool is_last) override {
      seen_.is_last.push_back(is_last);
      dx[0] = dz[0];
    }

   private:
    void Done() noexcept override {
      ++seen_.done;
      delete this;
    }
    Seen& seen_;
  };
  const NDArray x = Values({1, 4}, {2});
  const auto note = [&] {
    NDArray z;
    {
      const NoGradientScope by_hand;
      z = x.Dup();
      EXPECT_FALSE(IsRecorded({&x, 1}));
    }
    SetGradient("passes", {&x, 1}, {&z, 1}, HandGradientHandle(new Passes(seen)));
    return Sum(z);
  };
  EXPECT_FALSE(IsRecorded({&x, 1}));
  {
    GradientTape tape;
    EXPECT_FALSE(IsRecorded({&x, 1}));
    note();  // to which nothing flows: gone at once
    EXPECT_EQ(seen.done, 1);
    tape.Watch(x);
    EXPECT_TRUE(IsRecorded({&x, 1}));
    const NDArray loss = note();
    {
      GradientTape inner;
      EXPECT_TRUE(IsRecorded({&x, 1}));  // by the one around it
    }
    tape.Backward({&loss, 1}, {}, /*keep=*/true);
    tape.Backward({&loss, 1}, {}, /*keep=*/false);
    EXPECT_THAT(tape.Gradient(x).ToVector<float>(), ElementsAre(1, 1));
    EXPECT_EQ(seen.done, 2);
  }
  EXPECT_THAT(seen.is_last, ElementsAre(false, true));
  {
    GradientTape outer;
    outer.Watch(x);
    GradientTape inner;
    inner.Watch(x);
    inner.Backward(note());
  }
  EXPECT_THAT(seen.is_last, ElementsAre(false, true, false));
  EXPECT_EQ(seen.done, 3);
  {
    GradientTape tape;
    tape.Watch(x);
    note();
  }
  EXPECT_EQ(seen.done, 4);  // never run
}

}  // namespace
}  // namespace tidepool
