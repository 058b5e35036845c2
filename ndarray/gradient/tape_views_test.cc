// Views whose elements have several names, or lie between those of others.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/gradient/places.h"
#include "tidepool/ndarray/gradient/taped_view.h"
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

TEST(TapeViews, ColumnsAreApart) {
  const NDArray x = Counted({2, 3});
  GradientTape tape;
  NDArray gradients = Full({2, 2}, 9, DType::kFloat64);
  const NDArray first = x(All(), 0), second = x(All(), 1);
  tape.Watch(second, gradients(All(), 1));
  tape.Watch(first, gradients(All(), 0));
  EXPECT_TRUE(IsRecorded({&x, 1}));
  EXPECT_FALSE(IsRecorded(Arrays{x(All(), 2)}));
  EXPECT_THAT(MessageOf([&] { tape.Watch(x(0)); }), HasSubstr("overlaps that of another watched"));
  tape.Backward(Sum(first * second) + Sum(x));
  EXPECT_THAT(gradients.ToVector<double>(), ElementsAre(3, 2, 6, 5));
}

// A step of a recurrent cell into an array of all steps, one behind the other for each example.
TEST(TapeViews, StepsMayBeWrittenBesideThoseThatWereKept) {
  constexpr int64_t kBatch = 3, kSteps = 4, kUnits = 2;
  const NDArray x = Counted({kBatch, kUnits}) * 0.1, w = Counted({kUnits, kUnits}) * 0.2;
  std::vector<double> found[2];
  for (const bool in_place : {false, true}) {
    GradientTape tape;
    tape.Watch(w);
    NDArray all = Zeros({kBatch, kSteps, kUnits}, DType::kFloat64), h = x, loss = Sum(h);
    if (in_place) all(All(), 0) = x;
    for (int64_t t = 1; t < kSteps; ++t) {
      const NDArray next = Tanh(MatMul(in_place ? all(All(), t - 1) : h, w));
      if (in_place) all(All(), t) = next;
      h = next;
      loss = loss + Sum(Square(in_place ? all(All(), t) : h));
    }
    tape.Backward(loss);
    found[in_place] = tape.Gradient(w).ToVector<double>();
  }
  EXPECT_EQ(found[0], found[1]);
}

TEST(TapeViews, WritesWithoutGradientsBesideWhatWasKeptDoNotMatter) {
  const NDArray x = Counted({2});
  NDArray w = Ones({2, 2}, DType::kFloat64);
  GradientTape tape;
  tape.Watch(x);
  const NDArray loss = Sum(x * w(0));
  {
    const NoGradientScope none;
    w(1) = 7.0;
  }
  tape.Backward(loss);
  EXPECT_THAT(tape.Gradient(x).ToVector<double>(), ElementsAre(1, 1));
}

// f32 in the first half of a block, f64 behind it.
TEST(TapeViews, ArraysOfTwoTypesMayLieInOneBlock) {
  for (const bool is_first : {false, true}) {
    const NDArray block({80}, DType::kUInt8);
    NDArray f = NDArray::FromStrides(block.buffer(), 0, {10}, {1}, DType::kFloat32);
    NDArray d = NDArray::FromStrides(block.buffer(), 5, {5}, {1}, DType::kFloat64);
    FillInto(3, f);
    FillInto(2, d);
    GradientTape tape;
    tape.Watch(d);
    EXPECT_FALSE(IsRecorded({&f, 1}));
    if (is_first) tape.Watch(f);
    const NDArray kept = Sum(d * d);
    if (!is_first) f += 1.0;
    tape.Backward(kept + Cast(Sum(f * f), DType::kFloat64));
    EXPECT_THAT(tape.Gradient(d).ToVector<double>(), Each(4));
    if (is_first) {
      EXPECT_THAT(tape.Gradient(f).ToVector<float>(), Each(6));
    }
  }
}

TEST(TapeViews, WritesByAnotherImportOfTheSameMemoryAreSeen) {
  std::vector<double> memory = {1, 2, 3, 4};
  const auto imported = [&](int64_t first, int64_t count) {
    return NDArray(BufferHandle(NewImportedBuffer(
                       memory.data() + first, static_cast<size_t>(count) * sizeof(double),
                       [](void*) {}, nullptr, MemoryKind::kExternal)),
                   {count}, DType::kFloat64);
  };
  for (const int64_t first : {0, 1, 2}) {
    const NDArray a = imported(0, 2);
    NDArray b = imported(first, 2);
    GradientTape tape;
    tape.Watch(a);
    b += 1.0;  // before it is kept
    const NDArray loss = Sum(Square(a));
    const std::vector<double> expected = (a * 2.0).ToVector<double>();
    b += 1.0;
    const std::string message = MessageOf([&] { tape.Backward(loss); });
    if (first < 2) {
      EXPECT_THAT(message, HasSubstr("Op [scale_shift] overwrote its memory, which was imported"));
    } else {
      EXPECT_EQ(message, "nothing was thrown");
      EXPECT_EQ(tape.Gradient(a).ToVector<double>(), expected);
    }
  }
}

// Against all elements of every two slices of an array.
TEST(TapeViews, PlacesAreThoseOfTheirElements) {
  const NDArray x = Counted({3, 4, 5});
  std::vector<NDArray> slices;
  for (int64_t a = 0; a < 2; ++a) {
    for (int64_t b = 0; b < 3; ++b) {
      slices.push_back(x.Slice(0, a, a + 2).Slice(1, b, b + 2).Slice(2, b, b + 2));
      slices.push_back(x.Slice(1, b, 4, 2));
      slices.push_back(x.Slice(2, b, 5, 3).Slice(1, a, a + 1));
      for (const int64_t step : {2, 3, 4}) {  // of which rows of five are no multiple
        slices.push_back(x.Slice(2, b, 5, step));
        slices.push_back(x.Slice(2, b, 5, step).Slice(1, a, 4, 2).Slice(0, 0, a + 1));
      }
      slices.push_back(x.Index(1, b).Index(1, a + 2));
      slices.push_back(x.Index(2, b).Transpose());
      slices.push_back(x(a, b));
    }
  }
  const auto elements = [](const NDArray& view) { return view.ToVector<double>(); };
  int apart = 0, together = 0, unknown = 0;
  for (const NDArray& one : slices) {
    for (const NDArray& other : slices) {
      const std::vector<double> of = elements(one);
      bool share = false;
      for (const double e : elements(other))
        share |= std::find(of.begin(), of.end(), e) != of.end();
      const bool may = Places(FreeView(one)).MayOverlap(Places(FreeView(other)));
      EXPECT_TRUE(may || !share);
      const int rank = one.rank();
      if (rank == other.rank() &&
          std::equal(one.strides(), one.strides() + rank, other.strides())) {
        EXPECT_EQ(may, share) << one.ToString() << other.ToString();
      }
      ++(share ? together : may ? unknown : apart);
    }
  }
  EXPECT_GT(together, 0);
  EXPECT_GT(apart, unknown);
}

}  // namespace
}  // namespace tidepool
