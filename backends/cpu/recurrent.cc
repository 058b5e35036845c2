// The elementwise part of LSTM and GRU cells, rows of a batch as tasks.
#include <cstdint>

#include "tidepool/backends/cpu/network_kernels.h"
#include "tidepool/backends/cpu/nn_loops.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kWork = 80;  // elementary operations an element: five exponentials
constexpr int64_t kGrain = 8;

// body(row, hidden units) for each row of [batch, hidden].
template <typename Body>
void ForEachRow(const KernelCall& call, const TensorRef& state, Body body) {
  const int64_t rows = state.dims[0], n = state.dims[1];
  ParallelFor(call.threads, rows, kGrain, rows * n * kWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, n);
  });
}

const float* In(const KernelCall& call, int i) { return call.inputs[i].as<float>(); }
float* Out(const KernelCall& call, int o) { return call.outputs[o].as<float>(); }

void RunLstm(const KernelCall& call) {
  ForEachRow(call, call.inputs[1], [&](int64_t row, int64_t n) {
    NetworkLoops().lstm_row(In(call, 0) + 4 * row * n, In(call, 1) + row * n,
                            Out(call, 0) + row * n, Out(call, 1) + row * n,
                            Out(call, 2) + 4 * row * n, n);
  });
}

void RunLstmGrad(const KernelCall& call) {
  ForEachRow(call, call.inputs[1], [&](int64_t row, int64_t n) {
    NetworkLoops().lstm_grad_row(
        In(call, 0) + 4 * row * n, In(call, 1) + row * n, In(call, 2) + row * n,
        In(call, 3) + row * n, call.inputs[4].present ? In(call, 4) + row * n : nullptr,
        Out(call, 0) + 4 * row * n, Out(call, 1) + row * n, n);
  });
}

void RunGru(const KernelCall& call) {
  ForEachRow(call, call.inputs[2], [&](int64_t row, int64_t n) {
    NetworkLoops().gru_row(In(call, 0) + 3 * row * n, In(call, 1) + 3 * row * n,
                           In(call, 2) + row * n, Out(call, 0) + row * n,
                           Out(call, 1) + 3 * row * n, n);
  });
}

void RunGruGrad(const KernelCall& call) {
  ForEachRow(call, call.inputs[2], [&](int64_t row, int64_t n) {
    NetworkLoops().gru_grad_row(In(call, 0) + 3 * row * n, In(call, 1) + 3 * row * n,
                                In(call, 2) + row * n, In(call, 3) + row * n,
                                Out(call, 0) + 3 * row * n, Out(call, 1) + 3 * row * n,
                                Out(call, 2) + row * n, n);
  });
}

const NetworkKernels registrar({
    {OpCode::kLstmCell, &RunLstm},
    {OpCode::kLstmCellGrad, &RunLstmGrad},
    {OpCode::kGruCell, &RunGru},
    {OpCode::kGruCellGrad, &RunGruGrad},
});

}  // namespace
}  // namespace tidepool::cpu
