// What normalizers learn from arrays, of normalizer.cc and multi_normalizer.cc alone.
#ifndef TIDEPOOL_NN_DATA_NORMALIZER_SUMS_H_
#define TIDEPOOL_NN_DATA_NORMALIZER_SUMS_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/data/normalizer.h"

namespace tidepool::nn {

[[noreturn]] inline void ThrowNotFitted() {
  ThrowFailedPrecondition("normalizer: found none that is fitted, expected Fit() first");
}

inline int64_t ColumnsIn(const NDArray& array, const char* what) {
  if (!array.is_defined() || array.rank() < 1) {
    ThrowInvalidArgument(absl::StrCat("normalizer: ", what, ": found ",
                                      array.is_defined() ? "an array without axes" : "none",
                                      ", expected columns as the last axis"));
  }
  return array.dim(array.rank() - 1);
}

// A batch may be a view of the program's own array, which is not to be changed.
inline void TakeOwnMemory(NDArray& array) {
  const Buffer* const buffer = array.buffer().get();
  if (buffer == nullptr || array.dtype() == DType::kUInt8) return;  // which becomes another array
  const bool is_own = buffer->references.load(std::memory_order_acquire) == 1 && !buffer->imported;
  if (!is_own) array = array.Dup();
}

// Calls visit(first value) of an array of numbers.
template <typename Visit>
void VisitNumbers(const NDArray& array, const char* what, Visit visit) {
  switch (array.dtype()) {
    case DType::kFloat32:
      return visit(float());
    case DType::kFloat64:
      return visit(double());
    case DType::kUInt8:
      return visit(uint8_t());
    default:
      ThrowInvalidArgument(absl::StrCat("normalizer: ", what, ": found ", DTypeName(array.dtype()),
                                        ", expected f32, f64 or u8"));
  }
}

// Of each column, by Welford's way, which loses nothing where values are large and lie close
// together.
struct Normalizer::Sums {
  int64_t count = 0;
  std::vector<double> mean, squares, least, greatest;

  void Add(const NDArray& array, const NDArray& mask, const char* what) {
    const int64_t columns = ColumnsIn(array, what);
    if (columns == 0) return;
    if (mean.empty()) {
      const auto size = static_cast<size_t>(columns);
      mean.resize(size);
      squares.resize(size);
      least.assign(size, std::numeric_limits<double>::infinity());
      greatest.assign(size, -std::numeric_limits<double>::infinity());
    }
    if (static_cast<size_t>(columns) != mean.size()) {
      ThrowInvalidArgument(absl::StrCat("normalizer: ", what, ": found ", columns,
                                        " columns, expected ", mean.size(),
                                        " as in the batches before"));
    }
    const int64_t rows = array.NumElements() / columns;
    const std::vector<float> steps = MaskOf(array, mask, rows, what);
    VisitNumbers(array, what, [&]<typename T>(T) {
      const T* values = array.data<T>();
      for (int64_t row = 0; row < rows; ++row, values += columns) {
        if (!steps.empty() && steps[static_cast<size_t>(row)] == 0) continue;
        ++count;
        for (int64_t column = 0; column < columns; ++column) {
          AddOne(static_cast<size_t>(column), static_cast<double>(values[column]), what);
        }
      }
    });
  }

 private:
  // Of each row whether it counts; empty: all do.
  static std::vector<float> MaskOf(const NDArray& array, const NDArray& mask, int64_t rows,
                                   const char* what) {
    if (!mask.is_defined() || array.rank() < 3) return {};
    if (mask.dtype() != DType::kFloat32 || mask.NumElements() != rows) {
      ThrowInvalidArgument(absl::StrCat(
          "normalizer: mask of ", what, ": found ", DTypeName(mask.dtype()), " of shape ",
          mask.shape().ToString(), ", expected f32 for ", rows, " steps"));
    }
    return mask.ToVector<float>();
  }

  void AddOne(size_t column, double value, const char* what) {
    if (!std::isfinite(value)) {
      ThrowDataLoss(absl::StrCat("normalizer: ", what, ": column ", column, ": found ", value,
                                 ", expected a finite number"));
    }
    const double away = value - mean[column];
    mean[column] += away / static_cast<double>(count);
    squares[column] += away * (value - mean[column]);
    least[column] = std::min(least[column], value);
    greatest[column] = std::max(greatest[column], value);
  }
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_NORMALIZER_SUMS_H_
