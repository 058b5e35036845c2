#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/linalg/decompositions.h"
#include "tidepool/ndarray/linalg/eigen_maps.h"
// After eigen_maps.h, which has its settings.
#include <eigen3/Eigen/Eigenvalues>

namespace tidepool::linalg {
namespace {

void Fail(const char* op, int64_t item, const char* what) {
  ThrowInvalidArgument(absl::StrCat("Op [", op, "]: matrix ", item, " of the batch ", what));
}

template <typename T>
bool LowerIsFinite(const Eigen::Map<const RowMajor<T>>& x) {
  return Dense<T>(x.template triangularView<Eigen::Lower>()).allFinite();
}

}  // namespace

SymmetricEigenResult SymmetricEigen(const NDArray& x) {
  constexpr const char* kOp = "symmetric_eigen";
  CheckMatrix(kOp, "X", x, /*square=*/true);
  const Matrices m(x);
  const Shape lead = LeadOf(x);
  const int64_t n = m.rows;
  const Place place = ResultPlace(kOp, {&x});
  Result values(With(lead, {n}), x.dtype(), place);
  Result vectors(With(lead, {n, n}), x.dtype(), place);
  VisitType(x.dtype(), [&]<typename T>(T) {
    ForEachItem(Items(lead), 9 * n * n * n, [&](int64_t item) {
      if (n == 0) return;
      const auto matrix = View<T>(m, item);
      if (!LowerIsFinite<T>(matrix))
        Fail(kOp, item, "has elements that are not finite, expected finite ones");
      const Eigen::SelfAdjointEigenSolver<Dense<T>> solver(matrix);
      if (solver.info() != Eigen::Success) Fail(kOp, item, "has eigenvalues that did not converge");
      View<T>(values, item, 1, n) = solver.eigenvalues().transpose();
      View<T>(vectors, item, n, n) = solver.eigenvectors();
    });
  });
  SymmetricEigenResult result{values.Take(), vectors.Take()};
  Note(kOp, {&x}, nullptr, result.values, result.vectors);
  return result;
}

GeneralEigenResult GeneralEigen(const NDArray& x) {
  constexpr const char* kOp = "general_eigen";
  CheckMatrix(kOp, "X", x, /*square=*/true);
  const Matrices m(x);
  const Shape lead = LeadOf(x);
  const int64_t n = m.rows;
  const Place place = ResultPlace(kOp, {&x});
  Result real(With(lead, {n}), x.dtype(), place), imaginary(With(lead, {n}), x.dtype(), place);
  Result vectors(With(lead, {n, n}), x.dtype(), place),
      imaginary_vectors(With(lead, {n, n}), x.dtype(), place);
  VisitType(x.dtype(), [&]<typename T>(T) {
    ForEachItem(Items(lead), 25 * n * n * n, [&](int64_t item) {
      if (n == 0) return;
      const auto matrix = View<T>(m, item);
      if (!matrix.allFinite())
        Fail(kOp, item, "has elements that are not finite, expected finite ones");
      const Eigen::EigenSolver<Dense<T>> solver(matrix);
      if (solver.info() != Eigen::Success) Fail(kOp, item, "has eigenvalues that did not converge");
      const auto eigenvalues = solver.eigenvalues();
      const auto eigenvectors = solver.eigenvectors();
      View<T>(real, item, 1, n) = eigenvalues.real().transpose();
      View<T>(imaginary, item, 1, n) = eigenvalues.imag().transpose();
      View<T>(vectors, item, n, n) = eigenvectors.real();
      View<T>(imaginary_vectors, item, n, n) = eigenvectors.imag();
    });
  });
  GeneralEigenResult result{real.Take(), imaginary.Take(), vectors.Take(),
                            imaginary_vectors.Take()};
  Note(kOp, {&x}, nullptr, result.values, result.imaginary_values, result.vectors,
       result.imaginary_vectors);
  return result;
}

}  // namespace tidepool::linalg
