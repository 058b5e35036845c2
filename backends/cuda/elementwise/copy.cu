// Copies, also to other types, and fills.
#include <cstdint>
#include <cstring>

#include "tidepool/backends/cuda/elementwise/moved_copy.h"
#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/axis_split.h"

namespace tidepool::cuda {
namespace {

// Takes and gives stored elements: through Compute numbers would be rounded twice.
template <typename Z>
struct ConvertFunction {
  template <typename X>
  __device__ Compute<Z> operator()(X x) const {
    return ToCompute(ConvertElement<Z>(x));
  }
};

template <typename X>
void RunCopy(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  if (x.dtype == z.dtype) {
    if (x.dense && z.dense) {
      const size_t bytes = static_cast<size_t>(z.NumElements()) * DTypeBytes(z.dtype);
      Check(cudaMemcpyAsync(z.data, x.data, bytes, cudaMemcpyDeviceToDevice, QueueOf(call).stream),
            "cudaMemcpyAsync");
      return;
    }
    MoveElements(call);
    return;
  }
  VisitDType(z.dtype, [&](auto t) {
    using Z = decltype(t);
    if constexpr (Contains(kComputedTypes, DTypeOf<Z>::value) && !std::is_same_v<Z, X>)
      RunPointwise<Z, X>(call, ConvertFunction<Z>());
  });
}

template <typename T>
struct ConstantFunction {
  T value;
  __device__ T operator()() const { return value; }
};

void RunFill(const KernelCall& call) {
  const TensorRef& z = call.outputs[0];
  const double number = call.attrs<FillAttributes>().value;
  VisitDType(z.dtype, [&](auto t) {
    const auto value = ConvertElement<decltype(t)>(number);
    VisitBits(z.dtype, [&](auto bits) {
      using Bits = decltype(bits);
      if constexpr (sizeof(Bits) == sizeof(value)) {
        ConstantFunction<Bits> constant;
        std::memcpy(&constant.value, &value, sizeof(value));
        RunPointwise<Bits>(call, constant);
      }
    });
  });
}

// Others are moved, not converted.
bool SupportsCopy(const KernelCall& call) {
  const DType from = call.inputs[0].dtype, to = call.outputs[0].dtype;
  return from == to || (Contains(kComputedTypes, from) && Contains(kComputedTypes, to));
}

const bool registered = [] {
  ForEachType(AllTypes(), [](auto t) {
    using T = decltype(t);
    AddKernel(OpCode::kCopy, DTypeOf<T>::value, &RunCopy<T>, true, nullptr, &SupportsCopy);
  });
  AddKernel(OpCode::kCopy, DType::kInt16, &RunCopy<Float16>, true, nullptr, &SupportsCopy);
  AddKernel(OpCode::kCopy, DType::kUInt16, &RunCopy<Float16>, true, nullptr, &SupportsCopy);
  AddKernel(OpCode::kCopy, DType::kUInt32, &RunCopy<int32_t>, true, nullptr, &SupportsCopy);
  AddKernel(OpCode::kCopy, DType::kUInt64, &RunCopy<int64_t>, true, nullptr, &SupportsCopy);
  for (int i = 0; i < kDTypes; ++i) AddKernel(OpCode::kFill, static_cast<DType>(i), &RunFill, true);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
