// Eigen's views of row-major matrices.
#ifndef TIDEPOOL_NDARRAY_LINALG_EIGEN_MAPS_H_
#define TIDEPOOL_NDARRAY_LINALG_EIGEN_MAPS_H_

#include "tidepool/ndarray/linalg/items.h"
// After items.h, which has its settings.
#include <eigen3/Eigen/Core>

namespace tidepool::linalg {

template <typename T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <typename T>
using Dense = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic>;

template <typename T>
Eigen::Map<const RowMajor<T>> View(const Matrices& x, int64_t item) {
  return {x.At<T>(item), x.rows, x.columns};
}

template <typename T>
Eigen::Map<RowMajor<T>> View(Result& z, int64_t item, int64_t rows, int64_t columns) {
  return {z.At<T>(item, rows * columns), rows, columns};
}

}  // namespace tidepool::linalg

#endif  // TIDEPOOL_NDARRAY_LINALG_EIGEN_MAPS_H_
