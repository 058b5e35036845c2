// The elementwise part of LSTM and GRU cells, rows of a batch as tasks.
#include <cstdint>
#include <type_traits>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kWork = 80;  // elementary operations an element: five exponentials
constexpr int64_t kGrain = 8;

template <typename T>
const CellLoops<T>& Cells() {
  if constexpr (std::is_same_v<T, float>) {
    return NetworkLoops().cells;
  } else {
    return NetworkLoops().cells_f64;
  }
}

// body(row, hidden units) for each row of [batch, hidden].
template <typename Body>
void ForEachRow(const KernelCall& call, const TensorRef& state, Body body) {
  const int64_t rows = state.dims[0], n = state.dims[1];
  ParallelFor(call.threads, rows, kGrain, rows * n * kWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, n);
  });
}

// `offset` elements behind the first; null where the operand is absent.
template <typename T>
const T* In(const KernelCall& call, int i, int64_t offset) {
  return call.inputs[i].present ? call.inputs[i].as<T>() + offset : nullptr;
}
template <typename T>
T* Out(const KernelCall& call, int o, int64_t offset) {
  return call.outputs[o].as<T>() + offset;
}

template <typename T>
void RunLstm(const KernelCall& call) {
  ForEachRow(call, call.inputs[1], [&](int64_t row, int64_t n) {
    const int64_t state = row * n, gates = 4 * state;
    Cells<T>().lstm_row(In<T>(call, 0, gates), In<T>(call, 1, state), Out<T>(call, 0, state),
                        Out<T>(call, 1, state), Out<T>(call, 2, gates), n);
  });
}

template <typename T>
void RunLstmGrad(const KernelCall& call) {
  ForEachRow(call, call.inputs[1], [&](int64_t row, int64_t n) {
    const int64_t state = row * n, gates = 4 * state;
    Cells<T>().lstm_grad_row(In<T>(call, 0, gates), In<T>(call, 1, state), In<T>(call, 2, state),
                             In<T>(call, 3, state), In<T>(call, 4, state), Out<T>(call, 0, gates),
                             Out<T>(call, 1, state), n);
  });
}

template <typename T>
void RunGru(const KernelCall& call) {
  ForEachRow(call, call.inputs[2], [&](int64_t row, int64_t n) {
    const int64_t state = row * n, gates = 3 * state;
    Cells<T>().gru_row(In<T>(call, 0, gates), In<T>(call, 1, gates), In<T>(call, 2, state),
                       Out<T>(call, 0, state), Out<T>(call, 1, gates), n);
  });
}

template <typename T>
void RunGruGrad(const KernelCall& call) {
  ForEachRow(call, call.inputs[2], [&](int64_t row, int64_t n) {
    const int64_t state = row * n, gates = 3 * state;
    Cells<T>().gru_grad_row(In<T>(call, 0, gates), In<T>(call, 1, gates), In<T>(call, 2, state),
                            In<T>(call, 3, state), Out<T>(call, 0, gates), Out<T>(call, 1, gates),
                            Out<T>(call, 2, state), n);
  });
}

template <typename T>
constexpr NetworkKernel kKernels[] = {
    {OpCode::kLstmCell, &RunLstm<T>},
    {OpCode::kLstmCellGrad, &RunLstmGrad<T>},
    {OpCode::kGruCell, &RunGru<T>},
    {OpCode::kGruCellGrad, &RunGruGrad<T>},
};

const NetworkKernels registrar(kKernels<float>, kKernels<double>);

}  // namespace
}  // namespace tidepool::cpu
