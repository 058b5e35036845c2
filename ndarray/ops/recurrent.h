// One step of LSTM and GRU cells, with gradients. f32, f64, f16, bf16; weights and states of one type.
//
// LSTM (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000). Gates lie side by
// side in the order i, f, g, o (PyTorch's), each [batch, hidden]:
//   gates = x W^T + h R^T + b                                   [batch, 4 * hidden]
//   i = sigmoid(gates_i)  f = sigmoid(gates_f)  g = tanh(gates_g)  o = sigmoid(gates_o)
//   c' = f * c + i * g    h' = o * tanh(c')
//
// GRU (Cho et al. 2014, in the form of cuDNN and PyTorch: the reset gate multiplies what the product
// of the state gave). Order r, z, n:
//   x_gates = x W^T + b    h_gates = h R^T + d                    [batch, 3 * hidden] each
//   r = sigmoid(x_r + h_r)  z = sigmoid(x_z + h_z)  n = tanh(x_n + r * h_n)
//   h' = (1 - z) * n + z * h
//
// x [batch, inputs], h and c [batch, hidden], W [gates * hidden, inputs], R [gates * hidden, hidden],
// biases [gates * hidden]. Results are in the current place; what is saved for the gradient is what
// the step functions return. Errors: kInvalidArgument naming operand, shape and type. Cost: the
// products by MatMul, then one pass over the gates.
#ifndef TIDEPOOL_NDARRAY_OPS_RECURRENT_H_
#define TIDEPOOL_NDARRAY_OPS_RECURRENT_H_

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// ---- LSTM ----

struct LstmStepResult {
  NDArray output;       // h', [batch, hidden]
  NDArray cell;         // c', [batch, hidden]
  NDArray activations;  // i, f, g, o: [batch, 4 * hidden]
};
// The elementwise part, from the gates before their activation.
LstmStepResult LstmCell(const NDArray& gates, const NDArray& cell);

// Of the loss, with respect to LstmCell's operands.
struct LstmCellGradients {
  NDArray gates;  // before the activations
  NDArray cell;   // of c
};
// `cell_gradient`: of c', from the step that follows; null for the last.
LstmCellGradients LstmCellGrad(const NDArray& cell, const LstmStepResult& result,
                               const NDArray& output_gradient, const NDArray* cell_gradient);

// The parameters of an LSTM cell, or gradients with respect to them.
struct LstmWeights {
  NDArray input;      // W
  NDArray recurrent;  // R
  NDArray bias;       // b
};
// A step from the state (output, cell): h and c of the formulas.
LstmStepResult LstmStep(const NDArray& input, const NDArray& output, const NDArray& cell,
                        const LstmWeights& weights);

// Of the loss, with respect to a step's operands.
struct LstmStepGradients {
  NDArray input;   // of x
  NDArray output;  // of h
  NDArray cell;    // of c
};
// The gradients of one step's operands from those of its results; those of the weights are added to
// `weight_gradients`, so that steps of a sequence, last to first, add up.
LstmStepGradients LstmStepGrad(const NDArray& input, const NDArray& output, const NDArray& cell,
                               const LstmWeights& weights, const LstmStepResult& result,
                               const NDArray& output_gradient, const NDArray* cell_gradient,
                               LstmWeights& weight_gradients);

// ---- GRU ----

struct GruCellResult {
  NDArray output;       // h', [batch, hidden]
  NDArray activations;  // r, z, n: [batch, 3 * hidden]
};
// The elementwise part.
GruCellResult GruCell(const NDArray& input_gates, const NDArray& hidden_gates,
                      const NDArray& hidden);

// Of the loss, with respect to GruCell's operands.
struct GruCellGradients {
  NDArray input_gates;   // [batch, 3 * hidden]
  NDArray hidden_gates;  // [batch, 3 * hidden]
  NDArray hidden;        // by way of z * h alone
};
// From GruCell's operands and what it returned.
GruCellGradients GruCellGrad(const NDArray& activations, const NDArray& hidden_gates,
                             const NDArray& hidden, const NDArray& output_gradient);

// The parameters of a GRU cell, or gradients with respect to them.
struct GruWeights {
  NDArray input;           // W
  NDArray recurrent;       // R
  NDArray input_bias;      // b
  NDArray recurrent_bias;  // d
};
// What a step gives, and what its gradient needs of it.
struct GruStepResult {
  NDArray output;        // h', [batch, hidden]
  NDArray activations;   // r, z, n: [batch, 3 * hidden]
  NDArray hidden_gates;  // h R^T + d, [batch, 3 * hidden]
};
// A step from the state `hidden`: h of the formulas.
GruStepResult GruStep(const NDArray& input, const NDArray& hidden, const GruWeights& weights);

// Of the loss, with respect to a step's operands.
struct GruStepGradients {
  NDArray input;   // of x
  NDArray hidden;  // of h
};
// As LstmStepGrad: those of the weights are added to `weight_gradients`.
GruStepGradients GruStepGrad(const NDArray& input, const NDArray& hidden, const GruWeights& weights,
                             const GruStepResult& result, const NDArray& output_gradient,
                             GruWeights& weight_gradients);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_RECURRENT_H_
