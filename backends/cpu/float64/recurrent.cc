// The elementwise part of LSTM and GRU cells on f64; formulas in ndarray/ops/recurrent.h.
#include <cmath>
#include <cstdint>

#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kUnitWork = 64;  // its exponentials in elementary operations

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

const double* In(const KernelCall& call, int i) { return call.inputs[i].as<double>(); }
double* Out(const KernelCall& call, int o) { return call.outputs[o].as<double>(); }

// body(row, units) for each row of a state [batch, hidden].
template <typename Body>
void ForEachRow(const KernelCall& call, const TensorRef& state, Body body) {
  const int64_t rows = state.dims[0], n = state.dims[1];
  ParallelFor(call.threads, rows, 1, rows * n * kUnitWork, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) body(row, n);
  });
}

void RunLstm(const KernelCall& call) {
  ForEachRow(call, call.inputs[1], [&](int64_t row, int64_t n) {
    const double *gates = In(call, 0) + 4 * row * n, *cell = In(call, 1) + row * n;
    double *output = Out(call, 0) + row * n, *next = Out(call, 1) + row * n;
    double* activations = Out(call, 2) + 4 * row * n;
    for (int64_t k = 0; k < n; ++k) {
      const double i = Sigmoid(gates[k]), f = Sigmoid(gates[n + k]);
      const double g = std::tanh(gates[2 * n + k]), o = Sigmoid(gates[3 * n + k]);
      next[k] = f * cell[k] + i * g;
      output[k] = o * std::tanh(next[k]);
      activations[k] = i;
      activations[n + k] = f;
      activations[2 * n + k] = g;
      activations[3 * n + k] = o;
    }
  });
}

void RunLstmGrad(const KernelCall& call) {
  ForEachRow(call, call.inputs[1], [&](int64_t row, int64_t n) {
    const double *activations = In(call, 0) + 4 * row * n, *cell = In(call, 1) + row * n;
    const double *next = In(call, 2) + row * n, *doutput = In(call, 3) + row * n;
    const double* dnext = call.inputs[4].present ? In(call, 4) + row * n : nullptr;
    double *dgates = Out(call, 0) + 4 * row * n, *dcell = Out(call, 1) + row * n;
    for (int64_t k = 0; k < n; ++k) {
      const double i = activations[k], f = activations[n + k];
      const double g = activations[2 * n + k], o = activations[3 * n + k];
      const double t = std::tanh(next[k]);
      double d = doutput[k] * o * (1 - t * t);
      if (dnext != nullptr) d += dnext[k];
      dgates[k] = d * g * i * (1 - i);
      dgates[n + k] = d * cell[k] * f * (1 - f);
      dgates[2 * n + k] = d * i * (1 - g * g);
      dgates[3 * n + k] = doutput[k] * t * o * (1 - o);
      dcell[k] = d * f;
    }
  });
}

void RunGru(const KernelCall& call) {
  ForEachRow(call, call.inputs[2], [&](int64_t row, int64_t n) {
    const double *x = In(call, 0) + 3 * row * n, *h = In(call, 1) + 3 * row * n;
    const double* hidden = In(call, 2) + row * n;
    double *next = Out(call, 0) + row * n, *activations = Out(call, 1) + 3 * row * n;
    for (int64_t k = 0; k < n; ++k) {
      const double r = Sigmoid(x[k] + h[k]), z = Sigmoid(x[n + k] + h[n + k]);
      const double candidate = std::tanh(x[2 * n + k] + r * h[2 * n + k]);
      next[k] = (1 - z) * candidate + z * hidden[k];
      activations[k] = r;
      activations[n + k] = z;
      activations[2 * n + k] = candidate;
    }
  });
}

void RunGruGrad(const KernelCall& call) {
  ForEachRow(call, call.inputs[2], [&](int64_t row, int64_t n) {
    const double *activations = In(call, 0) + 3 * row * n, *h = In(call, 1) + 3 * row * n;
    const double *hidden = In(call, 2) + row * n, *dnext = In(call, 3) + row * n;
    double *dx = Out(call, 0) + 3 * row * n, *dh = Out(call, 1) + 3 * row * n;
    double* dhidden = Out(call, 2) + row * n;
    for (int64_t k = 0; k < n; ++k) {
      const double r = activations[k], z = activations[n + k], candidate = activations[2 * n + k];
      const double d = dnext[k];
      const double d_n = d * (1 - z) * (1 - candidate * candidate);
      const double d_z = d * (hidden[k] - candidate) * z * (1 - z);
      const double d_r = d_n * h[2 * n + k] * r * (1 - r);
      dx[k] = dh[k] = d_r;
      dx[n + k] = dh[n + k] = d_z;
      dx[2 * n + k] = d_n;
      dh[2 * n + k] = d_n * r;
      dhidden[k] = d * z;
    }
  });
}

constexpr Kernel Cpu(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat64, "cpu", 10, run};
}

const KernelRegistrar registrar({
    Cpu(OpCode::kLstmCell, &RunLstm),
    Cpu(OpCode::kLstmCellGrad, &RunLstmGrad),
    Cpu(OpCode::kGruCell, &RunGru),
    Cpu(OpCode::kGruCellGrad, &RunGruGrad),
});

}  // namespace
}  // namespace tidepool::cpu
