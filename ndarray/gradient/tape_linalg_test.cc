// Gradients through decompositions and solves, beside differences.
#include <cmath>
#include <cstdint>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/linalg/decompositions.h"
#include "tidepool/ndarray/linalg/solving.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

NDArray Random64(const Shape& shape, uint64_t seed) {
  return RandomUniform(shape, -1, 1, DType::kFloat64, seed, 0, Place::Heap());
}

TEST(GradientTape, GoesThroughLinearAlgebra) {
  const NDArray a = Random64({4, 4}, 1), b = Random64({4, 2}, 2);
  NDArray spd = MatMul(a, a, {.transpose_y = true}) + Eye(4, 4, 0, DType::kFloat64) * 2.0;
  const auto loss = [&](const NDArray& m) {
    return Sum(Square(linalg::Solve(m, b))) + Sum(Sin(linalg::Cholesky(m))) +
           Sum(linalg::Inverse(m)) + linalg::Determinant(m) + linalg::SignAndLogDeterminant(m).log +
           Sum(linalg::SolveTriangular(m, b, {.lower = false, .transposed = true}) * b) +
           Sum(Square(linalg::SolveTriangular(m, b, {.unit_diagonal = true})));
  };
  GradientTape tape;
  tape.Watch(spd);
  tape.Backward(loss(spd));
  const NDArray gradient = tape.Gradient(spd);
  for (int64_t row = 0; row < 4; ++row) {
    for (int64_t column = 0; column < 4; ++column) {
      constexpr double kStep = 1e-6;
      const auto at = [&](double step) {
        NDArray moved = spd.Dup();
        // Symmetric, as Cholesky reads one triangle.
        moved.mutable_data<double>()[row * 4 + column] += step / 2;
        moved.mutable_data<double>()[column * 4 + row] += step / 2;
        return loss(moved).Item<double>();
      };
      const double numeric = (at(kStep) - at(-kStep)) / (2 * kStep);
      const double found =
          (gradient.At<double>({row, column}) + gradient.At<double>({column, row})) / 2;
      EXPECT_NEAR(found, numeric, 1e-6 * (1 + std::abs(numeric))) << row << ", " << column;
    }
  }
}

}  // namespace
}  // namespace tidepool
