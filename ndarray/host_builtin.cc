// Fill and copy on the host: creation and movers work with no backend linked. Any type and strides.
#include <algorithm>
#include <cstring>

#include "tidepool/ndarray/convert_elements.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"

namespace tidepool {
namespace {

template <typename Bits>
void FillBits(void* out, int64_t stride, int64_t count, uint64_t value) {
  Bits* z = static_cast<Bits*>(out);
  if (stride == 1) {
    std::fill_n(z, count, static_cast<Bits>(value));
    return;
  }
  for (int64_t i = 0; i < count; ++i) z[i * stride] = static_cast<Bits>(value);
}

void RunFill(const KernelCall& call) {
  const TensorRef& z = call.outputs[0];
  const size_t width = DTypeBytes(z.dtype);
  uint64_t bits = 0;
  StoreNumber(call.attrs<FillAttributes>().value, z.dtype, &bits);
  int64_t strides[1][kMaxRank];
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[0]);
  ForEachRun<1>(z.rank, z.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  std::byte* out = z.as<std::byte>() + offset[0] * static_cast<int64_t>(width);
                  if (stride[0] == 1 && bits == 0) {
                    std::memset(out, 0, count * width);
                    return;
                  }
                  switch (width) {
                    case 1:
                      return FillBits<uint8_t>(out, stride[0], count, bits);
                    case 2:
                      return FillBits<uint16_t>(out, stride[0], count, bits);
                    case 4:
                      return FillBits<uint32_t>(out, stride[0], count, bits);
                    default:
                      return FillBits<uint64_t>(out, stride[0], count, bits);
                  }
                });
}

void RunCopy(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& z = call.outputs[0];
  const ConvertRun convert = ConverterOf(x.dtype, z.dtype);
  const auto x_width = static_cast<int64_t>(DTypeBytes(x.dtype));
  const auto z_width = static_cast<int64_t>(DTypeBytes(z.dtype));
  int64_t strides[2][kMaxRank];
  BroadcastStrides(x.rank, x.dims, x.strides, z.rank, strides[0]);
  BroadcastStrides(z.rank, z.dims, z.strides, z.rank, strides[1]);
  ForEachRun<2>(z.rank, z.dims, strides,
                [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                  convert(x.as<std::byte>() + offset[0] * x_width, stride[0],
                          z.as<std::byte>() + offset[1] * z_width, stride[1], count);
                });
}

constexpr int kPriority = 1;

const bool registered = [] {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    KernelRegistry::Global().Add({OpCode::kFill, DeviceType::kHost, dtype, "builtin", kPriority,
                                  &RunFill, nullptr, nullptr, true});
    KernelRegistry::Global().Add({OpCode::kCopy, DeviceType::kHost, dtype, "builtin", kPriority,
                                  &RunCopy, nullptr, nullptr, true});
  }
  return true;
}();

}  // namespace
}  // namespace tidepool
