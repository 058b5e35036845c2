// Variance, product, logarithm of the sum of exponentials.
#include <type_traits>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/common/moments.h"
#include "tidepool/backends/cuda/reduction/register_reduction.h"

namespace tidepool::cuda {
namespace {

// x - first, rounded once.
template <typename T>
__device__ __forceinline__ double Deviation(T x, T first) {
  if constexpr (kIsFloat<T>) {
    return static_cast<double>(Wide(x)) - static_cast<double>(Wide(first));
  } else {
    const int64_t a = static_cast<int64_t>(x), b = static_cast<int64_t>(first);
    return static_cast<double>((a >> 32) - (b >> 32)) * 4294967296.0 +
           (static_cast<double>(a & 0xffffffff) - static_cast<double>(b & 0xffffffff));
  }
}

// Around the first element of each output, so that a large mean does not cancel.
template <typename T>
struct VarianceOp {
  static constexpr bool kColumns = kIsFloat<T>;
  using Z = std::conditional_t<kIsFloat<T>, T, double>;
  using State = Moments;
  using Element = T;
  using Value = T;
  using Context = T;
  const T* x;
  Z* z;
  double count, divisor;
  VarianceOp(const KernelCall& call, const ReducePlan& plan)
      : x(call.inputs[0].as<T>()),
        z(call.outputs[0].as<Z>()),
        count(static_cast<double>(plan.count)),
        divisor(static_cast<double>(
            std::max<int64_t>(0, plan.count - call.attrs<ReduceAttributes>().ddof))) {}
  __device__ Context Begin(int64_t, int64_t at) const { return x[at]; }
  __device__ State Init() const { return State{}; }
  __device__ T Load(const Context&, int64_t at, int64_t) const { return x[at]; }
  __device__ void Add(const Context& first, T value, int64_t, State* state) const {
    AddDeviation(Deviation(value, first), state);
  }
  __device__ State Merge(const State& a, const State& b) const { return MergeMoments(a, b); }
  __device__ void Finish(const Context&, int64_t, int64_t at, const State& state) const {
    z[at] = Narrow<Z>(SquaresAroundMean(state, count) / divisor);
  }
};

// A product and what its rounding left out: f64 has no wider type to multiply in.
struct TwoProduct {
  double high, low;
};
__device__ __forceinline__ TwoProduct Multiply(const TwoProduct& a, const TwoProduct& b) {
  const double product = a.high * b.high;
  if (product == 0 || !IsFinite(product)) return {product, 0};
  const double error = fma(a.high, b.high, -product) + (a.high * b.low + a.low * b.high);
  const double high = product + error;
  return {high, error - (high - product)};
}

template <typename T>
struct ProdOp {
  static constexpr bool kTwo = std::is_same_v<T, double>;
  using Z = std::conditional_t<kIsFloat<T>, T, int64_t>;
  using State = std::conditional_t<kTwo, TwoProduct, Total<T>>;
  using Element = T;
  using Value = T;
  using Context = NoContext;
  const T* x;
  Z* z;
  ProdOp(const KernelCall& call, const ReducePlan&)
      : x(call.inputs[0].as<T>()), z(call.outputs[0].as<Z>()) {}
  __device__ Context Begin(int64_t, int64_t) const { return {}; }
  __device__ State Init() const {
    if constexpr (kTwo) {
      return {1, 0};
    } else {
      return 1;
    }
  }
  __device__ T Load(Context, int64_t at, int64_t) const { return x[at]; }
  __device__ void Add(Context, T value, int64_t, State* state) const {
    if constexpr (kTwo) {
      *state = Multiply(*state, {value, 0});
    } else if constexpr (kIsFloat<T>) {
      *state *= static_cast<double>(Wide(value));
    } else {
      *state *= static_cast<uint64_t>(static_cast<int64_t>(value));
    }
  }
  __device__ State Merge(const State& a, const State& b) const {
    if constexpr (kTwo) {
      return Multiply(a, b);
    } else {
      return a * b;
    }
  }
  __device__ void Finish(Context, int64_t, int64_t at, const State& state) const {
    if constexpr (kTwo) {
      z[at] = state.high + state.low;
    } else if constexpr (kIsFloat<T>) {
      z[at] = Narrow<T>(state);
    } else {
      z[at] = static_cast<int64_t>(state);
    }
  }
};

template <typename T>
struct LogSumExpOp {
  using W = Compute<T>;
  using State = ExponentialSum<W>;
  using Element = T;
  using Value = T;
  using Context = NoContext;
  const T* x;
  T* z;
  LogSumExpOp(const KernelCall& call, const ReducePlan&)
      : x(call.inputs[0].as<T>()), z(call.outputs[0].as<T>()) {}
  __device__ Context Begin(int64_t, int64_t) const { return {}; }
  __device__ State Init() const { return EmptyExponentialSum<W>(); }
  __device__ T Load(Context, int64_t at, int64_t) const { return x[at]; }
  __device__ void Add(Context, T value, int64_t, State* state) const {
    AddExponential(Wide(value), state);
  }
  __device__ State Merge(const State& a, const State& b) const { return MergeExponentials(a, b); }
  __device__ void Finish(Context, int64_t, int64_t at, const State& state) const {
    z[at] = Narrow<T>(IsFinite(state.largest) ? static_cast<double>(state.largest) + log(state.sum)
                                              : static_cast<double>(state.largest));
  }
};

const bool registered = [] {
  using namespace operator_list;
  RegisterReduction<VarianceOp, kNumbers>(OpCode::kVariance);
  RegisterReduction<ProdOp, kAllTypes>(OpCode::kProd);
  RegisterReduction<LogSumExpOp, kFloats>(OpCode::kLogSumExp);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
