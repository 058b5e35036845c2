// The elementwise part of LSTM and GRU cells in the wide type; formulas in ndarray/ops/recurrent.h.
#include <utility>

#include "tidepool/backends/reference/element_words.h"
#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/backends/reference/strided_access.h"

namespace tidepool::reference {
namespace {

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

// The gates of a unit, of which there are as many as indices.
template <typename T, template <typename> class Gates, int... kGate>
Gates<Wide<T>> GatesAt(const TensorRef& ref, int64_t row, int64_t k, int64_t n,
                       std::integer_sequence<int, kGate...>) {
  return {WideAt<T>(ref, row, kGate * n + k)...};
}
template <typename T>
LstmGates<Wide<T>> LstmAt(const TensorRef& ref, int64_t row, int64_t k, int64_t n) {
  return GatesAt<T, LstmGates>(ref, row, k, n, std::make_integer_sequence<int, 4>());
}
template <typename T>
GruGates<Wide<T>> GruAt(const TensorRef& ref, int64_t row, int64_t k, int64_t n) {
  return GatesAt<T, GruGates>(ref, row, k, n, std::make_integer_sequence<int, 3>());
}

template <typename T>
void LstmCell(const KernelCall& call) {
  ForEachUnit(call.inputs[1], [&](int64_t row, int64_t k, int64_t n) {
    const LstmGates<Wide<T>> before = LstmAt<T>(call.inputs[0], row, k, n);
    const LstmGates<Wide<T>> a = LstmGatesOf(before.i, before.f, before.g, before.o);
    const Wide<T> next = LstmNextCell(a, WideAt<T>(call.inputs[1], row, k));
    Set<T>(call.outputs[0], row, k, LstmOutput(a, next));
    Set<T>(call.outputs[1], row, k, next);
    Set<T>(call.outputs[2], row, k, a.i);
    Set<T>(call.outputs[2], row, n + k, a.f);
    Set<T>(call.outputs[2], row, 2 * n + k, a.g);
    Set<T>(call.outputs[2], row, 3 * n + k, a.o);
  });
}

template <typename T>
void LstmCellGrad(const KernelCall& call) {
  const TensorRef& dgates = call.outputs[0];
  ForEachUnit(call.inputs[1], [&](int64_t row, int64_t k, int64_t n) {
    const Wide<T> from_next =
        call.inputs[4].present ? WideAt<T>(call.inputs[4], row, k) : Wide<T>(0);
    const LstmSlopes<Wide<T>> d = LstmSlopesOf(
        LstmAt<T>(call.inputs[0], row, k, n), WideAt<T>(call.inputs[1], row, k),
        WideAt<T>(call.inputs[2], row, k), WideAt<T>(call.inputs[3], row, k), from_next);
    Set<T>(dgates, row, k, d.i);
    Set<T>(dgates, row, n + k, d.f);
    Set<T>(dgates, row, 2 * n + k, d.g);
    Set<T>(dgates, row, 3 * n + k, d.o);
    Set<T>(call.outputs[1], row, k, d.cell);
  });
}

template <typename T>
void GruCell(const KernelCall& call) {
  ForEachUnit(call.inputs[2], [&](int64_t row, int64_t k, int64_t n) {
    const GruGates<Wide<T>> x = GruAt<T>(call.inputs[0], row, k, n),
                            h = GruAt<T>(call.inputs[1], row, k, n);
    const GruGates<Wide<T>> a = GruGatesOf(x.r, x.z, x.n, h.r, h.z, h.n);
    Set<T>(call.outputs[0], row, k, GruNextHidden(a, WideAt<T>(call.inputs[2], row, k)));
    Set<T>(call.outputs[1], row, k, a.r);
    Set<T>(call.outputs[1], row, n + k, a.z);
    Set<T>(call.outputs[1], row, 2 * n + k, a.n);
  });
}

template <typename T>
void GruCellGrad(const KernelCall& call) {
  ForEachUnit(call.inputs[2], [&](int64_t row, int64_t k, int64_t n) {
    const GruSlopes<Wide<T>> d =
        GruSlopesOf(GruAt<T>(call.inputs[0], row, k, n), WideAt<T>(call.inputs[1], row, 2 * n + k),
                    WideAt<T>(call.inputs[2], row, k), WideAt<T>(call.inputs[3], row, k));
    for (int o = 0; o < 2; ++o) {
      Set<T>(call.outputs[o], row, k, d.r);
      Set<T>(call.outputs[o], row, n + k, d.z);
    }
    Set<T>(call.outputs[0], row, 2 * n + k, d.n);
    Set<T>(call.outputs[1], row, 2 * n + k, d.hidden_n);
    Set<T>(call.outputs[2], row, k, d.hidden);
  });
}

const KernelRegistrar registrar({
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLstmCell, LstmCell),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kLstmCellGrad, LstmCellGrad),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kGruCell, GruCell),
    TIDEPOOL_FLOAT_KERNELS(OpCode::kGruCellGrad, GruCellGrad),
});

}  // namespace
}  // namespace tidepool::reference
