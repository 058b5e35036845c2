// Norms, ranks and powers of matrices [..., rows, columns] of f32 or f64: as in decompositions.h.
#ifndef TIDEPOOL_NDARRAY_LINALG_MATRIX_FUNCTIONS_H_
#define TIDEPOOL_NDARRAY_LINALG_MATRIX_FUNCTIONS_H_

#include <cstdint>
#include <optional>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool::linalg {

enum class MatrixNorm : uint8_t {
  kFrobenius,  // root of the sum of squares
  kNuclear,    // sum of the singular values
  kSpectral,   // the largest of them; NumPy's 2
  kOne,        // largest sum of a column's absolute values
  kInfinity,   // largest sum of a row's
};
NDArray Norm(const NDArray& x, MatrixNorm norm = MatrixNorm::kFrobenius);

// How many singular values are larger than `cutoff` times the largest (as in LeastSquares): i64.
NDArray MatrixRank(const NDArray& x, std::optional<double> cutoff = {});

// x to the power of a whole number, by repeated squares; of its inverse where it is negative; 0: the identity. Square
// matrices of the types of MatMul.
NDArray MatrixPower(const NDArray& x, int64_t exponent);

}  // namespace tidepool::linalg

#endif  // TIDEPOOL_NDARRAY_LINALG_MATRIX_FUNCTIONS_H_
