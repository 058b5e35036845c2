// What Backward() itself writes over, and what others are told or handed while it runs.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using testing::AllOf;
using testing::HasSubstr;

NDArray Of(double value) { return Full({1}, value, DType::kFloat64); }
double Only(const NDArray& array) { return array.ToVector<double>().at(0); }

struct Listener final : GradientListener {
  explicit Listener(std::function<void(int)> of_final = [](int) {})
      : is_final(std::move(of_final)) {}
  void GradientIsFinal(int number) override { is_final(number); }
  std::function<void(int)> is_final;
};

// ---- gradients of arrays that were computed --------------------------------------------------------

// What the calls before it was watched add to it is of what it was computed from.
TEST(TapeWrittenOver, AHandedInGradientOfAComputedArrayStaysAsItWasFinal) {
  for (const bool handed_in : {false, true}) {
    const NDArray x = Of(0.5), to = Of(0);
    double told = 0;
    Listener listener([&](int number) {
      if (number == 1) told = Only(to);
    });
    GradientTape tape;
    if (handed_in) tape.set_listener(&listener);
    tape.Watch(x);
    const NDArray h = x * 1.0;
    const NDArray before = Sum(h * 100.0);
    handed_in ? tape.Watch(h, to) : tape.Watch(h);
    const NDArray behind = Sum(Tanh(h));
    tape.Backward(before + behind);
    const double of_tanh = 1 - Only(Tanh(h)) * Only(Tanh(h));
    EXPECT_DOUBLE_EQ(Only(tape.Gradient(h)), of_tanh);
    EXPECT_DOUBLE_EQ(Only(tape.Gradient(x)), 100 + of_tanh);
    if (handed_in) EXPECT_EQ(told, Only(to));
  }
}

// ---- a listener that comes late ---------------------------------------------------------------------

TEST(TapeWrittenOver, AListenerThatHasNotSeenTheFirstReadIsToldBehindIt) {
  for (const bool set_before : {false, true}) {
    const NDArray x = Of(2), to = Of(0);
    int told = 0;
    Listener listener([&](int) {
      ++told;
      EXPECT_EQ(Only(to), 7);
    });
    GradientTape tape;
    if (set_before) tape.set_listener(&listener);
    tape.Watch(x, to);
    tape.set_listener(nullptr);
    const NDArray h = x * x;
    tape.set_listener(&listener);
    tape.Backward(Sum(h) + Sum(x * 3.0));
    EXPECT_EQ(Only(tape.Gradient(x)), 7);
    EXPECT_EQ(told, 1);
  }
}

// ---- what is kept is written over while Backward() runs ------------------------------------------------

// A gradient handed in lies where an earlier call keeps what it reads again.
TEST(TapeWrittenOver, AGradientOverWhatIsKeptIsAnErrorThatNamesBoth) {
  alignas(64) static double memory[8];
  for (const bool imported : {false, true}) {
    for (const bool in_segment : {false, true}) {
      const NDArray a = Of(2), one = Of(1);
      NDArray b = imported ? NDArray(BufferHandle(NewImportedBuffer(memory, 8, nullptr, nullptr)),
                                     {1}, DType::kFloat64)
                           : Of(0);
      FillInto(5, b);
      GradientTape tape;
      tape.Watch(a, b);
      tape.Watch(b);
      const auto function = [b](absl::Span<const NDArray> in) {
        return std::vector<NDArray>{in[0] * b * b};
      };
      const NDArray p = in_segment ? Recomputed(function, {&one, 1})[0] : b * b;
      const NDArray q = Tanh(a);
      EXPECT_THAT(CatchStatus([&] { tape.Backward(p + q); }).message(),
                  AllOf(HasSubstr("Op [multiply]"), HasSubstr("in Backward() overwrote it")))
          << imported << in_segment;
    }
  }
}

// Two buffers of one memory, as where it was imported twice.
TEST(TapeWrittenOver, AGradientOverTheMemoryOfWhatIsKeptIsAnError) {
  alignas(64) static double memory[8];
  const auto import = [] {
    return NDArray(BufferHandle(NewImportedBuffer(memory, 8, nullptr, nullptr)), {1},
                   DType::kFloat64);
  };
  const NDArray a = Of(2), to = import();
  NDArray b = import();
  FillInto(5, b);
  GradientTape tape;
  tape.Watch(a, to);
  tape.Watch(b);
  const NDArray p = b * b;
  EXPECT_THAT(CatchStatus([&] { tape.Backward(p + Tanh(a)); }).message(),
              AllOf(HasSubstr("Op [multiply] kept its"),
                    HasSubstr("in Backward() overwrote its memory, which was imported")));
}

// A segment that has captured one of them.
TEST(TapeWrittenOver, ASegmentReadsWhatWasWrittenThroughAnotherBuffer) {
  alignas(64) static double memory[8];
  const auto import = [] {
    return NDArray(BufferHandle(NewImportedBuffer(memory, 8, nullptr, nullptr)), {1},
                   DType::kFloat64);
  };
  for (const bool in_backward : {true, false}) {
    const NDArray a = Of(2), x = Of(3);
    NDArray c = import(), other = import();
    FillInto(5, c);
    GradientTape tape;
    in_backward ? tape.Watch(a, other) : tape.Watch(a);
    tape.Watch(x);
    const NDArray p = Recomputed(
        [c](absl::Span<const NDArray> in) { return std::vector<NDArray>{in[0] * in[0] * c}; },
        {&x, 1})[0];
    if (!in_backward) {
      const NoGradientScope constants;
      FillInto(100, other);
    }
    EXPECT_THAT(CatchStatus([&] { tape.Backward(p + Tanh(a)); }).message(),
                AllOf(HasSubstr("Op [multiply] in a segment read"), HasSubstr("overwrote it")))
        << in_backward;
  }
}

// Kernels that are not done in place say nothing of whose gradient lies there.
TEST(TapeWrittenOver, AGradientMayLieOverAnOperandOfItsOwnCall) {
  for (const bool over : {false, true}) {
    NDArray w = Full({2, 2}, 0.5, DType::kFloat64);
    const NDArray x = Full({2, 2}, 0.25, DType::kFloat64);
    const NDArray kept = Square(x);  // read by the product's gradient of w, and by nothing else
    GradientTape tape;
    tape.Watch(w, over ? kept : Zeros({2, 2}, DType::kFloat64));
    tape.Backward(Sum(MatMul(kept, w)));
    EXPECT_EQ(tape.Gradient(w).ToVector<double>(), std::vector<double>(4, 0.125)) << over;
  }
}

// Of results that a kernel cannot write where they belong: they are made aside and copied, which is one write.
TEST(TapeWrittenOver, GradientsOfAnyLayoutMayLieBesideWhatIsKept) {
  const auto all = [] { return Full({32}, 0.5, DType::kFloat64); };
  const auto part = [](const NDArray& flat, int64_t begin) {
    return flat.Slice(0, begin, begin + 4).Reshape({2, 2});
  };
  for (const bool in_forward : {false, true}) {
    const NDArray flat = all();
    const NDArray x = part(flat, 0), w = part(flat, 4);
    NDArray to = part(flat, 20).Transpose();
    GradientTape tape;
    tape.Watch(x);
    in_forward ? tape.Watch(w) : tape.Watch(w, to);
    const NDArray squares = Square(x);
    NDArray sum = Sum(MatMul(squares, w)) + Sum(squares);
    if (in_forward) {
      const NoGradientScope constants;
      MatMulInto(Full({2, 2}, 1.0, DType::kFloat64), Full({2, 2}, 2.0, DType::kFloat64), to);
    }
    tape.Backward(sum);
    EXPECT_EQ(tape.Gradient(x).ToVector<double>(), std::vector<double>(4, 2.0));
    EXPECT_EQ(tape.Gradient(w).ToVector<double>(), std::vector<double>(4, 0.5));
  }
}

TEST(TapeWrittenOver, AGradientFunctionThatWritesToWhatIsKeptIsAnError) {
  for (const bool unrecorded : {false, true}) {
    const NDArray a = Of(2);
    NDArray b = Of(5);
    GradientTape tape;
    tape.Watch(a);
    tape.Watch(b);
    const NDArray p = b * b;
    const NDArray q = a * 1.0;
    SetGradient("mine", {&a, 1}, {&q, 1}, [b, unrecorded](absl::Span<const NDArray> dz) mutable {
      const auto write = [&] { FillInto(100, b); };
      if (unrecorded) {
        const NoGradientScope scope;
        write();
      } else {
        write();
      }
      return std::vector<NDArray>{dz[0]};
    });
    EXPECT_THAT(CatchStatus([&] { tape.Backward(p + q); }).message(),
                AllOf(HasSubstr("Op [multiply] kept its"),
                      HasSubstr("Op [fill] in Backward() overwrote it")));
  }
}

// Parameters in the first half of one array, their gradients in the other.
TEST(TapeWrittenOver, GradientsMayLieBesideWhatIsKept) {
  NDArray flat = Full({24}, 0.5, DType::kFloat64), apart = Full({12}, 0.5, DType::kFloat64);
  std::vector<std::vector<double>> gradients;
  for (const bool beside : {true, false}) {
    NDArray h = Full({3, 2}, 0.5, DType::kFloat64);
    const auto part = [&](const NDArray& of, int64_t first) {
      return of.Slice(0, first, first + 4).Reshape({2, 2});
    };
    GradientTape tape;
    for (int i = 0; i < 3; ++i) {
      if (beside) {
        tape.Watch(part(flat, 4 * i), part(flat, 12 + 4 * i));
      } else {
        tape.Watch(part(apart, 4 * i));
      }
    }
    for (int i = 0; i < 3; ++i) h = Tanh(MatMul(h, part(beside ? flat : apart, 4 * i)));
    tape.Backward(Sum(h));
    gradients.emplace_back();
    for (int i = 0; i < 3; ++i) {
      for (const double g : tape.Gradient(part(beside ? flat : apart, 4 * i)).ToVector<double>())
        gradients.back().push_back(g);
    }
  }
  EXPECT_EQ(gradients[0], gradients[1]);
}

// And whoever is told that one is final may go on with that parameter.
TEST(TapeWrittenOver, ParametersOfOneArrayAreUpdatedAsTheirGradientsAreFinal) {
  NDArray flat = Full({12}, 0.5, DType::kFloat64);
  const auto part = [&](int64_t i) { return flat.Slice(0, 4 * i, 4 * i + 4).Reshape({2, 2}); };
  std::vector<NDArray> to(3);
  Listener listener([&](int number) {
    NDArray parameter = part(number);
    parameter -= to[static_cast<size_t>(number)] * 0.1;
  });
  GradientTape tape;
  for (int step = 0; step < 3; ++step) {
    tape.Restart();
    tape.set_listener(&listener);
    NDArray h = Full({3, 2}, 0.5, DType::kFloat64);
    for (int64_t i = 0; i < 3; ++i) {
      to[static_cast<size_t>(i)] = Zeros({2, 2}, DType::kFloat64);
      tape.Watch(part(i), to[static_cast<size_t>(i)]);
    }
    for (int64_t i = 0; i < 3; ++i) h = Tanh(MatMul(h, part(i)));
    tape.Backward(Sum(h));
  }
  EXPECT_LT(flat.ToVector<double>()[0], 0.5);
}

// A tape within a gradient function is seen by the tape around, as it is where nothing is noted.
TEST(TapeWrittenOver, SecondOrderThroughAFunctionsOwnTape) {
  const NDArray x = Of(3);
  GradientTape outer;
  outer.Watch(x);
  NDArray first;
  {
    GradientTape inner;
    inner.Watch(x);
    const NDArray z = x * x * x;
    const NDArray w = z * 1.0;
    SetGradient("cube", {&z, 1}, {&w, 1}, [](absl::Span<const NDArray> dz) {
      const NDArray y = dz[0] * 1.0;
      GradientTape own;
      own.Watch(y);
      own.Backward(Sum(y * y) * 0.5);
      return std::vector<NDArray>{own.Gradient(y)};
    });
    inner.Backward(w);
    first = inner.Gradient(x);
  }
  outer.Backward(Sum(first));
  EXPECT_EQ(Only(outer.Gradient(x)), 18);
}

// ---- small ones ------------------------------------------------------------------------------------------

TEST(TapeWrittenOver, AnotherViewOfTheSameGradientIsAnotherGradient) {
  const NDArray x = Zeros({2, 2}, DType::kFloat64), g = Zeros({2, 2}, DType::kFloat64);
  GradientTape tape;
  tape.Watch(x, g);
  tape.Watch(x, g);
  EXPECT_THAT(CatchStatus([&] { tape.Watch(x, g.Transpose()); }).message(),
              HasSubstr("watched with another gradient already"));
  const NDArray y = Zeros({2}, DType::kFloat64), f = Zeros({4}, DType::kFloat64);
  tape.Watch(y, f.Slice(0, 0, 2));
  EXPECT_THAT(CatchStatus([&] { tape.Watch(y, f.Slice(0, 0, 4, 2)); }).message(),
              HasSubstr("watched with another gradient already"));
}

TEST(TapeWrittenOver, MoreInputsThanARecordHasRoomForAreRefused) {
  const std::vector<NDArray> many(65536, Of(1));
  int called = 0;
  const auto function = [&](absl::Span<const NDArray> in) {
    ++called;
    return std::vector<NDArray>{in.back() * 1.0};
  };
  GradientTape tape;
  tape.Watch(many[0]);
  EXPECT_THAT(CatchStatus([&] { Recomputed(function, many); }).message(),
              HasSubstr("Op [segment]: found 65536 inputs, expected at most 65535"));
  EXPECT_EQ(called, 0);
  const NDArray z = Of(1);
  EXPECT_THAT(CatchStatus([&] {
                SetGradient("wide", many, {&z, 1},
                            [](absl::Span<const NDArray>) { return std::vector<NDArray>(65536); });
              }).message(),
              HasSubstr("Op [wide]: found 65536 inputs, expected at most 65535"));
  tape.Backward(Recomputed(function, absl::MakeSpan(many).subspan(1))[0]);
  EXPECT_EQ(called, 2);
  EXPECT_EQ(Only(tape.Gradient(many[0])), 1);
}

struct Parts final : GradientListener {
  void GradientIsFinal(int) override {}
  void PartIsNext(int part) override { parts.push_back(part); }
  std::vector<int> parts;
};

TEST(TapeWrittenOver, APartNamedOnAClearedTapeIsGoneWithRestart) {
  const NDArray x = Of(1);
  Parts parts;
  GradientTape tape;
  tape.Clear();
  tape.set_part(5);
  tape.Restart();
  tape.set_listener(&parts);
  tape.Watch(x);
  tape.Backward(x * 2.0);
  EXPECT_EQ(parts.parts, std::vector<int>{0});
}

TEST(TapeWrittenOver, AClearedTapeMayBeStoppedFromAnyThread) {
  GradientTape tape;
  tape.Clear();
  std::thread([&] {
    tape.Restart();
    tape.Clear();
  }).join();
  tape.Clear();
  tape.Stop();
  EXPECT_FALSE(tape.is_recording());
}

}  // namespace
}  // namespace tidepool
