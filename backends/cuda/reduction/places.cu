// Places of the largest and smallest elements.
#include <type_traits>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/reduction/reduction_operators.h"
#include "tidepool/backends/cuda/reduction/register_reduction.h"

namespace tidepool::cuda {
namespace {

template <typename W>
struct Best {
  W value;
  int64_t place;  // -1: none yet
};

// The first of those that no other beats.
template <typename T, int kSign>
struct ArgExtremeOp : Reading<T> {
  using W = Compute<T>;
  using State = Best<W>;
  int64_t* z;
  ArgExtremeOp(const KernelCall& call, const ReducePlan&)
      : Reading<T>{call.inputs[0].as<T>()}, z(call.outputs[0].as<int64_t>()) {}
  __device__ State Init() const { return {W{}, -1}; }
  __device__ void Add(NoContext, T value, int64_t index, State* state) const {
    const W wide = Wide(value);
    if (state->place < 0 || Beats<kSign>(wide, state->value)) *state = {wide, index};
  }
  __device__ State Merge(const State& a, const State& b) const {
    if (b.place < 0) return a;
    if (a.place < 0 || Beats<kSign>(b.value, a.value)) return b;
    return Beats<kSign>(a.value, b.value) || a.place < b.place ? a : b;
  }
  __device__ void Finish(NoContext, int64_t, int64_t at, const State& state) const {
    z[at] = state.place;
  }
};

template <typename T>
using ArgMaxOp = ArgExtremeOp<T, 1>;
template <typename T>
using ArgMinOp = ArgExtremeOp<T, -1>;

const bool registered = [] {
  using namespace operator_list;
  RegisterReduction<ArgMaxOp, kAllTypes>(OpCode::kArgMax);
  RegisterReduction<ArgMinOp, kAllTypes>(OpCode::kArgMin);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
