// Random programs of operators, views, slices, writes in place, joins, segments that are computed again and functions with
// gradients of their own, against central differences in f64. A program is a function of its seed and its arrays, so that it
// runs again without a tape.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

constexpr int64_t kRows = 3, kColumns = 4;

using Random = std::mt19937_64;

NDArray Any(std::vector<NDArray>& values, Random& random) {
  return values[random() % values.size()];
}

// A matrix of [rows, columns] from one of any of the shapes.
NDArray Fitted(NDArray x) { return x.dim(0) == kRows ? x : x.Transpose(); }

std::vector<NDArray> Segment(absl::Span<const NDArray> inputs, const NDArray& parameter) {
  NDArray h = Tanh(inputs[0] * inputs[1]);
  NDArray g = Sin(h + parameter);
  return {g * h, h};
}

// All values stay about 1: what grows goes through tanh.
void Step(std::vector<NDArray>& values, const NDArray& w, Random& random, bool in_place) {
  const int kind = static_cast<int>(random() % (in_place ? 20 : 14));
  switch (kind) {
    case 0:
      values.push_back(Fitted(Any(values, random)) + Fitted(Any(values, random)));
      return;
    case 1:
      values.push_back(Fitted(Any(values, random)) * Fitted(Any(values, random)));
      return;
    case 2:
      values.push_back(Tanh(Any(values, random) * 1.5));
      return;
    case 3:
      values.push_back(Sin(Any(values, random)));
      return;
    case 4:
      values.push_back(Any(values, random).Transpose());
      return;
    case 5:
      values.push_back(Tanh(MatMul(Fitted(Any(values, random)), w)));
      return;
    case 6: {  // broadcast: one row to all
      const NDArray x = Fitted(Any(values, random));
      const int64_t row = static_cast<int64_t>(random() % kRows);
      values.push_back(Fitted(Any(values, random)) - x.Slice(0, row, row + 1));
      return;
    }
    case 7: {
      const NDArray x = Fitted(Any(values, random));
      const NDArray view = x.Slice(0, 0, 1).BroadcastTo({kRows, kColumns});
      values.push_back(in_place ? view.Dup() : view);  // a view that repeats is not written to
      return;
    }
    case 8: {  // of columns of two
      const NDArray x = Fitted(Any(values, random)), y = Fitted(Any(values, random));
      const NDArray parts[] = {x.Slice(1, 0, 2), y.Slice(1, 1, 3)};
      values.push_back(Concat(parts, 1));
      return;
    }
    case 9:
      values.push_back(Fitted(Any(values, random)).Slice(1, kColumns - 1, -1, -1));
      return;
    case 10:
      values.push_back(
          Fitted(Any(values, random)).ReshapeOrCopy({kRows * kColumns}).Reshape({kRows, kColumns}));
      return;
    case 11: {
      NDArray x = Fitted(Any(values, random));
      NDArray mean = Mean(x, -1, true);
      values.push_back(x - mean * mean);
      return;
    }
    case 12: {
      const NDArray inputs[] = {Fitted(Any(values, random)), Fitted(Any(values, random))};
      const NDArray parameter = w.Slice(0, 0, kRows);
      for (NDArray& z :
           Recomputed([parameter](absl::Span<const NDArray> x) { return Segment(x, parameter); },
                      inputs)) {
        values.push_back(std::move(z));
      }
      return;
    }
    case 13: {  // x^3 by hand
      const NDArray x = Fitted(Any(values, random)).Dup();
      NDArray z;
      {
        const NoGradientScope none;
        z = x * x * x;
      }
      SetGradient("cube", {x}, {z}, [x](absl::Span<const NDArray> dz) {
        return std::vector<NDArray>{dz[0] * x * x * 3};
      });
      values.push_back(Tanh(z));
      return;
    }
    case 14: {
      NDArray x = Any(values, random);
      TanhInto(x, x);
      return;
    }
    case 15: {
      NDArray x = Fitted(Any(values, random));
      x += Fitted(Any(values, random));
      x *= 0.5;
      return;
    }
    case 16: {  // a column of one becomes one of another
      NDArray x = Fitted(Any(values, random));
      const int64_t to = static_cast<int64_t>(random() % kColumns),
                    from = static_cast<int64_t>(random() % kColumns);
      x(All(), to) = Sin(Fitted(Any(values, random))(All(), from));
      return;
    }
    case 17: {
      NDArray x = Fitted(Any(values, random));
      x(0, All()) = 0.25;
      return;
    }
    case 18: {
      NDArray x = Fitted(Any(values, random)), y = Fitted(Any(values, random));
      x(Range(0, 2), All()) += y(Range(1, 3), All());
      return;
    }
    default: {
      NDArray x = Fitted(Any(values, random));
      x(All(), Range(0, kColumns, 2)) = x(All(), Range(1, kColumns, 2));
      return;
    }
  }
}

NDArray Program(uint64_t seed, const NDArray& x, const NDArray& w, bool in_place) {
  Random random(seed);
  // What is written in place is a copy, so that the program runs again.
  std::vector<NDArray> values = {x.Dup(), Cos(x)};
  const int steps = 2 + static_cast<int>(random() % 9);
  for (int step = 0; step < steps; ++step) Step(values, w, random, in_place);
  NDArray loss = Sum(Square(Fitted(values.back())));
  for (size_t v = 0; v + 1 < values.size(); v += 2)
    loss = loss + Sum(Fitted(values[v])) * (0.5 + static_cast<double>(v));
  return loss;
}

double Loss(uint64_t seed, const NDArray& x, const NDArray& w, bool in_place) {
  return Program(seed, x, w, in_place).Item<double>();
}

void CheckNumerically(uint64_t seed, NDArray& array, const NDArray& gradient, const NDArray& x,
                      const NDArray& w, bool in_place) {
  constexpr double kStep = 1e-6;
  for (int64_t i = 0; i < array.NumElements(); ++i) {
    double& element = array.mutable_data<double>()[i];
    const double kept = element;
    element = kept + kStep;
    const double above = Loss(seed, x, w, in_place);
    element = kept - kStep;
    const double below = Loss(seed, x, w, in_place);
    element = kept;
    const double numeric = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient.data<double>()[i], numeric, 2e-6 * (1 + std::abs(numeric)))
        << "seed " << seed << ", element " << i;
  }
}

// Returns whether the program is one that tapes take.
bool CheckProgram(uint64_t seed, bool in_place) {
  NDArray x = RandomUniform({kRows, kColumns}, -1, 1, DType::kFloat64, seed, 0, Place::Heap());
  NDArray w = RandomUniform({kColumns, kColumns}, -1, 1, DType::kFloat64, seed, 1, Place::Heap());
  NDArray dw = Full({kColumns, kColumns}, 9, DType::kFloat64, Place::Heap()), dx;
  try {
    GradientTape tape;
    tape.Watch(x);
    tape.Watch(w, dw);
    tape.Backward(Program(seed, x, w, in_place));
    dx = tape.Gradient(x).Detach();
  } catch (const Error& error) {
    // Kept for a gradient, and overwritten.
    EXPECT_TRUE(in_place) << error.what();
    EXPECT_NE(error.message().find("overw"), std::string::npos) << error.what();
    return false;
  }
  CheckNumerically(seed, x, dx, x, w, in_place);
  CheckNumerically(seed, w, dw, x, w, in_place);
  return true;
}

TEST(RandomPrograms, WithoutWritesInPlace) {
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    EXPECT_TRUE(CheckProgram(seed, /*in_place=*/false));
    if (HasFatalFailure()) return;
  }
}

TEST(RandomPrograms, WithWritesInPlace) {
  int taken = 0;
  constexpr int kPrograms = 600;
  for (uint64_t seed = 1000; seed < 1000 + kPrograms; ++seed) {
    taken += CheckProgram(seed, /*in_place=*/true) ? 1 : 0;
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(taken, kPrograms / 4);
}

// d/dx and d/dw of <v, dL/dx> + <u, dL/dw>, by a tape around a tape, against differences of first gradients in a random direction.
TEST(RandomPrograms, GradientsOfGradients) {
  constexpr double kStep = 1e-6;
  for (uint64_t seed = 1; seed <= 300; ++seed) {
    const auto matrix = [&](int64_t rows, uint64_t stream) {
      return RandomUniform({rows, kColumns}, -1, 1, DType::kFloat64, seed, stream, Place::Heap());
    };
    const NDArray x = matrix(kRows, 0), w = matrix(kColumns, 1), v = matrix(kRows, 2),
                  u = matrix(kColumns, 3);
    const auto along = [&](const NDArray& at_x, const NDArray& at_w) {
      GradientTape inner;
      NDArray dw = Zeros({kColumns, kColumns}, DType::kFloat64);
      inner.Watch(at_x);
      inner.Watch(at_w, dw);
      inner.Backward(Program(seed, at_x, at_w, /*in_place=*/false));
      return Sum(inner.Gradient(at_x) * v) + Sum(dw * u);
    };
    GradientTape outer;
    outer.Watch(x);
    outer.Watch(w);
    outer.Backward(along(x, w));
    const NDArray to_x = matrix(kRows, 4), to_w = matrix(kColumns, 5);
    const double found =
        (Sum(outer.Gradient(x) * to_x) + Sum(outer.Gradient(w) * to_w)).Item<double>();
    const double above = along(x + to_x * kStep, w + to_w * kStep).Item<double>();
    const double below = along(x - to_x * kStep, w - to_w * kStep).Item<double>();
    const double numeric = (above - below) / (2 * kStep);
    ASSERT_NEAR(found, numeric, 1e-5 * (1 + std::abs(numeric))) << "seed " << seed;
  }
}

// In a workspace whose plan places every array by its lifetime: a gradient that was read after it went would be another's bytes.
TEST(RandomPrograms, InPlannedMemory) {
  for (uint64_t seed = 5000; seed < 5060; ++seed) {
    WorkspaceConfig config;
    config.policy_learning = LearningPolicy::kOptimized;
    Workspace workspace("programs", config);
    for (int cycle = 0; cycle < 4; ++cycle) {
      WorkspaceScope scope(workspace);
      CheckProgram(seed, /*in_place=*/seed % 2 == 0);
      if (HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace tidepool
