#include "tidepool/ndarray/linalg/right_sides.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"

namespace tidepool::linalg {
namespace {

const NDArray& Checked(const char* op, const NDArray& a, const NDArray& b, bool square) {
  CheckMatrix(op, "A", a, square);
  CheckType(op, "B", b);
  if (b.dtype() != a.dtype()) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: B has type ", DTypeName(b.dtype()),
                                      ", expected A's, ", DTypeName(a.dtype())));
  }
  const int64_t rows = a.dim(a.rank() - 2);
  if (b.rank() < 1 || b.dim(b.rank() == 1 ? 0 : b.rank() - 2) != rows) {
    ThrowInvalidArgument(absl::StrCat("Op [", op, "]: A has shape ", a.shape().ToString(),
                                      ", B has shape ", b.shape().ToString(), ", expected [", rows,
                                      "] or [..., ", rows, ", right sides]"));
  }
  return a;
}

NDArray AsMatrix(const NDArray& b) { return b.rank() == 1 ? b.ExpandDims(1) : b; }

}  // namespace

NDArray BroadcastLead(const NDArray& x, const Shape& lead) {
  return x.BroadcastTo(With(lead, {x.dim(x.rank() - 2), x.dim(x.rank() - 1)}));
}

RightSides::RightSides(const char* op, const NDArray& its_a, const NDArray& its_b, bool square)
    : vector(Checked(op, its_a, its_b, square).rank() > 0 && its_b.rank() == 1),
      lead(BroadcastShapes(op, LeadOf(its_a), LeadOf(AsMatrix(its_b)))),
      a(BroadcastLead(its_a, lead)),
      b(BroadcastLead(AsMatrix(its_b), lead)),
      n(a.rows),
      sides(b.columns),
      items(Items(lead)),
      place(ResultPlace(op, {&its_a, &its_b})),
      dtype(its_a.dtype()) {}

Result RightSides::MakeResult(int64_t x_rows) const {
  const Shape shape = vector ? With(lead, {x_rows}) : With(lead, {x_rows, sides});
  return Result(shape, dtype, place);
}

}  // namespace tidepool::linalg
