// First and second norm, summed in double.
#include <type_traits>

#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/reduction/reduction_operators.h"
#include "tidepool/backends/cuda/reduction/register_reduction.h"

namespace tidepool::cuda {
namespace {

template <typename T, bool kSquares>
struct NormOp : Reading<T> {
  static constexpr bool kColumns = kIsFloat<T>;
  using Z = std::conditional_t<kIsFloat<T>, T, double>;
  using State = double;
  Z* z;
  NormOp(const KernelCall& call, const ReducePlan&)
      : Reading<T>{call.inputs[0].as<T>()}, z(call.outputs[0].as<Z>()) {}
  __device__ State Init() const { return 0; }
  __device__ void Add(NoContext, T value, int64_t, State* state) const {
    const double wide = static_cast<double>(Wide(value));
    *state += kSquares ? wide * wide : fabs(wide);
  }
  __device__ State Merge(State a, State b) const { return a + b; }
  __device__ void Finish(NoContext, int64_t, int64_t at, State state) const {
    z[at] = Narrow<Z>(kSquares ? sqrt(state) : state);
  }
};

template <typename T>
using Norm1Op = NormOp<T, false>;
template <typename T>
using Norm2Op = NormOp<T, true>;

const bool registered = [] {
  using namespace operator_list;
  RegisterReduction<Norm1Op, kNumbers>(OpCode::kNorm1);
  RegisterReduction<Norm2Op, kNumbers>(OpCode::kNorm2);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
