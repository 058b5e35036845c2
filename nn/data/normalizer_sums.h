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
#include "tidepool/ndarray/view_overlap.h"
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

// Before `changed` is changed in its place: `other` becomes a copy where they have elements in common,
// as features and labels of an autoencoder may.
inline void Separate(const NDArray& changed, NDArray& other) {
  if (!changed.is_defined() || !other.is_defined()) return;
  if (changed.dtype() == DType::kUInt8) return;  // which becomes another array
  if (ViewsOverlap(changed, other)) other = other.Dup();
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
  int64_t count = 0;            // values of all columns
  std::vector<int64_t> counts;  // of each
  std::vector<double> mean, squares, least, greatest;

  void Add(const NDArray& array, const NDArray& mask, const char* what) {
    const int64_t columns = ColumnsIn(array, what);
    if (columns == 0) return;
    if (mean.empty()) {
      const auto size = static_cast<size_t>(columns);
      counts.resize(size);
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
    const std::vector<float> weights = WeightsOf(array, mask, what);
    const int64_t values_of_each =
        weights.empty() ? 1 : array.NumElements() / static_cast<int64_t>(weights.size());
    VisitNumbers(array, what, [&]<typename T>(T) {
      const T* values = array.data<T>();
      size_t column = 0, weight = 0;
      for (int64_t i = 0, left = values_of_each; i < array.NumElements(); ++i) {
        if (weights.empty() || weights[weight] != 0)
          AddOne(column, static_cast<double>(values[i]), what);
        if (++column == mean.size()) column = 0;
        if (--left > 0) continue;
        left = values_of_each;
        ++weight;
      }
    });
  }

 private:
  // Of as many neighbouring values each whether they count; empty: all do. A mask's shape is what that of
  // the array begins with, as those of losses and evaluations: examples, steps or single values.
  static std::vector<float> WeightsOf(const NDArray& array, const NDArray& mask, const char* what) {
    if (!mask.is_defined() || array.NumElements() == 0) return {};
    int axes = mask.rank();
    while (axes > 0 && mask.dim(axes - 1) == 1 && (axes > array.rank() || array.dim(axes - 1) != 1))
      --axes;  // [n, 1] is [n]
    bool fits = axes <= array.rank();
    for (int axis = 0; fits && axis < axes; ++axis) fits = mask.dim(axis) == array.dim(axis);
    if (mask.dtype() != DType::kFloat32 || !fits) {
      ThrowInvalidArgument(absl::StrCat("normalizer: mask of ", what, ": found ",
                                        DTypeName(mask.dtype()), " of shape ",
                                        mask.shape().ToString(), ", expected f32 of one that ",
                                        array.shape().ToString(), " begins with"));
    }
    return mask.ToVector<float>();
  }

  void AddOne(size_t column, double value, const char* what) {
    if (!std::isfinite(value)) {
      ThrowDataLoss(absl::StrCat("normalizer: ", what, ": column ", column, ": found ", value,
                                 ", expected a finite number"));
    }
    ++count;
    const double away = value - mean[column];
    mean[column] += away / static_cast<double>(++counts[column]);
    squares[column] += away * (value - mean[column]);
    least[column] = std::min(least[column], value);
    greatest[column] = std::max(greatest[column], value);
  }
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_NORMALIZER_SUMS_H_
