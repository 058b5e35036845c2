// Decompositions of matrices, by Eigen.
//
//   linalg::SvdResult d = linalg::Svd(x);                 // x = u diag(values) v^T
//   linalg::Cholesky(x)                                   // lower l with x = l l^T
//
// x [..., rows, columns], f32 or f64 and computed in that type; leading axes are a batch whose matrices run on the threads
// of kernels (SetThreadCount), each on one. Everything runs on the host: arrays of a device are copied there and results
// back. Results share nothing with x and are made in the current place; dense copies of operands are scratch of the call.
// Eigen's own workspaces, up to some matrices of the size of one item for each thread, come from malloc and go with the
// call; no workspace or budget knows of them.
//
// Signs: a decomposition is determined up to signs of columns; those here are Eigen's, and differ from LAPACK's.
//
// Errors: kInvalidArgument naming operator, type and shape; and, where there is no result, the matrix of the batch.
#ifndef TIDEPOOL_NDARRAY_LINALG_DECOMPOSITIONS_H_
#define TIDEPOOL_NDARRAY_LINALG_DECOMPOSITIONS_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool::linalg {

// Of symmetric positive definite matrices; only the lower triangle is read. A matrix that is not positive definite is an
// error. 0 above the diagonal.
NDArray Cholesky(const NDArray& x);

// x = q r, r upper triangular; reduced: q [..., rows, least], r [..., least, columns], where least is the smaller of rows
// and columns. kFull: q is square.
enum class QrMode : uint8_t { kReduced, kFull };
// Qr's: of x's type.
struct QrResult {
  NDArray q, r;  // as above
};
// Of matrices of any shape.
QrResult Qr(const NDArray& x, QrMode mode = QrMode::kReduced);

// x = p l u with partial pivoting: l [..., rows, least] lower with a diagonal of 1, u [..., least, columns] upper, p
// [..., rows, rows] of zeros and ones. Singular matrices have one too.
struct LuResult {
  NDArray p, l, u;  // as above, of x's type
};
// Of matrices of any shape.
LuResult Lu(const NDArray& x);

// x = u diag(values) v_transposed; values fall and are not negative. Reduced: u [..., rows, least], v_transposed
// [..., least, columns]. kFull: both are square. Elements that are not finite are an error.
enum class SvdMode : uint8_t { kReduced, kFull };
// Svd's: of x's type.
struct SvdResult {
  NDArray u, values, v_transposed;  // as above; values [..., least]
};
// Of matrices of any shape.
SvdResult Svd(const NDArray& x, SvdMode mode = SvdMode::kReduced);
// The values alone, which costs less.
NDArray SingularValues(const NDArray& x);

// Of symmetric matrices, of which only the lower triangle is read: x vectors = vectors diag(values), values rise,
// columns of vectors [..., n, n] are orthonormal.
struct SymmetricEigenResult {
  NDArray values, vectors;  // [..., n] and [..., n, n], of x's type
};
// Of x [..., n, n].
SymmetricEigenResult SymmetricEigen(const NDArray& x);

// Of any real square matrices: values and vectors are complex, real and imaginary parts are arrays beside each other (there
// is no complex type). Conjugates follow each other; columns of vectors have the norm 1. Elements that are not finite are
// an error.
struct GeneralEigenResult {
  NDArray values, imaginary_values, vectors, imaginary_vectors;  // [..., n] and [..., n, n]
};
// Of x [..., n, n].
GeneralEigenResult GeneralEigen(const NDArray& x);

// From l = Cholesky(x) and the gradient of l; symmetric.
NDArray CholeskyGrad(const NDArray& l, const NDArray& gradient);

}  // namespace tidepool::linalg

#endif  // TIDEPOOL_NDARRAY_LINALG_DECOMPOSITIONS_H_
