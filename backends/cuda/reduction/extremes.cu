// Largest and smallest elements, the largest size.
#include <type_traits>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/reduction/reduction_operators.h"
#include "tidepool/backends/cuda/reduction/register_reduction.h"

namespace tidepool::cuda {
namespace {

// What every value beats or equals.
template <int kSign, typename W>
__device__ __forceinline__ W Worst() {
  if constexpr (std::is_floating_point_v<W>) {
    return kSign > 0 ? -Infinity<W>() : Infinity<W>();
  } else {
    return kSign > 0 ? std::numeric_limits<W>::min() : std::numeric_limits<W>::max();
  }
}

template <typename T, int kSign>
struct ExtremeOp : Reading<T> {
  static constexpr bool kColumns = kIsFloat<T>;
  using State = Compute<T>;
  T* z;
  ExtremeOp(const KernelCall& call, const ReducePlan&)
      : Reading<T>{call.inputs[0].as<T>()}, z(call.outputs[0].as<T>()) {}
  __device__ State Init() const { return Worst<kSign, State>(); }
  __device__ void Add(NoContext, T value, int64_t, State* state) const {
    const State wide = Wide(value);
    if (Beats<kSign>(wide, *state)) *state = wide;
  }
  __device__ State Merge(State a, State b) const { return Beats<kSign>(b, a) ? b : a; }
  __device__ void Finish(NoContext, int64_t, int64_t at, State state) const {
    z[at] = Narrow<T>(state);
  }
};

template <typename T>
struct NormInfOp : Reading<T> {
  using Z = std::conditional_t<kIsFloat<T>, T, double>;
  using State = std::conditional_t<kIsFloat<T>, Compute<T>, double>;
  Z* z;
  NormInfOp(const KernelCall& call, const ReducePlan&)
      : Reading<T>{call.inputs[0].as<T>()}, z(call.outputs[0].as<Z>()) {}
  __device__ State Init() const { return 0; }
  __device__ void Add(NoContext, T value, int64_t, State* state) const {
    const State size = Fabs(static_cast<State>(Wide(value)));
    if (Beats<1>(size, *state)) *state = size;
  }
  __device__ State Merge(State a, State b) const { return Beats<1>(b, a) ? b : a; }
  __device__ void Finish(NoContext, int64_t, int64_t at, State state) const {
    z[at] = Narrow<Z>(state);
  }
};

template <typename T>
using MaxOp = ExtremeOp<T, 1>;
template <typename T>
using MinOp = ExtremeOp<T, -1>;

const bool registered = [] {
  using namespace operator_list;
  RegisterReduction<MaxOp, kAllTypes>(OpCode::kMax);
  RegisterReduction<MinOp, kAllTypes>(OpCode::kMin);
  RegisterReduction<NormInfOp, kNumbers>(OpCode::kNormInf);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
