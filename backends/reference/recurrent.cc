// The elementwise part of LSTM and GRU cells in the wide type; formulas in ndarray/ops/recurrent.h.
#include <cmath>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"

namespace tidepool {
namespace {

template <typename W>
W Sigmoid(W x) {
  return 1 / (1 + std::exp(-x));
}

template <typename T>
Wide<T> WideAt(const TensorRef& ref, int64_t i, int64_t j) {
  return static_cast<Wide<T>>(At<T>(ref, i, j));
}
template <typename T>
void Set(const TensorRef& ref, int64_t i, int64_t j, Wide<T> value) {
  At<T>(ref, i, j) = Narrow<T>(value);
}

// body(row, unit, number of units) for each element of a state [batch, hidden].
template <typename Body>
void ForEachUnit(const TensorRef& state, Body body) {
  for (int64_t i = 0; i < state.dims[0]; ++i) {
    for (int64_t k = 0; k < state.dims[1]; ++k) body(i, k, state.dims[1]);
  }
}

template <typename T>
void LstmCell(const KernelCall& call) {
  const TensorRef& gates = call.inputs[0];
  const TensorRef& cell = call.inputs[1];
  ForEachUnit(cell, [&](int64_t row, int64_t k, int64_t n) {
    const Wide<T> i = Sigmoid(WideAt<T>(gates, row, k));
    const Wide<T> f = Sigmoid(WideAt<T>(gates, row, n + k));
    const Wide<T> g = std::tanh(WideAt<T>(gates, row, 2 * n + k));
    const Wide<T> o = Sigmoid(WideAt<T>(gates, row, 3 * n + k));
    const Wide<T> next = f * WideAt<T>(cell, row, k) + i * g;
    Set<T>(call.outputs[0], row, k, o * std::tanh(next));
    Set<T>(call.outputs[1], row, k, next);
    Set<T>(call.outputs[2], row, k, i);
    Set<T>(call.outputs[2], row, n + k, f);
    Set<T>(call.outputs[2], row, 2 * n + k, g);
    Set<T>(call.outputs[2], row, 3 * n + k, o);
  });
}

template <typename T>
void LstmCellGrad(const KernelCall& call) {
  const TensorRef& activations = call.inputs[0];
  const TensorRef& dgates = call.outputs[0];
  ForEachUnit(call.inputs[1], [&](int64_t row, int64_t k, int64_t n) {
    const Wide<T> i = WideAt<T>(activations, row, k), f = WideAt<T>(activations, row, n + k);
    const Wide<T> g = WideAt<T>(activations, row, 2 * n + k);
    const Wide<T> o = WideAt<T>(activations, row, 3 * n + k);
    const Wide<T> t = std::tanh(WideAt<T>(call.inputs[2], row, k));
    const Wide<T> doutput = WideAt<T>(call.inputs[3], row, k);
    Wide<T> d = doutput * o * (1 - t * t);
    if (call.inputs[4].present) d += WideAt<T>(call.inputs[4], row, k);
    Set<T>(dgates, row, k, d * g * i * (1 - i));
    Set<T>(dgates, row, n + k, d * WideAt<T>(call.inputs[1], row, k) * f * (1 - f));
    Set<T>(dgates, row, 2 * n + k, d * i * (1 - g * g));
    Set<T>(dgates, row, 3 * n + k, doutput * t * o * (1 - o));
    Set<T>(call.outputs[1], row, k, d * f);
  });
}

template <typename T>
void GruCell(const KernelCall& call) {
  const TensorRef& x = call.inputs[0];
  const TensorRef& h = call.inputs[1];
  ForEachUnit(call.inputs[2], [&](int64_t row, int64_t k, int64_t n) {
    const Wide<T> r = Sigmoid(WideAt<T>(x, row, k) + WideAt<T>(h, row, k));
    const Wide<T> z = Sigmoid(WideAt<T>(x, row, n + k) + WideAt<T>(h, row, n + k));
    const Wide<T> candidate =
        std::tanh(WideAt<T>(x, row, 2 * n + k) + r * WideAt<T>(h, row, 2 * n + k));
    Set<T>(call.outputs[0], row, k,
           (1 - z) * candidate + z * WideAt<T>(call.inputs[2], row, k));
    Set<T>(call.outputs[1], row, k, r);
    Set<T>(call.outputs[1], row, n + k, z);
    Set<T>(call.outputs[1], row, 2 * n + k, candidate);
  });
}

template <typename T>
void GruCellGrad(const KernelCall& call) {
  const TensorRef& activations = call.inputs[0];
  ForEachUnit(call.inputs[2], [&](int64_t row, int64_t k, int64_t n) {
    const Wide<T> r = WideAt<T>(activations, row, k), z = WideAt<T>(activations, row, n + k);
    const Wide<T> candidate = WideAt<T>(activations, row, 2 * n + k);
    const Wide<T> d = WideAt<T>(call.inputs[3], row, k);
    const Wide<T> d_n = d * (1 - z) * (1 - candidate * candidate);
    const Wide<T> d_z = d * (WideAt<T>(call.inputs[2], row, k) - candidate) * z * (1 - z);
    const Wide<T> d_r = d_n * WideAt<T>(call.inputs[1], row, 2 * n + k) * r * (1 - r);
    for (int o = 0; o < 2; ++o) {
      Set<T>(call.outputs[o], row, k, d_r);
      Set<T>(call.outputs[o], row, n + k, d_z);
    }
    Set<T>(call.outputs[0], row, 2 * n + k, d_n);
    Set<T>(call.outputs[1], row, 2 * n + k, d_n * r);
    Set<T>(call.outputs[2], row, k, d * z);
  });
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLstmCell, LstmCell),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLstmCellGrad, LstmCellGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kGruCell, GruCell),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kGruCellGrad, GruCellGrad),
});

}  // namespace
}  // namespace tidepool
