// Reductions by plain loops: each output's elements in row-major order, in the wider type of floats;
// integers modulo 2^64.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>
#include <utility>

#include "tidepool/backends/reference/wide.h"
#include "tidepool/ndarray/kernel/attributes_reduction.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {
namespace {

// Walks the axes of X that are reduced, or those that are not, row-major.
struct Walk {
  int rank = 0;
  int64_t dims[kMaxRank] = {}, x_strides[kMaxRank] = {}, z_strides[kMaxRank] = {};

  template <typename Visit>  // visit(x offset, z offset), at least once
  void Each(Visit visit) const {
    int64_t index[kMaxRank] = {}, x = 0, z = 0;
    for (;;) {
      visit(x, z);
      int axis = rank - 1;
      for (; axis >= 0; --axis) {
        x += x_strides[axis], z += z_strides[axis];
        if (++index[axis] < dims[axis]) break;
        x -= dims[axis] * x_strides[axis], z -= dims[axis] * z_strides[axis];
        index[axis] = 0;
      }
      if (axis < 0) return;
    }
  }
};

Walk AxesOf(const KernelCall& call, bool reduced) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  Walk walk;
  for (int i = 0, kept = 0; i < x.rank; ++i) {
    const bool is_reduced = IsReduced(call.attrs<ReduceAttributes>(), i);
    if (is_reduced == reduced) {
      walk.dims[walk.rank] = x.dims[i];
      walk.x_strides[walk.rank] = x.strides[i];
      walk.z_strides[walk.rank++] = is_reduced ? 0 : z.strides[kept];
    }
    if (!is_reduced) ++kept;
  }
  return walk;
}

// What elements are as numbers to compute with. long double holds every i64.
template <typename T>
using Real = std::conditional_t<kIsFloat<T>, Wide<T>, long double>;
template <typename T>
using Exact = std::conditional_t<kIsFloat<T>, Wide<T>, uint64_t>;
template <typename T>
using ExactResult = std::conditional_t<kIsFloat<T> || std::is_same_v<T, uint64_t>, T, int64_t>;
template <typename T>
using RealResult = std::conditional_t<kIsFloat<T>, T, double>;

template <typename T, typename Number>
Number As(T value) {
  if constexpr (kIsFloat<T>) {
    return static_cast<Number>(static_cast<Wide<T>>(value));
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<Number>(static_cast<uint64_t>(value));
  } else {
    return static_cast<Number>(static_cast<int64_t>(value));
  }
}

// result(each) gives an output from each(visit), which visits the elements it is made from.
template <typename T, typename Z, typename Result>
void ForEachOutput(const KernelCall& call, Result result) {
  const Walk kept = AxesOf(call, false), reduced = AxesOf(call, true);
  kept.Each([&](int64_t x_offset, int64_t z_offset) {
    const T* x = call.inputs[0].as<T>() + x_offset;
    auto each = [&](auto visit) { reduced.Each([&](int64_t at, int64_t) { visit(x[at]); }); };
    call.outputs[0].as<Z>()[z_offset] = ConvertElement<Z>(result(each));
  });
}

template <typename T>
void Sum(const KernelCall& call) {
  ForEachOutput<T, ExactResult<T>>(call, [](auto each) {
    Exact<T> total = 0;
    each([&](T x) { total += As<T, Exact<T>>(x); });
    return total;
  });
}

template <typename T>
void Prod(const KernelCall& call) {
  ForEachOutput<T, ExactResult<T>>(call, [](auto each) {
    Exact<T> total = 1;
    each([&](T x) { total *= As<T, Exact<T>>(x); });
    return total;
  });
}

template <typename T, typename Each>
Real<T> MeanOf(Each each, int64_t* count) {
  Real<T> total = 0;
  *count = 0;
  each([&](T x) { total += As<T, Real<T>>(x), ++*count; });
  return total / static_cast<Real<T>>(*count);
}

template <typename T>
void Mean(const KernelCall& call) {
  ForEachOutput<T, RealResult<T>>(call, [](auto each) {
    int64_t count;
    return MeanOf<T>(each, &count);
  });
}

template <typename T>
void Variance(const KernelCall& call) {
  const int64_t ddof = call.attrs<ReduceAttributes>().ddof;
  ForEachOutput<T, RealResult<T>>(call, [&](auto each) {
    int64_t count;
    const Real<T> mean = MeanOf<T>(each, &count);
    Real<T> squares = 0;
    each([&](T x) {
      const Real<T> deviation = As<T, Real<T>>(x) - mean;
      squares += deviation * deviation;
    });
    return squares / static_cast<Real<T>>(std::max<int64_t>(0, count - ddof));
  });
}

template <typename T>
void Norm1(const KernelCall& call) {
  ForEachOutput<T, RealResult<T>>(call, [](auto each) {
    Real<T> total = 0;
    each([&](T x) { total += std::abs(As<T, Real<T>>(x)); });
    return total;
  });
}

template <typename T>
void Norm2(const KernelCall& call) {
  ForEachOutput<T, RealResult<T>>(call, [](auto each) {
    Real<T> total = 0;
    each([&](T x) { total += As<T, Real<T>>(x) * As<T, Real<T>>(x); });
    return std::sqrt(total);
  });
}

template <typename T>
bool IsNaN(T x) {
  return x != x;
}

template <typename T>
void NormInf(const KernelCall& call) {
  ForEachOutput<T, RealResult<T>>(call, [](auto each) {
    Real<T> largest = 0;
    each([&](T x) {
      const Real<T> size = std::abs(As<T, Real<T>>(x));
      if (size > largest || IsNaN(size)) largest = size;
    });
    return largest;
  });
}

template <typename T>
void LogSumExp(const KernelCall& call) {
  ForEachOutput<T, T>(call, [](auto each) {
    Wide<T> largest = -std::numeric_limits<Wide<T>>::infinity();
    each([&](T x) {
      if (static_cast<Wide<T>>(x) > largest || IsNaN(x)) largest = x;
    });
    if (!std::isfinite(largest)) return largest;
    Wide<T> total = 0;
    each([&](T x) { total += std::exp(static_cast<Wide<T>>(x) - largest); });
    return largest + std::log(total);
  });
}

// The first that no other beats; a NaN beats all that are none. kSign: 1 for the largest.
template <typename T, int kSign>
void Best(const KernelCall& call) {
  const bool index = call.op == OpCode::kArgMax || call.op == OpCode::kArgMin;
  auto best = [&](auto each) {
    int64_t at = 0, best_at = -1;
    T best{};
    each([&](T x) {
      const bool better = kSign > 0 ? x > best : x < best;
      if (best_at < 0 || (!IsNaN(best) && (better || IsNaN(x)))) best = x, best_at = at;
      ++at;
    });
    return std::pair<T, int64_t>(best, best_at);
  };
  if (index) return ForEachOutput<T, int64_t>(call, [&](auto each) { return best(each).second; });
  ForEachOutput<T, T>(call, [&](auto each) { return best(each).first; });
}

template <typename T, bool kAll>
void AnyOrAll(const KernelCall& call) {
  ForEachOutput<T, bool>(call, [](auto each) {
    bool result = kAll;
    each([&](T x) {
      if (ConvertElement<bool>(x) != kAll) result = !kAll;
    });
    return result;
  });
}

template <typename T>
void Register() {
  auto add = [](OpCode op, void (*run)(const KernelCall&)) {
    KernelRegistry::Global().Add(
        {op, DeviceType::kHost, DTypeOf<T>::value, "reference", 0, run, nullptr, nullptr, true});
  };
  add(OpCode::kSum, &Sum<T>);
  add(OpCode::kProd, &Prod<T>);
  add(OpCode::kMean, &Mean<T>);
  add(OpCode::kMax, &Best<T, 1>);
  add(OpCode::kMin, &Best<T, -1>);
  add(OpCode::kArgMax, &Best<T, 1>);
  add(OpCode::kArgMin, &Best<T, -1>);
  add(OpCode::kAny, &AnyOrAll<T, false>);
  add(OpCode::kAll, &AnyOrAll<T, true>);
  if constexpr (!std::is_same_v<T, bool>) {
    add(OpCode::kVariance, &Variance<T>);
    add(OpCode::kNorm1, &Norm1<T>);
    add(OpCode::kNorm2, &Norm2<T>);
    add(OpCode::kNormInf, &NormInf<T>);
  }
  if constexpr (kIsFloat<T>) add(OpCode::kLogSumExp, &LogSumExp<T>);
}

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    VisitDType(static_cast<DType>(i), [](auto t) { Register<decltype(t)>(); });
  }
  return true;
}();

}  // namespace
}  // namespace tidepool
