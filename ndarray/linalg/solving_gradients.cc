#include <utility>
#include <vector>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/linalg/decompositions.h"
#include "tidepool/ndarray/linalg/items.h"
#include "tidepool/ndarray/linalg/solving.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool::linalg {
namespace {

NDArray Swapped(const NDArray& x) {
  std::vector<int> order;
  for (int i = 0; i < x.rank(); ++i) order.push_back(i);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return x.Transpose(order);
}

// Sums over the axes that were broadcast from `shape`.
NDArray SummedTo(NDArray x, const Shape& shape) {
  while (x.rank() > shape.rank()) x = Sum(x, {0});
  std::vector<int> axes;
  for (int i = 0; i < shape.rank(); ++i) {
    if (shape[i] == 1 && x.dim(i) != 1) axes.push_back(i);
  }
  return axes.empty() ? x : Sum(x, axes, /*keep_dims=*/true);
}

void CheckAs(const char* op, const char* operand, const NDArray& x, const NDArray& like,
             const Shape& shape) {
  x.CheckAlive(op, operand);
  CheckDType(op, operand, x, like.dtype());
  CheckShape(op, operand, x, shape);
}

}  // namespace

NDArray CholeskyGrad(const NDArray& l, const NDArray& gradient) {
  constexpr const char* kOp = "cholesky_grad";
  CheckMatrix(kOp, "L", l, /*square=*/true);
  CheckAs(kOp, "gradient", gradient, l, l.shape());
  // Murray, "Differentiation of the Cholesky decomposition" (2016): with P the lower triangle of L^T dL, its diagonal
  // halved, it is L^-T (P + P^T) / 2 L^-1.
  const NDArray product = MatMul(Swapped(l), LowerTriangle(gradient, 0));
  NDArray p = LowerTriangle(product, 0) - LowerTriangle(product, -1);  // the diagonal
  p = LowerTriangle(product, -1) + p * 0.5;
  const NDArray symmetric = (p + Swapped(p)) * 0.5;
  const TriangularOptions transposed{.lower = true, .transposed = true};
  const NDArray left = SolveTriangular(l, symmetric, transposed);
  return Swapped(SolveTriangular(l, Swapped(left).Dup(), transposed)).Dup();
}

SolveGradients SolveGrad(const NDArray& a, const NDArray& b, const NDArray& solution,
                         const NDArray& gradient) {
  constexpr const char* kOp = "solve_grad";
  CheckMatrix(kOp, "A", a, /*square=*/true);
  CheckType(kOp, "B", b);
  CheckType(kOp, "solution", solution);
  CheckAs(kOp, "gradient", gradient, solution, solution.shape());
  // With one right side of rank 1 and a batch of matrices the solutions are [..., n].
  const bool vector = b.rank() == 1;
  const auto columns = [vector](const NDArray& x) { return vector ? x.ExpandDims(-1) : x; };
  const NDArray of_b = Solve(Swapped(a).Dup(), columns(gradient));
  NDArray of_a = MatMul(of_b, columns(solution), {.transpose_y = true});
  of_a = SummedTo(of_a * -1, a.shape());
  return {of_a, SummedTo(vector ? of_b.Squeeze(-1) : of_b, b.shape())};
}

SolveGradients SolveTriangularGrad(const NDArray& a, const NDArray& b, const NDArray& solution,
                                   const NDArray& gradient, const TriangularOptions& options) {
  constexpr const char* kOp = "solve_triangular_grad";
  CheckMatrix(kOp, "A", a, /*square=*/true);
  CheckType(kOp, "B", b);
  CheckType(kOp, "solution", solution);
  CheckAs(kOp, "gradient", gradient, solution, solution.shape());
  const bool vector = b.rank() == 1;
  const auto columns = [vector](const NDArray& x) { return vector ? x.ExpandDims(-1) : x; };
  TriangularOptions other = options;
  other.transposed = !options.transposed;
  const NDArray of_b = SolveTriangular(a, columns(gradient), other);
  const NDArray &left = options.transposed ? columns(solution) : of_b,
                &right = options.transposed ? of_b : columns(solution);
  NDArray of_a = MatMul(left, right, {.transpose_y = true});
  const int64_t diagonal = options.unit_diagonal ? (options.lower ? -1 : 1) : 0;
  of_a = options.lower ? LowerTriangle(of_a, diagonal) : UpperTriangle(of_a, diagonal);
  return {SummedTo(of_a * -1, a.shape()), SummedTo(vector ? of_b.Squeeze(-1) : of_b, b.shape())};
}

NDArray InverseGrad(const NDArray& inverse, const NDArray& gradient) {
  CheckMatrix("inverse_grad", "inverse", inverse, /*square=*/true);
  CheckAs("inverse_grad", "gradient", gradient, inverse, inverse.shape());
  return MatMul(MatMul(inverse, gradient, {.transpose_x = true}), inverse, {.transpose_y = true}) *
         -1;
}

NDArray DeterminantGrad(const NDArray& x, const NDArray& determinant, const NDArray& gradient) {
  CheckMatrix("determinant_grad", "X", x, /*square=*/true);
  CheckAs("determinant_grad", "determinant", determinant, x, LeadOf(x));
  return LogDeterminantGrad(x, gradient * determinant);
}

NDArray LogDeterminantGrad(const NDArray& x, const NDArray& gradient) {
  CheckMatrix("log_determinant_grad", "X", x, /*square=*/true);
  CheckAs("log_determinant_grad", "gradient", gradient, x, LeadOf(x));
  return Swapped(Inverse(x)) * gradient.ExpandDims(-1).ExpandDims(-1);
}

}  // namespace tidepool::linalg
