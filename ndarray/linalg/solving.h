// Systems of linear equations, inverses and determinants, by Eigen: types, batches, places, memory and errors as in
// decompositions.h.
//
//   linalg::Solve(a, b)                                   // x with a x = b
//   linalg::LeastSquares(a, b)                            // x with the least |a x - b|
//
// b of rank 1 is one right side; of a higher rank its columns are right sides, and its leading axes broadcast with a's.
//
// A matrix that is singular to the bit (a pivot of 0) is an error that says which of the batch it is, as in NumPy; one
// that is nearly so gives what it gives: see MatrixRank and Svd. NaN gives NaN.
#ifndef TIDEPOOL_NDARRAY_LINALG_SOLVING_H_
#define TIDEPOOL_NDARRAY_LINALG_SOLVING_H_

#include <optional>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool::linalg {

NDArray Solve(const NDArray& a, const NDArray& b);  // with partial pivoting

struct TriangularOptions {
  bool lower = true;
  bool transposed = false;     // of a: a^T x = b
  bool unit_diagonal = false;  // the diagonal is not read and 1
};
// Only that triangle of a is read.
NDArray SolveTriangular(const NDArray& a, const NDArray& b, const TriangularOptions& options = {});

NDArray Inverse(const NDArray& x);
NDArray Determinant(const NDArray& x);  // 0 of singular matrices, 1 of empty ones
struct LogDeterminant {
  NDArray sign, log;  // determinant = sign * exp(log); of singular matrices 0 and -infinity
};
LogDeterminant SignAndLogDeterminant(const NDArray& x);

// Singular values of at most `cutoff` times the largest count as 0; without one it is the larger of rows and columns
// times the type's epsilon.
struct LeastSquaresResult {
  NDArray solution;         // the shortest of those with the least residual
  NDArray rank;             // i64, of each matrix
  NDArray singular_values;  // of a
};
LeastSquaresResult LeastSquares(const NDArray& a, const NDArray& b,
                                std::optional<double> cutoff = {});
NDArray PseudoInverse(const NDArray& x, std::optional<double> cutoff = {});

// Gradients: from the results and their gradients.
struct SolveGradients {
  NDArray a, b;  // as the operands of Solve; axes that were broadcast are summed up
};
SolveGradients SolveGrad(const NDArray& a, const NDArray& b, const NDArray& solution,
                         const NDArray& gradient);
SolveGradients SolveTriangularGrad(const NDArray& a, const NDArray& b, const NDArray& solution,
                                   const NDArray& gradient, const TriangularOptions& options = {});
NDArray InverseGrad(const NDArray& inverse, const NDArray& gradient);
// Of regular matrices x alone.
NDArray DeterminantGrad(const NDArray& x, const NDArray& determinant, const NDArray& gradient);
NDArray LogDeterminantGrad(const NDArray& x, const NDArray& gradient);  // of the log

}  // namespace tidepool::linalg

#endif  // TIDEPOOL_NDARRAY_LINALG_SOLVING_H_
