// Elements in another order or place, differences of neighbours, diagonals, grids. Any type unless said otherwise.
//
// Errors: kInvalidArgument naming operator, operand, found, expected; kFailedPrecondition for stale operands. Results
// are made in the current place; cost: what is read and written. See also Flip, UpperTriangle and LowerTriangle of
// indexing.h, Tile, Repeat and Concat of joining.h, and NDArray::Diagonal.
#ifndef TIDEPOOL_NDARRAY_OPS_REARRANGING_H_
#define TIDEPOOL_NDARRAY_OPS_REARRANGING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Each element `shift` places on, those at the end to the front; backwards for negative shifts. Of all elements in
// row-major order; along an axis; along several.
NDArray Roll(const NDArray& x, int64_t shift);
NDArray Roll(const NDArray& x, int64_t shift, int axis);
NDArray Roll(const NDArray& x, absl::Span<const int64_t> shifts, absl::Span<const int> axes);

// x[i + 1] - x[i] along the axis, `times` times over; of bool whether they differ.
NDArray Diff(const NDArray& x, int64_t times = 1, int axis = -1);

// The sum of NDArray::Diagonal: i64 of integers and bool.
NDArray Trace(const NDArray& x, int64_t offset = 0, int axis1 = 0, int axis2 = 1);
// [n + |offset|, n + |offset|]: zeros, and the n elements of v, of rank 1, on that diagonal.
NDArray DiagonalMatrix(const NDArray& v, int64_t offset = 0);

// Slice i along `axis` counts[i] times in a row. Throws kInvalidArgument unless there are as many counts as slices, none
// negative.
NDArray RepeatEach(const NDArray& x, absl::Span<const int64_t> counts, int axis = 0);

// kColumns (NumPy's "xy"): the first two axes of the results are those of y and x; kRows ("ij"): all in order.
enum class GridOrder : uint8_t { kColumns, kRows };
// One array for each of the coordinates, of rank 1 or 0, with the sizes of all of them: views that repeat their
// elements, so nothing is copied and they cannot be written to (Dup() makes an array).
std::vector<NDArray> Meshgrid(absl::Span<const NDArray> coordinates,
                              GridOrder order = GridOrder::kColumns);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_REARRANGING_H_
