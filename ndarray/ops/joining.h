// Joining arrays, cutting them, padding and repeating: any type, any views. Everything here is made
// of copies into slices of the result (and Split of views alone), so any backend that copies has it.
//
// Errors: kInvalidArgument naming operator, operand, found, expected; kFailedPrecondition for stale
// operands. Results are made in the current place; the ...Into forms write to a given array, which
// must not overlap an operand, and allocate nothing.
#ifndef TIDEPOOL_NDARRAY_OPS_JOINING_H_
#define TIDEPOOL_NDARRAY_OPS_JOINING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Parts with the same sizes but along `axis`, one behind the other. At least one. Those of different
// types promote (PromoteTypes of dtype.h), of all parts at once; ConcatInto writes to that type, or from
// floats to any float type.
NDArray Concat(absl::Span<const NDArray> parts, int axis = 0);
void ConcatInto(absl::Span<const NDArray> parts, int axis, NDArray& z);
// Parts of one shape, promoted in the same way, along a new axis, which -1 puts last. At least one.
NDArray Stack(absl::Span<const NDArray> parts, int axis = 0);

// Views of `count` equal parts of x along `axis`, whose size must be a multiple.
std::vector<NDArray> Split(const NDArray& x, int64_t count, int axis = 0);
// Views of parts of these sizes, which add up to the axis's.
std::vector<NDArray> Split(const NDArray& x, absl::Span<const int64_t> sizes, int axis = 0);

// before[i] and after[i] elements of `value` (converted to x's type) around x along axis i.
NDArray Pad(const NDArray& x, absl::Span<const int64_t> before, absl::Span<const int64_t> after,
            double value = 0);
void PadInto(const NDArray& x, absl::Span<const int64_t> before, absl::Span<const int64_t> after,
             double value, NDArray& z);

// x repeated whole, repeats[i] times along axis i. As in NumPy the shorter of the two, shape and
// repeats, has ones put in front.
NDArray Tile(const NDArray& x, absl::Span<const int64_t> repeats);
// Each slice along `axis` `count` times in a row.
NDArray Repeat(const NDArray& x, int64_t count, int axis = 0);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_JOINING_H_
