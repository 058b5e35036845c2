// A small convolution by cuDNN and by our kernel, of whole numbers: sums are exact in f32 and rounded once, so the results
// must be equal. It tells a library that loads from one that works.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/cudnn/cudnn.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {
namespace {

// Device memory for the length of the check.
class Block {
 public:
  Block(CudaDevice& device, size_t bytes)
      : device_(device),
        bytes_(std::max<size_t>(bytes, 256)),
        charge_(MemoryKind::kWorkspace, static_cast<int64_t>(bytes_), device.device()),
        data_(device.Allocate(bytes_, 256)) {
    if (data_ == nullptr) {
      device.ThrowIfLost("cuDNN");
      ThrowResourceExhausted(
          absl::StrCat(device.name(), " refused ", bytes_, " bytes to check cuDNN"));
    }
  }
  ~Block() { device_.Release(data_, bytes_); }
  Block(const Block&) = delete;
  std::byte* data() const { return data_; }

 private:
  CudaDevice& device_;
  size_t bytes_;
  MemoryCharge charge_;
  std::byte* data_;
};

struct Operand {
  TensorRef ref;
  int64_t strides[4];

  Operand(const int64_t (&dims)[4], DType dtype, void* data) {
    int64_t stride = 1;
    for (int i = 3; i >= 0; --i) {
      strides[i] = stride;
      stride *= dims[i];
    }
    ref.data = data;
    ref.dtype = dtype;
    ref.dense = true;
    ref.present = true;
    ref.rank = 4;
    ref.dims = dims;
    ref.strides = strides;
  }
};

const Kernel* OwnKernel(OpCode op, DType dtype) {
  for (const Kernel& kernel : KernelRegistry::Find(op, DeviceType::kCuda, dtype)) {
    if (std::strcmp(kernel.provider, "cuda") == 0) return &kernel;
  }
  return nullptr;
}

size_t Count(const int64_t (&dims)[4]) {
  return static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3]);
}

// Whole numbers in turn, from -(count - 1) / 2 on.
std::vector<std::byte> Numbers(const int64_t (&dims)[4], DType dtype, int step, int count) {
  std::vector<std::byte> bytes(Count(dims) * DTypeBytes(dtype));
  VisitDType(dtype, [&](auto t) {
    using T = decltype(t);
    for (size_t i = 0; i < Count(dims); ++i) {
      const T value = ConvertElement<T>(
          static_cast<double>(static_cast<int>(i) * step % count - (count - 1) / 2));
      std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
    }
  });
  return bytes;
}

}  // namespace

std::string Cudnn::CheckResults(OpCode op, DType dtype) {
  const Kernel* const own = OwnKernel(op, dtype);
  if (own == nullptr) return "there is no kernel of ours to check it with";
  // One that it does not know is no fault, of which the plainer one tells.
  bool not_supported = false;
  std::string why = CheckCase(*own, op, dtype, /*stride=*/2, Fused::kNothing, &not_supported);
  if (not_supported)
    why = CheckCase(*own, op, dtype, /*stride=*/1, Fused::kNothing, &not_supported);
  if (why.empty() && op == OpCode::kConv2d)
    fused_[static_cast<int>(dtype)].store(MostToFuse(*own, dtype), std::memory_order_release);
  return why;
}

Cudnn::Fused Cudnn::MostToFuse(const Kernel& own, DType dtype) {
  for (const Fused fused : {Fused::kBiasAndRelu, Fused::kBias}) {
    bool not_supported = false;
    if (CheckCase(own, OpCode::kConv2d, dtype, /*stride=*/1, fused, &not_supported).empty())
      return fused;
  }
  return Fused::kNothing;
}

std::string Cudnn::CheckCase(const Kernel& own, OpCode op, DType dtype, int64_t stride, Fused fused,
                             bool* not_supported) {
  const int64_t input[4] = {2, 6, 5, 8}, filter[4] = {8, 3, 3, 8},
                output[4] = {2, 6 / stride, 5, 8};
  const auto& first = op == OpCode::kConv2dGradInput ? output : input;
  const auto& second = op == OpCode::kConv2dGradFilter ? output : filter;
  const auto& result = op == OpCode::kConv2d            ? output
                       : op == OpCode::kConv2dGradInput ? input
                                                        : filter;
  std::vector<std::byte> left = Numbers(first, dtype, 7, 5);
  const std::vector<std::byte> right = Numbers(second, dtype, 5, 7);
  if (fused != Fused::kNothing) {  // the first pixel's neighbours
    VisitDType(dtype, [&](auto t) {
      const auto nan = ConvertElement<decltype(t)>(std::numeric_limits<double>::quiet_NaN());
      std::memcpy(left.data(), &nan, sizeof(nan));
    });
  }
  const int64_t terms[4] = {1, 1, 1, output[3]};
  const std::vector<std::byte> added = Numbers(terms, dtype, 3, 7);
  const Block x(device_, left.size()), y(device_, right.size()), bias(device_, added.size());
  device_.CopyFromHost(bias.data(), added.data(), added.size());
  device_.CopyFromHost(x.data(), left.data(), left.size());
  device_.CopyFromHost(y.data(), right.data(), right.size());
  std::vector<std::byte> results[2];
  for (int by_cudnn = 0; by_cudnn < 2; ++by_cudnn) {
    const size_t bytes = Count(result) * DTypeBytes(dtype);
    const Block z(device_, bytes);
    const Operand operands[] = {Operand(first, dtype, x.data()), Operand(second, dtype, y.data()),
                                Operand(result, dtype, z.data())};
    TensorRef inputs[3] = {operands[0].ref, operands[1].ref, {}};
    inputs[2].data = nullptr;
    const int64_t one = 1;
    if (fused != Fused::kNothing) {
      inputs[2] = operands[2].ref;
      inputs[2].data = bias.data();
      inputs[2].rank = 1;
      inputs[2].dims = terms + 3;
      inputs[2].strides = &one;
    }
    Conv2dAttributes attributes;
    attributes.relu = fused != Fused::kNothing;
    attributes.stride_height = stride;
    attributes.pad_top = attributes.pad_bottom = attributes.pad_left = attributes.pad_right = 1;
    KernelCall call;
    call.op = op;
    call.inputs = absl::MakeConstSpan(inputs, op == OpCode::kConv2d ? 3 : 2);
    call.outputs = absl::MakeConstSpan(&operands[2].ref, 1);
    call.attributes = &attributes;
    call.device = device_.device();
    call.queue = queue_;
    if (by_cudnn && !HasPlan(call)) {
      *not_supported = true;
      return "the library does not support it";
    }
    const Block scratch(device_, by_cudnn            ? ScratchBytes(call)
                                 : own.scratch_bytes ? own.scratch_bytes(call)
                                                     : 0);
    call.scratch = scratch.data();
    if (by_cudnn == 0) {
      own.run(call);
    } else if (!Run(call, fused)) {
      *not_supported = true;
      return "the library does not support it, and says so late";
    }
    results[by_cudnn].resize(bytes);
    device_.CopyToHost(results[by_cudnn].data(), z.data(), bytes);
  }
  *not_supported = false;
  std::string difference;
  VisitDType(dtype, [&](auto t) {
    using T = decltype(t);
    for (size_t i = 0; i < Count(result) && difference.empty(); ++i) {
      T found[2];
      for (int of = 0; of < 2; ++of)
        std::memcpy(&found[of], results[of].data() + i * sizeof(T), sizeof(T));
      const auto ours = ConvertElement<double>(found[0]), its = ConvertElement<double>(found[1]);
      if (ours == its || (std::isnan(ours) && std::isnan(its))) continue;
      difference = absl::StrCat("a small case gave ", its, " at element ", i, ", expected ", ours);
    }
  });
  return difference;
}

}  // namespace tidepool::cuda
