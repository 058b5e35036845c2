#include "tidepool/ndarray/linalg/solving.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/linalg/eigen_maps.h"
#include "tidepool/ndarray/linalg/right_sides.h"
// After eigen_maps.h, which has its settings.
#include <eigen3/Eigen/LU>

namespace tidepool::linalg {
namespace {

// The factors, where no pivot is 0.
template <typename T>
Eigen::PartialPivLU<Dense<T>> Factors(const char* op, const Eigen::Map<const RowMajor<T>>& matrix,
                                      int64_t item) {
  Eigen::PartialPivLU<Dense<T>> lu(matrix);
  for (int64_t i = 0; i < matrix.rows(); ++i) {
    if (lu.matrixLU()(i, i) == T(0)) ThrowSingular(op, item, i, matrix.rows());
  }
  return lu;
}

template <typename T, unsigned kMode, typename A, typename B, typename Z>
void SolveMode(const A& a, const B& b, bool transposed, Z z) {
  const Dense<T> sides = b;
  const Dense<T> matrix = a;
  if (transposed) {
    constexpr unsigned kOther =
        (kMode & Eigen::UnitDiag) | ((kMode & Eigen::Lower) != 0 ? Eigen::Upper : Eigen::Lower);
    z = matrix.transpose().template triangularView<kOther>().solve(sides);
  } else {
    z = matrix.template triangularView<kMode>().solve(sides);
  }
}

// visit(item, sign of the determinant, logarithm of its absolute value, itself).
template <typename T, typename Visit>
void ForEachDeterminant(const Matrices& m, int64_t items, Visit visit) {
  const int64_t n = m.rows;
  ForEachItem(items, n * n * n, [&](int64_t item) {
    if (n == 0) return visit(item, T(1), T(0), T(1));
    const Eigen::PartialPivLU<Dense<T>> lu(View<T>(m, item));
    T sign = static_cast<T>(lu.permutationP().determinant()), product = sign;
    double log = 0;
    for (int64_t i = 0; i < n; ++i) {
      const T pivot = lu.matrixLU()(i, i);
      product *= pivot;
      if (pivot == T(0)) sign = 0;
      if (pivot < 0) sign = -sign;
      log += std::log(std::abs(static_cast<double>(pivot)));
      if (std::isnan(pivot)) sign = pivot;
    }
    if (sign == 0) {  // Eigen leaves NaN behind a pivot of 0
      product = 0;
      log = -std::numeric_limits<double>::infinity();
    }
    visit(item, sign, static_cast<T>(log), product);
  });
}

}  // namespace

NDArray Solve(const NDArray& a, const NDArray& b) {
  const RightSides s("solve", a, b, /*square=*/true);
  Result x = s.MakeResult(s.n);
  VisitType(a.dtype(), [&]<typename T>(T) {
    ForEachItem(s.items, s.n * s.n * (s.n + s.sides), [&](int64_t item) {
      const auto lu = Factors<T>("solve", View<T>(s.a, item), item);
      View<T>(x, item, s.n, s.sides) = lu.solve(Dense<T>(View<T>(s.b, item)));
    });
  });
  NDArray solution = x.Take();
  Note(
      "solve", {&a, &b},
      [a, b, solution](absl::Span<const NDArray> dz) {
        SolveGradients gradients = SolveGrad(a, b, solution, dz[0]);
        return std::vector<NDArray>{std::move(gradients.a), std::move(gradients.b)};
      },
      solution);
  return solution;
}

NDArray SolveTriangular(const NDArray& a, const NDArray& b, const TriangularOptions& options) {
  const RightSides s("solve_triangular", a, b, /*square=*/true);
  Result x = s.MakeResult(s.n);
  VisitType(a.dtype(), [&]<typename T>(T) {
    ForEachItem(s.items, s.n * s.n * s.sides, [&](int64_t item) {
      const auto matrix = View<T>(s.a, item);
      for (int64_t i = 0; !options.unit_diagonal && i < s.n; ++i) {
        if (matrix(i, i) == T(0)) ThrowSingular("solve_triangular", item, i, s.n);
      }
      const auto sides = View<T>(s.b, item);
      const auto z = View<T>(x, item, s.n, s.sides);
      if (options.lower && options.unit_diagonal) {
        SolveMode<T, Eigen::UnitLower>(matrix, sides, options.transposed, z);
      } else if (options.lower) {
        SolveMode<T, Eigen::Lower>(matrix, sides, options.transposed, z);
      } else if (options.unit_diagonal) {
        SolveMode<T, Eigen::UnitUpper>(matrix, sides, options.transposed, z);
      } else {
        SolveMode<T, Eigen::Upper>(matrix, sides, options.transposed, z);
      }
    });
  });
  NDArray solution = x.Take();
  Note(
      "solve_triangular", {&a, &b},
      [a, b, solution, options](absl::Span<const NDArray> dz) {
        SolveGradients gradients = SolveTriangularGrad(a, b, solution, dz[0], options);
        return std::vector<NDArray>{std::move(gradients.a), std::move(gradients.b)};
      },
      solution);
  return solution;
}

NDArray Inverse(const NDArray& x) {
  CheckMatrix("inverse", "X", x, /*square=*/true);
  const Matrices m(x);
  Result z(x.shape(), x.dtype(), ResultPlace("inverse", {&x}));
  VisitType(x.dtype(), [&]<typename T>(T) {
    ForEachItem(Items(LeadOf(x)), 2 * m.rows * m.rows * m.rows, [&](int64_t item) {
      View<T>(z, item, m.rows, m.rows) = Factors<T>("inverse", View<T>(m, item), item).inverse();
    });
  });
  NDArray inverse = z.Take();
  Note(
      "inverse", {&x},
      [inverse](absl::Span<const NDArray> dz) {
        return std::vector<NDArray>{InverseGrad(inverse, dz[0])};
      },
      inverse);
  return inverse;
}

NDArray Determinant(const NDArray& x) {
  CheckMatrix("determinant", "X", x, /*square=*/true);
  const Matrices m(x);
  Result z(LeadOf(x), x.dtype(), ResultPlace("determinant", {&x}));
  VisitType(x.dtype(), [&]<typename T>(T) {
    ForEachDeterminant<T>(m, Items(LeadOf(x)),
                          [&](int64_t item, T, T, T value) { *z.At<T>(item, 1) = value; });
  });
  NDArray determinant = z.Take();
  Note(
      "determinant", {&x},
      [x, determinant](absl::Span<const NDArray> dz) {
        return std::vector<NDArray>{DeterminantGrad(x, determinant, dz[0])};
      },
      determinant);
  return determinant;
}

LogDeterminant SignAndLogDeterminant(const NDArray& x) {
  constexpr const char* kOp = "sign_and_log_determinant";
  CheckMatrix(kOp, "X", x, /*square=*/true);
  const Matrices m(x);
  const Place place = ResultPlace(kOp, {&x});
  Result signs(LeadOf(x), x.dtype(), place), logs(LeadOf(x), x.dtype(), place);
  VisitType(x.dtype(), [&]<typename T>(T) {
    ForEachDeterminant<T>(m, Items(LeadOf(x)), [&](int64_t item, T sign, T log, T) {
      *signs.At<T>(item, 1) = sign;
      *logs.At<T>(item, 1) = log;
    });
  });
  LogDeterminant result{signs.Take(), logs.Take()};
  // The sign is the same when x is moved a little.
  Note(
      kOp, {&x},
      [x](absl::Span<const NDArray> dz) {
        return std::vector<NDArray>{dz[1].is_defined() ? LogDeterminantGrad(x, dz[1]) : NDArray()};
      },
      result.sign, result.log);
  return result;
}

}  // namespace tidepool::linalg
