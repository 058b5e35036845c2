// Fill and copy on the host: creation and movers work with no backend linked. Any strides.
#include <cmath>
#include <cstring>
#include <type_traits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {
namespace {

template <typename T>
void Fill(const KernelCall& call) {
  const TensorRef& z = call.outputs[0];
  const T value = ConvertElement<T>(call.attrs<FillAttributes>().value);
  // Of the values equal to zero only the one without a sign is all zero bits.
  const bool zero_bytes = value == T(0) && !std::signbit(static_cast<double>(value));
  int64_t strides[1][kMaxRank];
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[0]);
  ForEachRun<1>(z.rank, z.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  T* out = z.as<T>() + offset[0];
                  if (stride[0] == 1 && zero_bytes) {
                    std::memset(out, 0, count * sizeof(T));
                    return;
                  }
                  for (int64_t i = 0; i < count; ++i) out[i * stride[0]] = value;
                });
}

template <typename From, typename To>
void CopyElements(const TensorRef& x, const TensorRef& z) {
  int64_t strides[2][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[0]);
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[1]);
  ForEachRun<2>(z.rank, z.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  const From* in = x.as<From>() + offset[0];
                  To* out = z.as<To>() + offset[1];
                  if (std::is_same_v<From, To> && stride[0] == 1 && stride[1] == 1) {
                    std::memcpy(out, in, count * sizeof(To));
                    return;
                  }
                  for (int64_t i = 0; i < count; ++i) {
                    out[i * stride[1]] = ConvertElement<To>(in[i * stride[0]]);
                  }
                });
}

template <typename From>
void Copy(const KernelCall& call) {
  if (call.outputs[0].dtype == DType::kFloat32) {
    CopyElements<From, float>(call.inputs[0], call.outputs[0]);
  } else {
    CopyElements<From, int64_t>(call.inputs[0], call.outputs[0]);
  }
}

constexpr int kPriority = 1;

const KernelRegistrar registrar({
    {OpCode::kFill, DeviceType::kHost, DType::kFloat32, "builtin", kPriority, &Fill<float>, nullptr,
     nullptr, true},
    {OpCode::kFill, DeviceType::kHost, DType::kInt64, "builtin", kPriority, &Fill<int64_t>, nullptr,
     nullptr, true},
    {OpCode::kCopy, DeviceType::kHost, DType::kFloat32, "builtin", kPriority, &Copy<float>, nullptr,
     nullptr, true},
    {OpCode::kCopy, DeviceType::kHost, DType::kInt64, "builtin", kPriority, &Copy<int64_t>, nullptr,
     nullptr, true},
});

}  // namespace
}  // namespace tidepool
