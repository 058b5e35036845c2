#include "tidepool/ndarray/linalg/decompositions.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/linalg/eigen_maps.h"
// After eigen_maps.h, which has its settings.
#include <eigen3/Eigen/Cholesky>
#include <eigen3/Eigen/LU>
#include <eigen3/Eigen/QR>
#include <eigen3/Eigen/SVD>

namespace tidepool::linalg {
namespace {

int64_t Cube(int64_t rows, int64_t columns) { return rows * columns * std::min(rows, columns); }

struct Decomposed {
  Matrices x;
  Shape lead;
  int64_t rows, columns, least;
  Place place;
  DType dtype;

  Decomposed(const char* op, const NDArray& array, bool square)
      : x((CheckMatrix(op, "X", array, square), array)),
        lead(LeadOf(array)),
        rows(x.rows),
        columns(x.columns),
        least(std::min(rows, columns)),
        place(ResultPlace(op, {&array})),
        dtype(array.dtype()) {}
  Result Make(std::initializer_list<int64_t> more) const {
    return Result(With(lead, absl::MakeConstSpan(more.begin(), more.size())), dtype, place);
  }
};

template <typename T>
void CheckFinite(const char* op, int64_t item, const Eigen::Map<const RowMajor<T>>& matrix) {
  if (matrix.allFinite()) return;
  ThrowInvalidArgument(
      absl::StrCat("Op [", op, "]: matrix ", item,
                   " of the batch has elements that are not finite, expected finite ones"));
}

template <typename T>
void SvdOf(const char* op, const Decomposed& d, SvdMode mode, Result* u, Result& values,
           Result* v) {
  const bool full = mode == SvdMode::kFull;
  const int64_t wide = full ? d.rows : d.least, high = full ? d.columns : d.least;
  ForEachItem(Items(d.lead), 8 * Cube(d.rows, d.columns), [&](int64_t item) {
    if (d.least == 0) {
      if (u != nullptr) View<T>(*u, item, d.rows, wide).setIdentity();
      if (v != nullptr) View<T>(*v, item, high, d.columns).setIdentity();
      return;
    }
    const auto matrix = View<T>(d.x, item);
    CheckFinite<T>(op, item, matrix);
    unsigned options = 0;
    if (u != nullptr)
      options = full ? Eigen::ComputeFullU | Eigen::ComputeFullV
                     : Eigen::ComputeThinU | Eigen::ComputeThinV;
    const Eigen::BDCSVD<Dense<T>> svd(matrix, options);
    View<T>(values, item, 1, d.least) = svd.singularValues().transpose();
    if (u == nullptr) return;
    View<T>(*u, item, d.rows, wide) = svd.matrixU();
    View<T>(*v, item, high, d.columns) = svd.matrixV().transpose();
  });
}

}  // namespace

NDArray Cholesky(const NDArray& x) {
  const Decomposed d("cholesky", x, /*square=*/true);
  Result l = d.Make({d.rows, d.rows});
  VisitType(d.dtype, [&]<typename T>(T) {
    ForEachItem(Items(d.lead), Cube(d.rows, d.rows) / 3, [&](int64_t item) {
      const Eigen::LLT<Dense<T>> llt(View<T>(d.x, item));
      if (llt.info() != Eigen::Success) {
        ThrowInvalidArgument(
            absl::StrCat("Op [cholesky]: matrix ", item,
                         " of the batch is not positive definite, expected one that is"));
      }
      View<T>(l, item, d.rows, d.rows) = Dense<T>(llt.matrixL());
    });
  });
  NDArray lower = l.Take();
  Note(
      "cholesky", {&x},
      [lower](absl::Span<const NDArray> dz) {
        return std::vector<NDArray>{CholeskyGrad(lower, dz[0])};
      },
      lower);
  return lower;
}

QrResult Qr(const NDArray& x, QrMode mode) {
  const Decomposed d("qr", x, /*square=*/false);
  const int64_t inner = mode == QrMode::kFull ? d.rows : d.least;
  Result q = d.Make({d.rows, inner}), r = d.Make({inner, d.columns});
  VisitType(d.dtype, [&]<typename T>(T) {
    ForEachItem(Items(d.lead), 2 * Cube(d.rows, d.columns), [&](int64_t item) {
      auto to_q = View<T>(q, item, d.rows, inner);
      auto to_r = View<T>(r, item, inner, d.columns);
      if (d.least == 0) {
        to_q.setIdentity();
        to_r.setZero();
        return;
      }
      const Eigen::HouseholderQR<Dense<T>> qr(View<T>(d.x, item));
      to_q = qr.householderQ() * Dense<T>::Identity(d.rows, inner);
      to_r.setZero();
      to_r.topRows(d.least) =
          qr.matrixQR().topRows(d.least).template triangularView<Eigen::Upper>();
    });
  });
  QrResult result{q.Take(), r.Take()};
  Note("qr", {&x}, nullptr, result.q, result.r);
  return result;
}

LuResult Lu(const NDArray& x) {
  const Decomposed d("lu", x, /*square=*/false);
  Result p = d.Make({d.rows, d.rows}), l = d.Make({d.rows, d.least}),
         u = d.Make({d.least, d.columns});
  VisitType(d.dtype, [&]<typename T>(T) {
    ForEachItem(Items(d.lead), Cube(d.rows, d.columns), [&](int64_t item) {
      // Of any shape: Eigen's own with partial pivoting is of square matrices that are regular.
      Dense<T> a = View<T>(d.x, item);
      auto to_p = View<T>(p, item, d.rows, d.rows);
      Dense<T> permutation = Dense<T>::Identity(d.rows, d.rows);
      for (int64_t k = 0; k < d.least; ++k) {
        Eigen::Index pivot = 0;
        a.col(k).tail(d.rows - k).cwiseAbs().maxCoeff(&pivot);
        pivot += k;
        if (pivot != k) {
          a.row(k).swap(a.row(pivot));
          permutation.row(k).swap(permutation.row(pivot));
        }
        if (a(k, k) == T(0)) continue;
        a.col(k).tail(d.rows - k - 1) /= a(k, k);
        a.bottomRightCorner(d.rows - k - 1, d.columns - k - 1).noalias() -=
            a.col(k).tail(d.rows - k - 1) * a.row(k).tail(d.columns - k - 1);
      }
      to_p = permutation.transpose();
      View<T>(l, item, d.rows, d.least) =
          Dense<T>(a.leftCols(d.least).template triangularView<Eigen::UnitLower>());
      View<T>(u, item, d.least, d.columns) =
          Dense<T>(a.topRows(d.least).template triangularView<Eigen::Upper>());
    });
  });
  LuResult result{p.Take(), l.Take(), u.Take()};
  Note("lu", {&x}, nullptr, result.p, result.l, result.u);
  return result;
}

SvdResult Svd(const NDArray& x, SvdMode mode) {
  const Decomposed d("svd", x, /*square=*/false);
  const bool full = mode == SvdMode::kFull;
  Result u = d.Make({d.rows, full ? d.rows : d.least}), values = d.Make({d.least}),
         v = d.Make({full ? d.columns : d.least, d.columns});
  VisitType(d.dtype, [&]<typename T>(T) { SvdOf<T>("svd", d, mode, &u, values, &v); });
  SvdResult result{u.Take(), values.Take(), v.Take()};
  Note("svd", {&x}, nullptr, result.u, result.values, result.v_transposed);
  return result;
}

NDArray SingularValues(const NDArray& x) {
  const Decomposed d("singular_values", x, /*square=*/false);
  Result values = d.Make({d.least});
  VisitType(d.dtype, [&]<typename T>(T) {
    SvdOf<T>("singular_values", d, SvdMode::kReduced, nullptr, values, nullptr);
  });
  NDArray result = values.Take();
  Note("singular_values", {&x}, nullptr, result);
  return result;
}

}  // namespace tidepool::linalg
