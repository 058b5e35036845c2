// Matrix products and convolutions on our own blocked kernels (backends/cpu/gemm).
#include <cstdint>

#include "tidepool/backends/cpu/conv2d_call.h"
#include "tidepool/backends/cpu/gemm/conv2d.h"
#include "tidepool/backends/cpu/gemm/gemm.h"
#include "tidepool/backends/cpu/thread_pool.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

GemmProblem Problem(const KernelCall& call) {
  const auto& a = call.attrs<MatMulAttributes>();
  const TensorRef& x = call.inputs[0];
  const TensorRef& y = call.inputs[1];
  const TensorRef& z = call.outputs[0];
  GemmProblem p{};
  p.m = z.dims[0];
  p.n = z.dims[1];
  p.k = x.dims[a.transpose_x ? 0 : 1];
  p.a = x.as<float>();
  p.a_row_stride = x.strides[a.transpose_x ? 1 : 0];
  p.a_col_stride = x.strides[a.transpose_x ? 0 : 1];
  p.b = y.as<float>();
  p.b_row_stride = y.strides[a.transpose_y ? 1 : 0];
  p.b_col_stride = y.strides[a.transpose_y ? 0 : 1];
  p.c = z.as<float>();
  p.ldc = z.dims[1];
  p.bias = call.inputs[2].as<float>();
  p.relu = a.relu;
  p.accumulate = a.accumulate;
  return p;
}

size_t MatMulScratch(const KernelCall& call) {
  const GemmProblem p = Problem(call);
  return GemmScratchBytes(p.m, p.n, p.k, call.threads);
}

void RunMatMul(const KernelCall& call) {
  Gemm(Problem(call), call.scratch, PoolOf(call.threads).get());
}

size_t Conv2dScratch(const KernelCall& call) {
  return Conv2dForwardScratchBytes(ForwardProblem(call), call.threads);
}

void RunConv2d(const KernelCall& call) {
  Conv2dForward(ForwardProblem(call), call.inputs[0].as<float>(), call.inputs[1].as<float>(),
                call.inputs[2].as<float>(), call.attrs<Conv2dAttributes>().relu,
                call.outputs[0].as<float>(), call.scratch, PoolOf(call.threads).get());
}

Conv2dProblem GradInputProblem(const KernelCall& call) {
  return MakeConv2dProblem(call.outputs[0], call.inputs[1], call.attrs<Conv2dAttributes>());
}

size_t GradInputScratch(const KernelCall& call) {
  return Conv2dGradInputScratchBytes(GradInputProblem(call), call.threads);
}

void RunGradInput(const KernelCall& call) {
  Conv2dGradInput(GradInputProblem(call), call.inputs[0].as<float>(), call.inputs[1].as<float>(),
                  call.outputs[0].as<float>(), call.scratch, PoolOf(call.threads).get());
}

Conv2dProblem GradFilterProblem(const KernelCall& call) {
  return MakeConv2dProblem(call.inputs[0], call.outputs[0], call.attrs<Conv2dAttributes>());
}

size_t GradFilterScratch(const KernelCall& call) {
  return Conv2dGradFilterScratchBytes(GradFilterProblem(call), call.threads);
}

void RunGradFilter(const KernelCall& call) {
  Conv2dGradFilter(GradFilterProblem(call), call.inputs[0].as<float>(), call.inputs[1].as<float>(),
                   call.outputs[0].as<float>(), call.attrs<Conv2dAttributes>().accumulate,
                   call.scratch, PoolOf(call.threads).get());
}

constexpr DeviceType kHost = DeviceType::kHost;
constexpr DType kF32 = DType::kFloat32;
constexpr int kPriority = 10;

const KernelRegistrar registrar({
    {OpCode::kMatMul, kHost, kF32, "cpu", kPriority, &RunMatMul, &MatMulScratch},
    {OpCode::kConv2d, kHost, kF32, "cpu", kPriority, &RunConv2d, &Conv2dScratch},
    {OpCode::kConv2dGradInput, kHost, kF32, "cpu", kPriority, &RunGradInput, &GradInputScratch},
    {OpCode::kConv2dGradFilter, kHost, kF32, "cpu", kPriority, &RunGradFilter, &GradFilterScratch},
});

}  // namespace
}  // namespace tidepool::cpu
