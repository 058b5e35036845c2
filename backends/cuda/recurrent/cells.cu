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
    const LstmGates<W> a = LstmGatesOf<W>(Wide(gates[u.gate(0)]), Wide(gates[u.gate(1)]),
                                          Wide(gates[u.gate(2)]), Wide(gates[u.gate(3)]));
    const W next = LstmNextCell<W>(a, Wide(cell[u.state]));
    output[u.state] = Narrow<T>(LstmOutput<W>(a, next));
    next_cell[u.state] = Narrow<T>(next);
    activations[u.gate(0)] = Narrow<T>(a.i);
    activations[u.gate(1)] = Narrow<T>(a.f);
    activations[u.gate(2)] = Narrow<T>(a.g);
    activations[u.gate(3)] = Narrow<T>(a.o);
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
    const LstmGates<W> a = {Wide(activations[u.gate(0)]), Wide(activations[u.gate(1)]),
                            Wide(activations[u.gate(2)]), Wide(activations[u.gate(3)])};
    const W from_next = dnext_cell != nullptr ? Wide(dnext_cell[u.state]) : W(0);
    const LstmSlopes<W> d = LstmSlopesOf<W>(a, Wide(cell[u.state]), Wide(next_cell[u.state]),
                                            Wide(doutput[u.state]), from_next);
    dgates[u.gate(0)] = Narrow<T>(d.i);
    dgates[u.gate(1)] = Narrow<T>(d.f);
    dgates[u.gate(2)] = Narrow<T>(d.g);
    dgates[u.gate(3)] = Narrow<T>(d.o);
    dcell[u.state] = Narrow<T>(d.cell);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    GruCellKernel(int64_t count, int64_t hidden, const T* x, const T* h, const T* state,
                  T* next_state, T* activations) {
  using W = Compute<T>;
  for (int64_t index = GlobalThread(); index < count; index += GlobalThreads()) {
    const Unit u(index, hidden, 3);
    const GruGates<W> a = GruGatesOf<W>(Wide(x[u.gate(0)]), Wide(x[u.gate(1)]), Wide(x[u.gate(2)]),
                                        Wide(h[u.gate(0)]), Wide(h[u.gate(1)]), Wide(h[u.gate(2)]));
    next_state[u.state] = Narrow<T>(GruNextHidden<W>(a, Wide(state[u.state])));
    activations[u.gate(0)] = Narrow<T>(a.r);
    activations[u.gate(1)] = Narrow<T>(a.z);
    activations[u.gate(2)] = Narrow<T>(a.n);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    GruCellGradKernel(int64_t count, int64_t hidden, const T* activations, const T* h,
                      const T* state, const T* slopes, T* dx, T* dh, T* dstate) {
  using W = Compute<T>;
  for (int64_t index = GlobalThread(); index < count; index += GlobalThreads()) {
    const Unit u(index, hidden, 3);
    const GruGates<W> a = {Wide(activations[u.gate(0)]), Wide(activations[u.gate(1)]),
                           Wide(activations[u.gate(2)])};
    const GruSlopes<W> d =
        GruSlopesOf<W>(a, Wide(h[u.gate(2)]), Wide(state[u.state]), Wide(slopes[u.state]));
    dx[u.gate(0)] = dh[u.gate(0)] = Narrow<T>(d.r);
    dx[u.gate(1)] = dh[u.gate(1)] = Narrow<T>(d.z);
    dx[u.gate(2)] = Narrow<T>(d.n);
    dh[u.gate(2)] = Narrow<T>(d.hidden_n);
    dstate[u.state] = Narrow<T>(d.hidden);
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
