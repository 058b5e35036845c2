// Operators that run on XNNPACK. Products and convolutions take it where the right side is
// constant, so that packing is paid once; docs/performance_kernels.md has the measurements behind it.
#include <algorithm>
#include <cstdint>
#include <iterator>
#include <limits>

#include "absl/functional/function_ref.h"
#include "tidepool/backends/cpu/conv2d_call.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/backends/cpu/vector_loops.h"
#include "tidepool/backends/cpu/xnnpack/operators.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// XNNPACK works on the calling thread: its pool waits for every worker to check in, which takes a
// scheduler's quantum when a core is taken. Work that is worth several threads goes to our kernels.
bool IsForOneThread(const KernelCall& call, int64_t work) {
  return call.threads.count == 1 || work < kMinParallelWork;
}

// supports() is asked before the dispatcher makes operands dense; views with gaps are rare here.
// XNNPACK reads up to 16 bytes past the end of its inputs.
bool IsDense(const KernelCall& call) {
  for (const TensorRef& input : call.inputs) {
    if (!input.dense || !input.readable_tail) return false;
  }
  return true;
}

bool IsFinite(const TensorRef& x) {
  return !x.present || Loops().all_finite(x.as<float>(), x.NumElements());
}

// Packed weights are kept, so those that foreign code may write to at any time go to kernels that read
// them where they are.
bool MayBeKept(const TensorRef& weights) { return !weights.present || weights.buffer_id != 0; }

// XNNPACK clamps every result, and a clamp turns NaN into a bound: operands that can make NaN go to
// kernels that keep it. Reading the operands once costs little beside the work; constant weights
// are read when they change.
bool WeightsAreKnownAndFinite(const TensorRef& filter, const TensorRef& bias) {
  if (!MayBeKept(filter) || !MayBeKept(bias)) return false;
  return XnnpackOperators::Global().Remember(
      {filter.buffer_id, filter.version, reinterpret_cast<uintptr_t>(filter.data), bias.buffer_id,
       bias.version, reinterpret_cast<uintptr_t>(bias.data),
       static_cast<uint64_t>(filter.NumElements())},
      [&] { return IsFinite(filter) && IsFinite(bias); });
}

XnnpackOperators::Key WeightsKey(uint64_t kind, const TensorRef& filter, const TensorRef& bias) {
  XnnpackOperators::Key key;
  key.kind = kind;
  key.filter_id = filter.buffer_id;
  key.filter_data = reinterpret_cast<uintptr_t>(filter.data);
  key.filter_version = filter.version;
  if (bias.present) {
    key.bias_id = bias.buffer_id;
    key.bias_data = reinterpret_cast<uintptr_t>(bias.data);
    key.bias_version = bias.version;
  }
  return key;
}

bool SupportsMatMul(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& z = call.outputs[0];
  return a.y_is_constant && z.rank == 2 && !a.transpose_x && !a.accumulate && call.inputs[1].NumElements() > 0 &&
         z.NumElements() > 0 && IsForOneThread(call, z.dims[0] * call.inputs[1].NumElements()) &&
         XnnpackIsUsable() && IsDense(call) && IsFinite(call.inputs[0]) &&
         WeightsAreKnownAndFinite(call.inputs[1], call.inputs[2]);
}

void RunMatMul(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& bias = call.inputs[2];
  const size_t m = call.outputs[0].dims[0], n = call.outputs[0].dims[1], k = x.dims[1];
  XnnpackOperators::Key key = WeightsKey(1, y, bias);
  key.sizes[0] = n;
  key.sizes[1] = k;
  key.sizes[2] = a.relu;
  key.sizes[3] = a.transpose_y;
  XnnpackOperators::Global().With(
      key, "matmul",
      [&](xnn_operator_t* op) {
        return CreateFullyConnected(k, n, y.as<float>(), bias.as<float>(),
                                    a.relu ? 0.0f : -kInfinity,
                                    a.transpose_y ? 0 : XNN_FLAG_TRANSPOSE_WEIGHTS, op);
      },
      [&](xnn_operator_t op) {
        return RunFullyConnected(op, m, x.as<float>(), call.outputs[0].as<float>());
      });
}

bool SupportsConv2d(const KernelCall& call) {
  const auto& a = call.attrs<Conv2dAttributes>();
  // The corrected micro-kernel pads input channels to a multiple of 4: one channel would do four
  // times the work. Depthwise convolutions have micro-kernels of their own.
  const int64_t group_channels = call.inputs[1].dims[3];
  return a.filter_is_constant && call.inputs[1].NumElements() > 0 &&
         (group_channels >= 4 || (a.groups > 1 && group_channels == 1)) &&
         call.outputs[0].NumElements() > 0 &&
         IsForOneThread(call, call.outputs[0].NumElements() * call.inputs[1].NumElements() /
                                  call.inputs[1].dims[0]) &&
         XnnpackIsUsable() && IsDense(call) && IsFinite(call.inputs[0]) &&
         WeightsAreKnownAndFinite(call.inputs[1], call.inputs[2]);
}

// Runs `use` with the operator of this convolution.
void WithConvolution(const KernelCall& call, const Conv2dProblem& p,
                     absl::FunctionRef<xnn_status(xnn_operator_t)> use) {
  const bool relu = call.attrs<Conv2dAttributes>().relu;
  const int64_t groups = call.attrs<Conv2dAttributes>().groups;
  const TensorRef& filter = call.inputs[1];
  const TensorRef& bias = call.inputs[2];
  XnnpackOperators::Key key = WeightsKey(2, filter, bias);
  const int64_t sizes[] = {p.kernel_height, p.kernel_width,    p.stride_height,  p.stride_width,
                           p.pad_top,       p.pad_bottom,      p.pad_left,       p.pad_right,
                           p.in_channels,   p.dilation_height, p.dilation_width, p.out_channels,
                           relu,            groups};
  std::copy(std::begin(sizes), std::end(sizes), key.sizes);
  XnnpackOperators::Global().With(
      key, "conv2d",
      [&](xnn_operator_t* op) {
        return CreateConvolution(p, groups, filter.as<float>(), bias.as<float>(),
                                 relu ? 0.0f : -kInfinity, op);
      },
      use);
}

size_t Conv2dScratchBytes(const KernelCall& call) {
  if (!ConvolutionsTakeWorkspace()) return 0;
  const Conv2dProblem p = ForwardProblem(call);
  size_t bytes = 0;
  WithConvolution(call, p,
                  [&](xnn_operator_t op) { return ConvolutionWorkspace(op, p, &bytes); });
  return bytes;
}

void RunConv2d(const KernelCall& call) {
  const Conv2dProblem p = ForwardProblem(call);
  WithConvolution(call, p, [&](xnn_operator_t op) {
    return RunConvolution(op, p, call.inputs[0].as<float>(), call.outputs[0].as<float>(),
                          call.scratch);
  });
}

// Rows shorter than this are quicker in plain loops than in setting XNNPACK up.
bool SupportsSoftmax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  return call.attrs<SoftmaxAttributes>().axis == x.rank - 1 && x.dims[x.rank - 1] >= 64 &&
         IsForOneThread(call, x.NumElements() * 16) &&
         XnnpackIsUsable() && IsDense(call) && IsFinite(x);
}

void RunSoftmax(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const size_t n = x.dims[x.rank - 1];
  XnnpackOperators::Key key;
  key.kind = 4;
  key.sizes[0] = n;
  XnnpackOperators::Global().With(
      key, "softmax",
      [&](xnn_operator_t* op) { return CreateSoftmax(n, op); },
      [&](xnn_operator_t op) {
        return RunSoftmaxRows(op, x.NumElements() / n, n, x.as<float>(), call.outputs[0].as<float>());
      });
}

const bool noted = [] {
  KernelRegistry::Global().AddNote("xnnpack", &XnnpackDescription);
  return true;
}();

const KernelRegistrar registrar({
    {OpCode::kMatMul, DeviceType::kHost, DType::kFloat32, "xnnpack", 20, &RunMatMul, nullptr,
     &SupportsMatMul},
    {OpCode::kConv2d, DeviceType::kHost, DType::kFloat32, "xnnpack", 20, &RunConv2d,
     &Conv2dScratchBytes, &SupportsConv2d},
    {OpCode::kSoftmax, DeviceType::kHost, DType::kFloat32, "xnnpack", 20, &RunSoftmax, nullptr,
     &SupportsSoftmax},
});

}  // namespace
}  // namespace tidepool::cpu
