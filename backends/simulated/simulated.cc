// Every operator on simulated devices: the reference's kernels, on the bytes behind the addresses,
// queued as the device's kernels are.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool {
namespace {

// Of the host, for the call's type.
const Kernel& HostKernel(const KernelCall& call) {
  const DType dtype = Info(call.op).key_is_input() ? call.inputs[0].dtype : call.outputs[0].dtype;
  for (const Kernel& kernel :
       KernelRegistry::Find(call.op, DeviceType::kHost, dtype)) {
    const std::string_view provider = kernel.provider;
    if (provider == "reference" || provider == "builtin") return kernel;
  }
  ThrowInternal(std::string("simulated: the reference has no ") + Info(call.op).name + " " +
                DTypeName(dtype));
}

// What the reference has for dense operands only.
constexpr OpCode kDenseOnly[] = {
    OpCode::kGather,        OpCode::kScatterAdd,       OpCode::kOneHot,
    OpCode::kFlip,          OpCode::kTriangle,         OpCode::kCumSum,
    OpCode::kRandomUniform, OpCode::kRandomNormal,     OpCode::kRandomBernoulli,
    OpCode::kDropout,       OpCode::kRandomIntegers,   OpCode::kRandomPermutation,
    OpCode::kSort,          OpCode::kArgSort,          OpCode::kTopK};

bool TakesStrides(OpCode op) {
  return std::find(std::begin(kDenseOnly), std::end(kDenseOnly), op) == std::end(kDenseOnly);
}

// A call that outlives its caller.
class QueuedCall {
 public:
  QueuedCall(const KernelCall& call, SimulatedDevice& device)
      : kernel_(HostKernel(call)), call_(call), inputs_(call.inputs.size()) {
    operands_.reserve(inputs_ + call.outputs.size());
    for (const TensorRef& ref : call.inputs) Add(ref, device, false);
    for (const TensorRef& ref : call.outputs) Add(ref, device, true);
    const auto* bytes = static_cast<const std::byte*>(call.attributes);
    const size_t size = Info(call.op).attributes.bytes();
    attributes_.resize((size + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t));
    std::copy_n(bytes, size, reinterpret_cast<std::byte*>(attributes_.data()));
  }

  void Run() {
    call_.inputs = absl::MakeConstSpan(operands_).first(inputs_);
    call_.outputs = absl::MakeConstSpan(operands_).subspan(inputs_);
    for (size_t i = 0; i < operands_.size(); ++i) {
      operands_[i].dims = dims_[i].data();
      operands_[i].strides = strides_[i].data();
    }
    call_.attributes = attributes_.data();
    kernel_.run(call_);
  }

  const Kernel& kernel() const { return kernel_; }
  const std::vector<SimulatedQueues::Range>& ranges() const { return ranges_; }

 private:
  void Add(const TensorRef& ref, SimulatedDevice& device, bool writes) {
    operands_.push_back(ref);
    dims_.emplace_back(ref.dims, ref.dims + ref.rank);
    strides_.emplace_back(ref.strides, ref.strides + ref.rank);
    if (!ref.present || ref.data == nullptr || ref.NumElements() == 0) return;
    // The kernel may use the bytes from the lowest to the highest element.
    int64_t lowest = 0, highest = 0;
    for (int i = 0; i < ref.rank; ++i) {
      const int64_t reach = (ref.dims[i] - 1) * ref.strides[i];
      (reach < 0 ? lowest : highest) += reach;
    }
    const auto width = static_cast<int64_t>(DTypeBytes(ref.dtype));
    const std::byte* const begin = ref.as<std::byte>() + lowest * width;
    const int64_t bytes = (highest - lowest + 1) * width;
    operands_.back().data = device.Hidden(begin, static_cast<size_t>(bytes)) - lowest * width;
    ranges_.push_back({begin, begin + bytes, writes});
  }

  const Kernel& kernel_;
  KernelCall call_;
  size_t inputs_;
  std::vector<TensorRef> operands_;
  std::vector<std::vector<int64_t>> dims_, strides_;
  std::vector<SimulatedQueues::Range> ranges_;
  std::vector<std::max_align_t> attributes_;
};

void Run(const KernelCall& call) {
  SimulatedDevice& device = SimulatedDevice::Get(call.device.index);
  auto queued = std::make_shared<QueuedCall>(call, device);
  if (queued->kernel().strided != TakesStrides(call.op)) {
    ThrowInternal(std::string("simulated: kDenseOnly is wrong for ") + Info(call.op).name);
  }
  std::vector<SimulatedQueues::Range> ranges = queued->ranges();
  device.QueueKernel(std::move(ranges), [queued] { queued->Run(); }, call.queue);
}

const bool registered = [] {
  for (int op = 0; op < kOpCodes; ++op) {
    for (int dtype = 0; dtype < kDTypes; ++dtype) {
      if (!Contains(Info(static_cast<OpCode>(op)).types, static_cast<DType>(dtype))) continue;
      KernelRegistry::Global().Add({static_cast<OpCode>(op), DeviceType::Named("simulated"),
                                    static_cast<DType>(dtype), "simulated", 10, &Run, nullptr,
                                    nullptr, TakesStrides(static_cast<OpCode>(op))});
    }
  }
  return true;
}();

}  // namespace
}  // namespace tidepool
