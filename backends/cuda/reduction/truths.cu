// Whether any or all elements are not zero; NaN is not.
#include <type_traits>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/reduction/reduction_operators.h"
#include "tidepool/backends/cuda/reduction/register_reduction.h"

namespace tidepool::cuda {
namespace {

template <typename T, bool kAll>
struct AnyOrAllOp : Reading<T> {
  using State = int;
  bool* z;
  AnyOrAllOp(const KernelCall& call, const ReducePlan&)
      : Reading<T>{call.inputs[0].as<T>()}, z(call.outputs[0].as<bool>()) {}
  __device__ State Init() const { return kAll; }
  __device__ void Add(NoContext, T value, int64_t, State* state) const {
    if ((Wide(value) != 0) != kAll) *state = !kAll;
  }
  __device__ State Merge(State a, State b) const { return kAll ? a & b : a | b; }
  __device__ void Finish(NoContext, int64_t, int64_t at, State state) const { z[at] = state != 0; }
};

template <typename T>
using AnyOp = AnyOrAllOp<T, false>;
template <typename T>
using AllOp = AnyOrAllOp<T, true>;

const bool registered = [] {
  using namespace operator_list;
  RegisterReduction<AnyOp, kAllTypes>(OpCode::kAny);
  RegisterReduction<AllOp, kAllTypes>(OpCode::kAll);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
