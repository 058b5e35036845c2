// The elementwise part of LSTM and GRU cells with gradients; formulas in ndarray/ops/recurrent.h. A
// thread per unit of a state [batch, hidden]; gates lie side by side in rows of the dense operands.
#include "tidepool/backends/cuda/common/block_tree.h"
#include "tidepool/backends/cuda/common/cuda_kernel.h"
#include "tidepool/backends/cuda/common/element.h"
#include "tidepool/backends/cuda/runtime/launch.h"

namespace tidepool::cuda {
namespace {

// One unit of one row: offsets in the state and in rows of `gates` gates.
struct Unit {
  int64_t state, gates, hidden;
  __device__ __forceinline__ Unit(int64_t i, int64_t hidden_size, int gate_count)
      : state(i), hidden(hidden_size) {
    const int64_t row = Quotient(i, hidden_size);
    gates = row * gate_count * hidden_size + (i - row * hidden_size);
  }
  __device__ __forceinline__ int64_t gate(int k) const { return gates + k * hidden; }
};

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    LstmCellKernel(int64_t count, int64_t hidden, const T* gates, const T* cell, T* output,
                   T* next_cell, T* activations) {
  using W = Compute<T>;
  for (int64_t index = GlobalThread(); index < count; index += GlobalThreads()) {
    const Unit u(index, hidden, 4);
    const W i = Sigmoid(Wide(gates[u.gate(0)])), f = Sigmoid(Wide(gates[u.gate(1)]));
    const W g = Tanh(Wide(gates[u.gate(2)])), o = Sigmoid(Wide(gates[u.gate(3)]));
    const W next = f * Wide(cell[u.state]) + i * g;
    output[u.state] = Narrow<T>(o * Tanh(next));
    next_cell[u.state] = Narrow<T>(next);
    activations[u.gate(0)] = Narrow<T>(i);
    activations[u.gate(1)] = Narrow<T>(f);
    activations[u.gate(2)] = Narrow<T>(g);
    activations[u.gate(3)] = Narrow<T>(o);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    LstmCellGradKernel(int64_t count, int64_t hidden, const T* activations, const T* cell,
                       const T* next_cell, const T* doutput, const T* dnext_cell, T* dgates,
                       T* dcell) {
  using W = Compute<T>;
  for (int64_t index = GlobalThread(); index < count; index += GlobalThreads()) {
    const Unit u(index, hidden, 4);
    const W i = Wide(activations[u.gate(0)]), f = Wide(activations[u.gate(1)]);
    const W g = Wide(activations[u.gate(2)]), o = Wide(activations[u.gate(3)]);
    const W t = Tanh(Wide(next_cell[u.state])), slope = Wide(doutput[u.state]);
    W d = slope * o * (1 - t * t);
    if (dnext_cell != nullptr) d += Wide(dnext_cell[u.state]);
    dgates[u.gate(0)] = Narrow<T>(d * g * i * (1 - i));
    dgates[u.gate(1)] = Narrow<T>(d * Wide(cell[u.state]) * f * (1 - f));
    dgates[u.gate(2)] = Narrow<T>(d * i * (1 - g * g));
    dgates[u.gate(3)] = Narrow<T>(slope * t * o * (1 - o));
    dcell[u.state] = Narrow<T>(d * f);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    GruCellKernel(int64_t count, int64_t hidden, const T* x, const T* h, const T* state,
                  T* next_state, T* activations) {
  using W = Compute<T>;
  for (int64_t index = GlobalThread(); index < count; index += GlobalThreads()) {
    const Unit u(index, hidden, 3);
    const W r = Sigmoid(Wide(x[u.gate(0)]) + Wide(h[u.gate(0)]));
    const W z = Sigmoid(Wide(x[u.gate(1)]) + Wide(h[u.gate(1)]));
    const W n = Tanh(Wide(x[u.gate(2)]) + r * Wide(h[u.gate(2)]));
    next_state[u.state] = Narrow<T>((1 - z) * n + z * Wide(state[u.state]));
    activations[u.gate(0)] = Narrow<T>(r);
    activations[u.gate(1)] = Narrow<T>(z);
    activations[u.gate(2)] = Narrow<T>(n);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    GruCellGradKernel(int64_t count, int64_t hidden, const T* activations, const T* h,
                      const T* state, const T* slopes, T* dx, T* dh, T* dstate) {
  using W = Compute<T>;
  for (int64_t index = GlobalThread(); index < count; index += GlobalThreads()) {
    const Unit u(index, hidden, 3);
    const W r = Wide(activations[u.gate(0)]), z = Wide(activations[u.gate(1)]);
    const W n = Wide(activations[u.gate(2)]), d = Wide(slopes[u.state]);
    const W dn = d * (1 - z) * (1 - n * n);
    const W dz = d * (Wide(state[u.state]) - n) * z * (1 - z);
    const W dr = dn * Wide(h[u.gate(2)]) * r * (1 - r);
    dx[u.gate(0)] = dh[u.gate(0)] = Narrow<T>(dr);
    dx[u.gate(1)] = dh[u.gate(1)] = Narrow<T>(dz);
    dx[u.gate(2)] = Narrow<T>(dn);
    dh[u.gate(2)] = Narrow<T>(dn * r);
    dstate[u.state] = Narrow<T>(d * z);
  }
}

// Of `state` [batch, hidden]. `arguments` come after the count and the hidden size.
template <typename... Parameters, typename... Arguments>
void LaunchUnits(const KernelCall& call, const TensorRef& state,
                 void (*kernel)(int64_t, int64_t, Parameters...), const Arguments&... arguments) {
  const int64_t count = state.NumElements();
  if (count == 0) return;
  Launch(kernel, BlocksFor(count, kBlockThreads), kBlockThreads, 0, StreamOf(call), count,
         state.dims[1], arguments...);
}

template <typename T>
T* In(const KernelCall& call, int i) {
  return call.inputs[i].present ? call.inputs[i].as<T>() : nullptr;
}
template <typename T>
T* Out(const KernelCall& call, int i) {
  return call.outputs[i].as<T>();
}

template <typename T>
void LstmCell(const KernelCall& call) {
  LaunchUnits(call, call.inputs[1], LstmCellKernel<T>, In<T>(call, 0), In<T>(call, 1),
              Out<T>(call, 0), Out<T>(call, 1), Out<T>(call, 2));
}

template <typename T>
void LstmCellGrad(const KernelCall& call) {
  LaunchUnits(call, call.inputs[1], LstmCellGradKernel<T>, In<T>(call, 0), In<T>(call, 1),
              In<T>(call, 2), In<T>(call, 3), In<T>(call, 4), Out<T>(call, 0), Out<T>(call, 1));
}

template <typename T>
void GruCell(const KernelCall& call) {
  LaunchUnits(call, call.inputs[2], GruCellKernel<T>, In<T>(call, 0), In<T>(call, 1),
              In<T>(call, 2), Out<T>(call, 0), Out<T>(call, 1));
}

template <typename T>
void GruCellGrad(const KernelCall& call) {
  LaunchUnits(call, call.inputs[2], GruCellGradKernel<T>, In<T>(call, 0), In<T>(call, 1),
              In<T>(call, 2), In<T>(call, 3), Out<T>(call, 0), Out<T>(call, 1), Out<T>(call, 2));
}

const KernelRegistrar registrar({
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLstmCell, LstmCell),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kLstmCellGrad, LstmCellGrad),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kGruCell, GruCell),
    TIDEPOOL_CUDA_FLOAT_KERNELS(OpCode::kGruCellGrad, GruCellGrad),
});

}  // namespace
}  // namespace tidepool::cuda
