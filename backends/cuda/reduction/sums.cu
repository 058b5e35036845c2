// Sum and mean. Floats add up in double; integers modulo 2^64, means of integers
// exactly.
#include <type_traits>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/reduction/reduction_operators.h"
#include "tidepool/backends/cuda/reduction/register_reduction.h"

namespace tidepool::cuda {
namespace {

template <typename T>
struct SumOp : Reading<T> {
  static constexpr bool kColumns = kIsFloat<T>;
  using Z = std::conditional_t<kIsFloat<T>, T, int64_t>;
  using State = Total<T>;
  Z* z;
  SumOp(const KernelCall& call, const ReducePlan&)
      : Reading<T>{call.inputs[0].as<T>()}, z(call.outputs[0].as<Z>()) {}
  __device__ State Init() const { return 0; }
  __device__ void Add(NoContext, T value, int64_t, State* state) const {
    if constexpr (kIsFloat<T>) {
      *state += static_cast<double>(Wide(value));
    } else {
      *state += static_cast<uint64_t>(static_cast<int64_t>(value));
    }
  }
  __device__ State Merge(State a, State b) const { return a + b; }
  __device__ void Finish(NoContext, int64_t, int64_t at, State state) const {
    if constexpr (kIsFloat<T>) {
      z[at] = Narrow<T>(state);
    } else {
      z[at] = static_cast<int64_t>(state);
    }
  }
};

// The sum of halves of integers, which do not overflow.
struct IntegerSum {
  int64_t high;
  uint64_t low;
};

template <typename T>
struct MeanOp : Reading<T> {
  static constexpr bool kColumns = kIsFloat<T>;
  using Z = std::conditional_t<kIsFloat<T>, T, double>;
  using State = std::conditional_t<kIsFloat<T>, double, IntegerSum>;
  Z* z;
  double count;
  MeanOp(const KernelCall& call, const ReducePlan& plan)
      : Reading<T>{call.inputs[0].as<T>()},
        z(call.outputs[0].as<Z>()),
        count(static_cast<double>(plan.count)) {}
  __device__ State Init() const { return State{}; }
  __device__ void Add(NoContext, T value, int64_t, State* state) const {
    if constexpr (kIsFloat<T>) {
      *state += static_cast<double>(Wide(value));
    } else {
      const int64_t wide = static_cast<int64_t>(value);
      state->high += wide >> 32;
      state->low += static_cast<uint64_t>(wide) & 0xffffffffu;
    }
  }
  __device__ State Merge(const State& a, const State& b) const {
    if constexpr (kIsFloat<T>) {
      return a + b;
    } else {
      const uint64_t low = a.low + b.low;
      return {a.high + b.high + static_cast<int64_t>(low >> 32), low & 0xffffffffu};
    }
  }
  __device__ void Finish(NoContext, int64_t, int64_t at, const State& state) const {
    if constexpr (kIsFloat<T>) {
      z[at] = Narrow<T>(state / count);
    } else {
      const int64_t high = state.high + static_cast<int64_t>(state.low >> 32);
      const double sum =
          static_cast<double>(high) * 4294967296.0 + static_cast<double>(state.low & 0xffffffffu);
      z[at] = sum / count;
    }
  }
};

const bool registered = [] {
  using namespace operator_list;
  RegisterReduction<SumOp, kAllTypes>(OpCode::kSum);
  RegisterReduction<MeanOp, kAllTypes>(OpCode::kMean);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
