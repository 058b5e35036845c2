#include "tidepool/ndarray/linalg/matrix_functions.h"

#include <algorithm>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/linalg/decompositions.h"
#include "tidepool/ndarray/linalg/items.h"
#include "tidepool/ndarray/linalg/solving.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool::linalg {

NDArray Norm(const NDArray& x, MatrixNorm norm) {
  CheckMatrix("norm", "X", x, /*square=*/false);
  const int rows = x.rank() - 2, columns = x.rank() - 1;
  switch (norm) {
    case MatrixNorm::kFrobenius:
      return Norm2(x, {rows, columns});
    case MatrixNorm::kNuclear:
      return Sum(SingularValues(x), {rows});
    case MatrixNorm::kSpectral:
      return Max(SingularValues(x), {rows});
    case MatrixNorm::kOne:
      return Max(Norm1(x, {rows}), {rows});
    case MatrixNorm::kInfinity:
      return Max(Norm1(x, {columns}), {rows});
  }
  return NDArray();
}

NDArray MatrixRank(const NDArray& x, std::optional<double> cutoff) {
  CheckMatrix("matrix_rank", "X", x, /*square=*/false);
  const Matrices values(SingularValues(x).ExpandDims(-2));
  const int64_t least = values.columns;
  const double relative = CutoffOf(cutoff, x.dim(x.rank() - 2), x.dim(x.rank() - 1), x.dtype());
  Result ranks(LeadOf(x), DType::kInt64, ResultPlace("matrix_rank", {&x}));
  VisitType(x.dtype(), [&]<typename T>(T) {
    for (int64_t item = 0; item < Items(LeadOf(x)); ++item) {
      const T* const of_item = values.At<T>(item);
      *ranks.At<int64_t>(item, 1) = std::count_if(of_item, of_item + least, [&](T value) {
        return static_cast<double>(value) > relative * static_cast<double>(of_item[0]);
      });
    }
  });
  return ranks.Take();
}

NDArray MatrixPower(const NDArray& x, int64_t exponent) {
  CheckMatrix("matrix_power", "X", x, /*square=*/true);
  NDArray base = exponent < 0 ? Inverse(x) : x, power;
  for (uint64_t left = exponent < 0 ? 0 - static_cast<uint64_t>(exponent)
                                    : static_cast<uint64_t>(exponent);
       left > 0; left >>= 1) {
    if ((left & 1) != 0) power = power.is_defined() ? MatMul(power, base) : base;
    if (left > 1) base = MatMul(base, base);
  }
  if (!power.is_defined()) {
    power =
        Eye(x.dim(x.rank() - 1), x.dim(x.rank() - 1), 0, x.dtype(), Place::CurrentOn(x.device()))
            .BroadcastTo(x.shape());
  }
  // A result of its own, whatever it is of x.
  NDArray z(x.shape(), x.dtype(), ResultPlace("matrix_power", {&x}));
  CopyInto(power, z);
  return z;
}

}  // namespace tidepool::linalg
