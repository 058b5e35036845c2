#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/linalg/eigen_maps.h"
#include "tidepool/ndarray/linalg/right_sides.h"
#include "tidepool/ndarray/linalg/solving.h"
// After eigen_maps.h, which has its settings.
#include <eigen3/Eigen/SVD>

namespace tidepool::linalg {
namespace {

// V diag(1 / values, 0 where they count as 0) U^T, as factors; the number of those that do not.
template <typename T>
struct PseudoInverseFactors {
  Eigen::BDCSVD<Dense<T>> svd;
  Eigen::Matrix<T, Eigen::Dynamic, 1> inverse;
  int64_t rank = 0;

  PseudoInverseFactors(const char* op, int64_t item, const Eigen::Map<const RowMajor<T>>& x,
                       double cutoff) {
    if (!x.allFinite()) {
      ThrowInvalidArgument(
          absl::StrCat("Op [", op, "]: matrix ", item,
                       " of the batch has elements that are not finite, expected finite ones"));
    }
    svd.compute(x, Eigen::ComputeThinU | Eigen::ComputeThinV);
    inverse = svd.singularValues();
    const double least = cutoff * static_cast<double>(inverse(0));
    for (Eigen::Index i = 0; i < inverse.size(); ++i) {
      const bool counts = static_cast<double>(inverse(i)) > least;
      rank += counts ? 1 : 0;
      inverse(i) = counts ? 1 / inverse(i) : T(0);
    }
  }
};

}  // namespace

LeastSquaresResult LeastSquares(const NDArray& a, const NDArray& b, std::optional<double> cutoff) {
  const RightSides s("least_squares", a, b, /*square=*/false);
  const int64_t columns = s.a.columns, least = std::min(s.n, columns);
  const double relative = CutoffOf(cutoff, s.n, columns, a.dtype());
  Result x = s.MakeResult(columns), ranks(s.lead, DType::kInt64, s.place),
         values(With(s.lead, {least}), s.dtype, s.place);
  VisitType(a.dtype(), [&]<typename T>(T) {
    ForEachItem(s.items, 8 * s.n * columns * least, [&](int64_t item) {
      auto solution = View<T>(x, item, columns, s.sides);
      if (least == 0) {
        solution.setZero();
        *ranks.At<int64_t>(item, 1) = 0;
        return;
      }
      const PseudoInverseFactors<T> f("least_squares", item, View<T>(s.a, item), relative);
      View<T>(values, item, 1, least) = f.svd.singularValues().transpose();
      *ranks.At<int64_t>(item, 1) = f.rank;
      const Dense<T> sides = View<T>(s.b, item);
      const Dense<T> rotated = f.inverse.asDiagonal() * (f.svd.matrixU().transpose() * sides);
      solution = f.svd.matrixV() * rotated;
    });
  });
  LeastSquaresResult result{x.Take(), ranks.Take(), values.Take()};
  Note("least_squares", {&a, &b}, nullptr, result.solution, result.rank, result.singular_values);
  return result;
}

NDArray PseudoInverse(const NDArray& x, std::optional<double> cutoff) {
  CheckMatrix("pseudo_inverse", "X", x, /*square=*/false);
  const Matrices m(x);
  const double relative = CutoffOf(cutoff, m.rows, m.columns, x.dtype());
  Result z(With(LeadOf(x), {m.columns, m.rows}), x.dtype(), ResultPlace("pseudo_inverse", {&x}));
  VisitType(x.dtype(), [&]<typename T>(T) {
    ForEachItem(
        Items(LeadOf(x)), 8 * m.rows * m.columns * std::min(m.rows, m.columns), [&](int64_t item) {
          if (m.rows == 0 || m.columns == 0) return;
          const PseudoInverseFactors<T> f("pseudo_inverse", item, View<T>(m, item), relative);
          const Dense<T> scaled = f.svd.matrixV() * f.inverse.asDiagonal();
          View<T>(z, item, m.columns, m.rows) = scaled * f.svd.matrixU().transpose();
        });
  });
  NDArray result = z.Take();
  Note("pseudo_inverse", {&x}, nullptr, result);
  return result;
}

}  // namespace tidepool::linalg
