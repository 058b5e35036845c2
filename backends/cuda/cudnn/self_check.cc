// A small convolution of each kind by cuDNN and by our kernels, of whole numbers: both are exact, so
// they must be equal. It tells a library that loads from one that works.
#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/cudnn/cudnn.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {
namespace {

constexpr int64_t kInput[4] = {2, 6, 5, 8}, kFilter[4] = {8, 3, 3, 8}, kOutput[4] = {2, 3, 5, 8};

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
      ThrowResourceExhausted(absl::StrCat(device.name(), " refused ", bytes_, " bytes to check cuDNN"));
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

  Operand(const int64_t (&dims)[4], void* data) {
    int64_t stride = 1;
    for (int i = 3; i >= 0; --i) {
      strides[i] = stride;
      stride *= dims[i];
    }
    ref.data = data;
    ref.present = true;
    ref.rank = 4;
    ref.dims = dims;
    ref.strides = strides;
  }
};

const Kernel* OwnKernel(OpCode op) {
  for (const Kernel& kernel :
       KernelRegistry::Find(op, DeviceType::kCuda, DType::kFloat32)) {
    if (std::strcmp(kernel.provider, "cuda") == 0) return &kernel;
  }
  return nullptr;
}

}  // namespace

std::string Cudnn::CheckResults() {
  constexpr OpCode kKinds[] = {OpCode::kConv2d, OpCode::kConv2dGradInput, OpCode::kConv2dGradFilter};
  for (const OpCode op : kKinds) {
    const Kernel* const own = OwnKernel(op);
    if (own == nullptr) return absl::StrCat("no ", Info(op).name, " of ours to check it with");
    const auto& first = op == OpCode::kConv2dGradInput ? kOutput : kInput;
    const auto& second = op == OpCode::kConv2dGradFilter ? kOutput : kFilter;
    const auto& result = op == OpCode::kConv2d            ? kOutput
                         : op == OpCode::kConv2dGradInput ? kInput
                                                          : kFilter;
    auto count = [](const int64_t (&dims)[4]) {
      return static_cast<size_t>(dims[0] * dims[1] * dims[2] * dims[3]);
    };
    std::vector<float> left(count(first)), right(count(second));
    for (size_t i = 0; i < left.size(); ++i) left[i] = static_cast<float>(i * 7 % 5) - 2;
    for (size_t i = 0; i < right.size(); ++i) right[i] = static_cast<float>(i * 5 % 7) - 3;
    const Block x(device_, left.size() * 4), y(device_, right.size() * 4);
    device_.CopyFromHost(x.data(), reinterpret_cast<const std::byte*>(left.data()), left.size() * 4);
    device_.CopyFromHost(y.data(), reinterpret_cast<const std::byte*>(right.data()), right.size() * 4);
    std::vector<float> results[2];
    for (int by_cudnn = 0; by_cudnn < 2; ++by_cudnn) {
      const Block z(device_, count(result) * 4);
      const Operand operands[] = {Operand(first, x.data()), Operand(second, y.data()),
                                  Operand(result, z.data())};
      TensorRef inputs[3] = {operands[0].ref, operands[1].ref, {}};
      inputs[2].data = nullptr;
      Conv2dAttributes attributes;
      attributes.stride_height = 2;
      attributes.pad_top = attributes.pad_bottom = attributes.pad_left = attributes.pad_right = 1;
      KernelCall call;
      call.op = op;
      call.inputs = absl::MakeConstSpan(inputs, op == OpCode::kConv2d ? 3 : 2);
      call.outputs = absl::MakeConstSpan(&operands[2].ref, 1);
      call.attributes = &attributes;
      call.device = device_.device();
      call.queue = queue_;
      if (by_cudnn && !Supports(call)) return absl::StrCat("it does not support ", Info(op).name);
      const Block scratch(device_, by_cudnn              ? ScratchBytes(call)
                                   : own->scratch_bytes ? own->scratch_bytes(call)
                                                        : 0);
      call.scratch = scratch.data();
      if (by_cudnn == 0) {
        own->run(call);
      } else if (!Run(call)) {
        return absl::StrCat("it refused ", Info(op).name);
      }
      results[by_cudnn].resize(count(result));
      device_.CopyToHost(reinterpret_cast<std::byte*>(results[by_cudnn].data()), z.data(),
                         count(result) * 4);
    }
    for (size_t i = 0; i < results[0].size(); ++i) {
      if (results[0][i] == results[1][i]) continue;
      return absl::StrCat(Info(op).name, " of a small case gave ", results[1][i], " at element ", i,
                          ", expected ", results[0][i]);
    }
  }
  return "";
}

}  // namespace tidepool::cuda
