// Operands of systems of equations: matrices and right sides whose leading axes broadcast.
#ifndef TIDEPOOL_NDARRAY_LINALG_RIGHT_SIDES_H_
#define TIDEPOOL_NDARRAY_LINALG_RIGHT_SIDES_H_

#include "tidepool/ndarray/linalg/items.h"

namespace tidepool::linalg {

// The two leads broadcast, before the last two axes of x.
NDArray BroadcastLead(const NDArray& x, const Shape& lead);

struct RightSides {
  // Checks both.
  RightSides(const char* op, const NDArray& a, const NDArray& b, bool square);
  // [..., rows of x, right sides], or [..., rows of x] for one.
  Result MakeResult(int64_t x_rows) const;

  bool vector;  // b has rank 1
  Shape lead;
  Matrices a, b;
  int64_t n, sides, items;  // a has n rows, as b
  Place place;
  DType dtype;
};

}  // namespace tidepool::linalg

#endif  // TIDEPOOL_NDARRAY_LINALG_RIGHT_SIDES_H_
