// Random sizes, shapes and values of operator cases.
#ifndef TIDEPOOL_NDARRAY_TESTING_CASE_VALUES_H_
#define TIDEPOOL_NDARRAY_TESTING_CASE_VALUES_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>

#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/shape.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool {

// Draws from a generator it does not own; the same generator state gives the same values.
class CaseValues {
 public:
  explicit CaseValues(std::mt19937_64& random) : random_(random) {}

  int64_t Int(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random_() % static_cast<uint64_t>(high - low + 1));
  }
  bool Chance(double probability) { return Real(0, 1) < probability; }
  double Real(double low, double high) {
    return low + (high - low) * static_cast<double>(random_() >> 11) * 0x1p-53;
  }
  int64_t Size(int64_t most) {
    static constexpr int64_t kSizes[] = {0,  1,  1,  2,  3,  4,  5,  7,  8,  9,  11,  13,  15,
                                         16, 17, 23, 31, 32, 33, 48, 63, 64, 65, 101, 128, 257};
    for (;;) {
      const int64_t size = kSizes[random_() % std::size(kSizes)];
      if (size == 0 && !Chance(0.3)) continue;
      if (size <= most) return size;
    }
  }
  int64_t NonZero(int64_t most) { return std::max<int64_t>(1, Size(most)); }

  Shape AnyShape(int least_rank, int most_rank) {
    int64_t dims[kMaxRank];
    const int rank = static_cast<int>(Int(least_rank, most_rank));
    for (int64_t i = 0, budget = 3000; i < rank; ++i) {
      dims[i] = Size(budget);
      budget = std::max<int64_t>(1, budget / std::max<int64_t>(1, dims[i]));
    }
    // Enough work for several threads, now and then.
    if (rank > 0 && Chance(0.01)) {
      std::fill_n(dims, rank, 1);
      dims[rank - 1] = Int(20000, 70000);
      if (rank > 1) std::swap(dims[0], dims[Int(0, rank - 1)]);
    }
    return Shape(absl::Span<const int64_t>(dims, rank));
  }

  // The shape with leading axes left out and some sizes 1.
  Shape Narrowed(const Shape& shape) {
    const int skipped = Chance(0.3) ? static_cast<int>(Int(0, shape.rank())) : 0;
    int64_t dims[kMaxRank];
    for (int i = skipped; i < shape.rank(); ++i) {
      dims[i - skipped] = Chance(0.2) ? 1 : shape[i];
    }
    return Shape(absl::Span<const int64_t>(dims, shape.rank() - skipped));
  }

  // About 1, never below 2^-24 in size unless `special`.
  OperandValues Floats(const Shape& shape, bool special = false, DType dtype = DType::kFloat32) {
    OperandValues values{shape, dtype, true, {}, {}};
    values.reals.resize(shape.NumElements());
    for (double& value : values.reals) value = Real(-1, 1);
    if (!special || values.reals.empty()) return values;
    static constexpr float kSpecial[] = {std::numeric_limits<float>::quiet_NaN(),
                                         std::numeric_limits<float>::infinity(),
                                         -std::numeric_limits<float>::infinity(),
                                         -0.0f,
                                         0.0f,
                                         1e-40f,
                                         -1e-45f,
                                         1e-38f,
                                         0x1p-24f};
    // One kind per case, so that NaN does not hide what becomes of the others.
    const bool mixed = Chance(0.3);
    const float kind = kSpecial[random_() % std::size(kSpecial)];
    const int64_t count = Int(1, 1 + static_cast<int64_t>(values.reals.size()) / 8);
    for (int64_t i = 0; i < count; ++i) {
      values.reals[random_() % values.reals.size()] =
          mixed ? kSpecial[random_() % std::size(kSpecial)] : kind;
    }
    return values;
  }

  OperandValues Ints(const Shape& shape, int64_t low, int64_t high, DType dtype = DType::kInt64) {
    OperandValues values{shape, dtype, true, {}, {}};
    values.ints.resize(shape.NumElements());
    for (int64_t& value : values.ints) value = Int(low, high);
    return values;
  }
  // Of any type; integers within 1000 (or what the type holds), `special`: the ends of i64 as well.
  OperandValues Numbers(DType dtype, const Shape& shape, bool special) {
    if (IsFloating(dtype)) return Floats(shape, special, dtype);
    if (dtype == DType::kBool) return Ints(shape, 0, 1, dtype);
    OperandValues values = Ints(shape, -1000, 1000, dtype);
    if (special) {
      for (int64_t& value : values.ints) {
        if (Chance(0.1)) value = std::numeric_limits<int64_t>::min();
        if (Chance(0.1)) value = std::numeric_limits<int64_t>::max();
      }
    }
    return values;
  }
  // What a result's memory holds before: nothing a kernel may use.
  static OperandValues Result(DType dtype, const Shape& shape) {
    OperandValues values{shape, dtype, true, {}, {}};
    if (IsFloating(dtype)) {
      values.reals.assign(shape.NumElements(), std::numeric_limits<double>::quiet_NaN());
    } else {
      values.ints.assign(shape.NumElements(), 0x5a5a5a5a);
    }
    return values;
  }
  // Few different values, so that there are equals to choose from.
  void MakeTies(OperandValues* values) {
    for (double& value : values->reals) {
      if (std::isfinite(value)) value = std::round(value * 2) / 2;
    }
    for (int64_t& value : values->ints) value = value % 4;
  }

 private:
  std::mt19937_64& random_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_TESTING_CASE_VALUES_H_
