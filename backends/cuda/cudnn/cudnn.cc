#include "tidepool/backends/cuda/cudnn/cudnn.h"

#include <climits>
#include <memory>

#include "absl/strings/str_cat.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/matmul/cublas.h"
#include "tidepool/backends/cuda/matmul/product_kernels.h"
#include "tidepool/backends/cuda/runtime/error.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cuda {
namespace {

constexpr uintptr_t kVector = 16;
constexpr size_t kMostPlans = 1024;

// Which operands of a call are the image, the filter and the result of the convolution.
struct Parts {
  const TensorRef *input, *filter, *output;

  explicit Parts(const KernelCall& call) {
    switch (call.op) {
      case OpCode::kConv2d:
        input = &call.inputs[0], filter = &call.inputs[1], output = &call.outputs[0];
        break;
      case OpCode::kConv2dGradInput:
        output = &call.inputs[0], filter = &call.inputs[1], input = &call.outputs[0];
        break;
      default:
        input = &call.inputs[0], output = &call.inputs[1], filter = &call.outputs[0];
    }
  }
};

int TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return CudnnLibrary::kHalf;
    case DType::kBFloat16:
      return CudnnLibrary::kBFloat16;
    default:
      return CudnnLibrary::kFloat;
  }
}

bool IsAligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kVector == 0; }

// The queues' handles, and what became of them.
struct State {
  std::mutex mutex;
  Cudnn* made[kMaxDevicesPerType][kMostQueues] = {};
  bool tried[kMaxDevicesPerType][kMostQueues] = {};
  std::string problem;
  std::map<std::string, std::string> of_kinds;  // that are left to our kernels: why
};
State& TheState() {
  static State* const state = new State();
  return *state;
}

}  // namespace

Cudnn* Cudnn::Of(CudaDevice& device, int queue) {
  const CudnnLibrary* const library = CudnnLibrary::Find();
  if (library == nullptr) return nullptr;
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  Cudnn*& made = state.made[device.index()][queue];
  bool& tried = state.tried[device.index()][queue];
  if (tried || device.capturing()) return made;
  tried = true;
  try {
    made = new Cudnn(device, queue, *library);
  } catch (const Error& error) {
    state.problem = error.what();
  }
  return made;
}

std::string Cudnn::Description() {
  const std::string library = CudnnLibrary::Description();
  State& state = TheState();
  std::lock_guard<std::mutex> lock(state.mutex);
  if (CudnnLibrary::Find() == nullptr) return library;
  if (!state.problem.empty()) return absl::StrCat("not used: ", library, ": ", state.problem);
  std::string text = library;
  for (const auto& [kind, why] : state.of_kinds)
    absl::StrAppend(&text, "; not for ", kind, ": ", why);
  return text;
}

bool Cudnn::IsRight(OpCode op, DType dtype) {
  const int kind = op == OpCode::kConv2d ? 0 : op == OpCode::kConv2dGradInput ? 1 : 2;
  std::atomic<Check>& known = checks_[kind][static_cast<int>(dtype)];
  Check check = known.load(std::memory_order_acquire);
  if (check != Check::kNotYet) return check == Check::kRight;
  if (device_.capturing()) return false;
  std::lock_guard<std::mutex> lock(checking_);
  check = known.load(std::memory_order_relaxed);
  if (check != Check::kNotYet) return check == Check::kRight;
  std::string why;
  try {
    why = CheckResults(op, dtype);
  } catch (const Error& error) {
    // Memory may be there the next time.
    if (error.code() == absl::StatusCode::kResourceExhausted) return false;
    why = error.message();
  }
  if (!why.empty()) {
    State& state = TheState();
    std::lock_guard<std::mutex> state_lock(state.mutex);
    state.of_kinds[absl::StrCat(Info(op).name, " ", DTypeName(dtype))] = why;
  }
  known.store(why.empty() ? Check::kRight : Check::kLeftToOurs, std::memory_order_release);
  return why.empty();
}

// A queue that was closed leaves its number to another, which begins behind it.
int Cudnn::FollowStream() {
  cudaStream_t const stream = device_.compute(queue_);
  if (stream == stream_) return CudnnLibrary::kSuccess;
  const int status = library_.SetStream(handle_, stream);
  if (status == CudnnLibrary::kSuccess) stream_ = stream;
  return status;
}

Cudnn::Cudnn(CudaDevice& device, int queue, const CudnnLibrary& library)
    : device_(device), queue_(queue), library_(library) {
  device.Activate();
  size_t before = 0, after = 0, total = 0;
  const bool known = cudaMemGetInfo(&before, &total) == cudaSuccess;
  int status = library.Create(&handle_);
  if (status == CudnnLibrary::kSuccess) status = FollowStream();
  if (status != CudnnLibrary::kSuccess) {
    if (handle_ != nullptr) library.Destroy(handle_);
    ThrowInternal(absl::StrCat("cudnnCreate: ", library.GetErrorString(status)));
  }
  try {
    if (known && cudaMemGetInfo(&after, &total) == cudaSuccess && after < before) {
      charge_ = MemoryCharge::Imported(static_cast<int64_t>(before - after), device.device());
    }
  } catch (...) {  // the ledger has no memory
    library.Destroy(handle_);
    throw;
  }
}

Cudnn::~Cudnn() {
  for (auto& entry : plans_) Release(entry.second);
  library_.Destroy(handle_);
}

void Cudnn::Release(Plan& plan) {
  if (plan.input != nullptr) library_.DestroyTensorDescriptor(plan.input);
  if (plan.output != nullptr) library_.DestroyTensorDescriptor(plan.output);
  if (plan.filter != nullptr) library_.DestroyFilterDescriptor(plan.filter);
  if (plan.convolution != nullptr) library_.DestroyConvolutionDescriptor(plan.convolution);
  if (plan.bias != nullptr) library_.DestroyTensorDescriptor(plan.bias);
  if (plan.relu != nullptr) library_.DestroyActivationDescriptor(plan.relu);
  if (plan.identity != nullptr) library_.DestroyActivationDescriptor(plan.identity);
  plan = Plan();
}

Cudnn::Plan Cudnn::MakePlan(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  const Parts parts(call);
  const DType dtype = call.outputs[0].dtype;
  const int type = TypeOf(dtype);
  auto size = [](const TensorRef& ref, int axis) { return static_cast<int>(ref.dims[axis]); };
  Plan plan;
  int status = CudnnLibrary::kSuccess;
  auto next = [&](int of_call) {
    if (status == CudnnLibrary::kSuccess) status = of_call;
  };
  const CudnnLibrary& l = library_;
  next(l.CreateTensorDescriptor(&plan.input));
  next(l.CreateTensorDescriptor(&plan.output));
  next(l.CreateFilterDescriptor(&plan.filter));
  next(l.CreateConvolutionDescriptor(&plan.convolution));
  if (status == CudnnLibrary::kSuccess) {
    const TensorRef &x = *parts.input, &w = *parts.filter, &y = *parts.output;
    next(l.SetTensor4dDescriptor(plan.input, l.kNhwc, type, size(x, 0), size(x, 3), size(x, 1),
                                 size(x, 2)));
    next(l.SetTensor4dDescriptor(plan.output, l.kNhwc, type, size(y, 0), size(y, 3), size(y, 1),
                                 size(y, 2)));
    next(l.SetFilter4dDescriptor(plan.filter, type, l.kNhwc, size(w, 0), size(w, 3), size(w, 1),
                                 size(w, 2)));
    next(l.SetConvolution2dDescriptor(
        plan.convolution, static_cast<int>(a.pad_top), static_cast<int>(a.pad_left),
        static_cast<int>(a.stride_height), static_cast<int>(a.stride_width),
        static_cast<int>(a.dilation_height), static_cast<int>(a.dilation_width),
        l.kCrossCorrelation, l.kFloat));
    next(l.SetConvolutionGroupCount(plan.convolution, static_cast<int>(a.groups)));
    const bool units = dtype != DType::kFloat32 || Cublas::tf32();
    next(l.SetConvolutionMathType(plan.convolution, units ? l.kTensorMath : l.kFmaMath));
  }
  if (status == CudnnLibrary::kSuccess) {
    size_t* const bytes = &plan.scratch_bytes;
    switch (call.op) {
      case OpCode::kConv2d:
        next(l.GetConvolutionForwardWorkspaceSize(handle_, plan.input, plan.filter,
                                                  plan.convolution, plan.output,
                                                  l.kForwardImplicitPrecomputed, bytes));
        break;
      case OpCode::kConv2dGradInput:
        next(l.GetConvolutionBackwardDataWorkspaceSize(handle_, plan.filter, plan.output,
                                                       plan.convolution, plan.input,
                                                       l.kBackwardData1, bytes));
        break;
      default:
        next(l.GetConvolutionBackwardFilterWorkspaceSize(handle_, plan.input, plan.output,
                                                         plan.convolution, plan.filter,
                                                         l.kBackwardFilter1, bytes));
    }
  }
  plan.is_usable = status == CudnnLibrary::kSuccess;
  if (!plan.is_usable || call.op != OpCode::kConv2d) return plan;
  next(l.CreateTensorDescriptor(&plan.bias));
  next(l.CreateActivationDescriptor(&plan.relu));
  next(l.CreateActivationDescriptor(&plan.identity));
  if (status == CudnnLibrary::kSuccess) {
    next(l.SetTensor4dDescriptor(plan.bias, l.kNhwc, type, 1, size(*parts.output, 3), 1, 1));
    next(l.SetActivationDescriptor(plan.relu, l.kRelu, l.kNansAreNotPropagated, 0));
    next(l.SetActivationDescriptor(plan.identity, l.kIdentity, l.kNansAreNotPropagated, 0));
  }
  plan.can_fuse = status == CudnnLibrary::kSuccess;
  return plan;
}

Cudnn::Plan& Cudnn::PlanOf(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  const Parts parts(call);
  Key key = {static_cast<int64_t>(call.op) << 8 | static_cast<int64_t>(call.outputs[0].dtype),
             Cublas::tf32() ? 1 : 0};
  int at = 2;
  for (int i = 0; i < 4; ++i) key[at++] = parts.input->dims[i];
  for (int i = 0; i < 4; ++i) key[at++] = parts.filter->dims[i];
  for (int i = 1; i < 3; ++i) key[at++] = parts.output->dims[i];
  for (const int64_t value : {a.stride_height, a.stride_width, a.pad_top, a.pad_left,
                              a.dilation_height, a.dilation_width, a.groups}) {
    key[at++] = value;
  }
  auto found = plans_.find(key);
  if (found == plans_.end()) {
    // Of endlessly many shapes: begin again rather than grow.
    if (plans_.size() >= kMostPlans) {
      for (auto& entry : plans_) Release(entry.second);
      plans_.clear();
    }
    found = plans_.emplace(key, MakePlan(call)).first;
  }
  return found->second;
}

bool Cudnn::Supports(const KernelCall& call) {
  // Gradients of f32 filters without the matrix units: 2.4 TFLOP/s by cuDNN 9.19 on an H200 for the layers of a residual net
  // (0.77 ms of each), three quarters of its step. Our kernel splits the sum over pixels.
  const DType dtype = call.outputs[0].dtype;
  if (call.op == OpCode::kConv2dGradFilter && dtype == DType::kFloat32 && !Cublas::tf32())
    return false;
  // What it does not take needs no check.
  return HasPlan(call) && IsRight(call.op, dtype);
}

bool Cudnn::HasPlan(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  if (a.pad_top != a.pad_bottom || a.pad_left != a.pad_right) return false;
  const Parts parts(call);
  for (const TensorRef* ref : {parts.input, parts.filter, parts.output}) {
    const int64_t count = ref->NumElements();
    if (count == 0 || count > INT_MAX || (ref->dense && !IsAligned(ref->data))) return false;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  return PlanOf(call).is_usable;
}

size_t Cudnn::ScratchBytes(const KernelCall& call) {
  std::lock_guard<std::mutex> lock(mutex_);
  return PlanOf(call).scratch_bytes;
}

bool Cudnn::Run(const KernelCall& call) {
  return Run(call, fused_[static_cast<int>(call.outputs[0].dtype)].load(std::memory_order_acquire));
}

bool Cudnn::RunFused(const KernelCall& call, Plan& plan, Fused fused) {
  const TensorRef& bias = call.inputs[2];
  if (fused == Fused::kNothing || !plan.can_fuse || !bias.present || !IsAligned(bias.data))
    return false;
  const bool relu = fused == Fused::kBiasAndRelu && call.attrs<Conv2dAttributes>().relu;
  const float one = 1, zero = 0;
  void* const result = call.outputs[0].data;
  const int status = library_.ConvolutionBiasActivationForward(
      handle_, &one, plan.input, call.inputs[0].data, plan.filter, call.inputs[1].data,
      plan.convolution, CudnnLibrary::kForwardImplicitPrecomputed, call.scratch, plan.scratch_bytes,
      &zero, plan.output, result, plan.bias, bias.data, relu ? plan.relu : plan.identity,
      plan.output, result);
  if (CudnnLibrary::IsNotSupported(status)) {
    plan.can_fuse = false;
    return false;
  }
  if (status != CudnnLibrary::kSuccess) {
    ThrowIfCurrentIsLost("cuDNN");
    ThrowInternal(
        absl::StrCat("Op [", Info(call.op).name, "]: cuDNN: ", library_.GetErrorString(status)));
  }
  return true;
}

bool Cudnn::Run(const KernelCall& call, Fused fused) {
  const auto& a = call.attrs<Conv2dAttributes>();
  const Queue queue = QueueOf(call);
  const TensorRef& result = call.outputs[0];
  const int64_t columns = result.dims[3];
  const bool forward = call.op == OpCode::kConv2d;
  const bool has_bias = forward && call.inputs[2].present;
  const float one = 1,
              beta = has_bias || (call.op == OpCode::kConv2dGradFilter && a.accumulate) ? 1 : 0;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    Plan& plan = PlanOf(call);
    if (!plan.is_usable || FollowStream() != CudnnLibrary::kSuccess) return false;
    if (forward && RunFused(call, plan, fused)) {
      if (a.relu && fused != Fused::kBiasAndRelu)
        QueueRelu(queue, result.dtype, result.data, result.NumElements());
      return true;
    }
    // The product is added to the bias: one rounding.
    if (has_bias) {
      QueueBias(queue, result.dtype, call.inputs[2].data, result.data,
                result.NumElements() / columns, columns, false);
    }
    int status;
    switch (call.op) {
      case OpCode::kConv2d:
        status = library_.ConvolutionForward(
            handle_, &one, plan.input, call.inputs[0].data, plan.filter, call.inputs[1].data,
            plan.convolution, CudnnLibrary::kForwardImplicitPrecomputed, call.scratch,
            plan.scratch_bytes, &beta, plan.output, result.data);
        break;
      case OpCode::kConv2dGradInput:
        status = library_.ConvolutionBackwardData(
            handle_, &one, plan.filter, call.inputs[1].data, plan.output, call.inputs[0].data,
            plan.convolution, CudnnLibrary::kBackwardData1, call.scratch, plan.scratch_bytes, &beta,
            plan.input, result.data);
        break;
      default:
        status = library_.ConvolutionBackwardFilter(
            handle_, &one, plan.input, call.inputs[0].data, plan.output, call.inputs[1].data,
            plan.convolution, CudnnLibrary::kBackwardFilter1, call.scratch, plan.scratch_bytes,
            &beta, plan.filter, result.data);
    }
    if (CudnnLibrary::IsNotSupported(status)) {
      plan.is_usable = false;
      return false;
    }
    if (status != CudnnLibrary::kSuccess) {
      ThrowIfCurrentIsLost("cuDNN");
      ThrowInternal(
          absl::StrCat("Op [", Info(call.op).name, "]: cuDNN: ", library_.GetErrorString(status)));
    }
  }
  if (forward && a.relu) QueueRelu(queue, result.dtype, result.data, result.NumElements());
  return true;
}

}  // namespace tidepool::cuda
