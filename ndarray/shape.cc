#include "tidepool/ndarray/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"

namespace tidepool {

Shape::Shape(absl::Span<const int64_t> dims) : rank_(static_cast<int>(dims.size())) {
  const auto text = [&] { return absl::StrCat("[", absl::StrJoin(dims, ", "), "]"); };
  if (dims.size() > kMaxRank) {
    ThrowInvalidArgument(
        absl::StrCat("shape ", text(), " has rank ", dims.size(), ", expected at most ", kMaxRank));
  }
  constexpr int64_t kMost = int64_t{1} << 59;
  int64_t count = 1;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] < 0) {
      ThrowInvalidArgument(absl::StrCat("shape ", text(), " is negative in axis ", i));
    }
    // Eight bytes an element must be addressable.
    if (__builtin_mul_overflow(count, std::max<int64_t>(dims[i], 1), &count) || count > kMost) {
      ThrowInvalidArgument(absl::StrCat("shape ", text(), " has more than 2^59 elements"));
    }
    dims_[i] = dims[i];
  }
}

std::string Shape::ToString() const { return absl::StrCat("[", absl::StrJoin(span(), ", "), "]"); }

Shape BroadcastShapes(const char* op, const Shape& x, const Shape& y) {
  if (x == y) return x;
  const int rank = std::max(x.rank(), y.rank());
  int64_t dims[kMaxRank];
  for (int i = 0; i < rank; ++i) {
    const int xi = i - (rank - x.rank());
    const int yi = i - (rank - y.rank());
    const int64_t a = xi >= 0 ? x[xi] : 1;
    const int64_t b = yi >= 0 ? y[yi] : 1;
    if (a != b && a != 1 && b != 1) {
      ThrowInvalidArgument(absl::StrCat("Op [", op, "]: X has shape ", x.ToString(),
                                        ", Y has shape ", y.ToString(), "; sizes ", a, " and ", b,
                                        " do not broadcast"));
    }
    dims[i] = a == 1 ? b : a;
  }
  return Shape(absl::Span<const int64_t>(dims, rank));
}

int NormalizeAxis(const char* op, int axis, int rank) {
  if (axis < -rank || axis >= rank) {
    const std::string where =
        absl::StrCat("Op [", op, "]: axis ", axis, " of an array of rank ", rank);
    if (rank == 0) ThrowInvalidArgument(absl::StrCat(where, ", which has none"));
    ThrowInvalidArgument(absl::StrCat(where, ", expected ", -rank, " to ", rank - 1));
  }
  return axis < 0 ? axis + rank : axis;
}

}  // namespace tidepool
