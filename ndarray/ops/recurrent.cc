#include "tidepool/ndarray/ops/recurrent.h"

#include <initializer_list>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

void CheckState(const char* op, const char* operand, const NDArray& state) {
  CheckRank(op, operand, state, 2);
  CheckFloating(op, operand, state);
}

// [batch, gates * hidden] of the state's type.
void CheckGates(const char* op, const char* operand, const NDArray& gates, const NDArray& state,
                int64_t count) {
  CheckShape(op, operand, gates, {state.dim(0), count * state.dim(1)});
  CheckDType(op, operand, gates, state.dtype());
}

void CheckProducts(const char* op, const NDArray& input, const NDArray& state,
                   const NDArray& input_weights, const NDArray& recurrent_weights, int64_t gates) {
  CheckState(op, "hidden", state);
  CheckRank(op, "input", input, 2);
  CheckShape(op, "input", input, {state.dim(0), input.dim(1)});
  CheckDType(op, "input", input, state.dtype());
  const int64_t hidden = gates * state.dim(1);
  CheckShape(op, "input weights", input_weights, {hidden, input.dim(1)});
  CheckDType(op, "input weights", input_weights, state.dtype());
  CheckShape(op, "recurrent weights", recurrent_weights, {hidden, state.dim(1)});
  CheckDType(op, "recurrent weights", recurrent_weights, state.dtype());
}

struct Operand {
  const char* name;
  const NDArray* array;
};
void CheckAlive(const char* op, std::initializer_list<Operand> operands) {
  for (const Operand& operand : operands) operand.array->CheckAlive(op, operand.name);
}

constexpr MatMulAttributes kByWeights{.transpose_y = true};
constexpr MatMulAttributes kAddByWeights{.transpose_y = true, .accumulate = true};
constexpr MatMulAttributes kAddToWeights{.transpose_x = true, .accumulate = true};
constexpr MatMulAttributes kAdd{.accumulate = true};

}  // namespace

LstmStepResult LstmCell(const NDArray& gates, const NDArray& cell) {
  CheckOperands(OpCode::kLstmCell, {&gates, &cell});
  CheckState("lstm_cell", "cell", cell);
  CheckGates("lstm_cell", "gates", gates, cell, 4);
  const Place place = ResultPlace(OpCode::kLstmCell, {&gates, &cell});
  LstmStepResult result{NDArray(cell.shape(), cell.dtype(), place),
                        NDArray(cell.shape(), cell.dtype(), place),
                        NDArray(gates.shape(), cell.dtype(), place)};
  Dispatch(OpCode::kLstmCell, {&gates, &cell}, {&result.output, &result.cell, &result.activations});
  return result;
}

LstmCellGradients LstmCellGrad(const NDArray& cell, const LstmStepResult& result,
                               const NDArray& output_gradient, const NDArray* cell_gradient) {
  constexpr char kName[] = "lstm_cell_grad";
  CheckOperands(OpCode::kLstmCellGrad,
                {&result.activations, &cell, &result.cell, &output_gradient, cell_gradient});
  CheckState(kName, "cell", cell);
  CheckGates(kName, "activations", result.activations, cell, 4);
  CheckLike(kName, "next_cell", result.cell, cell);
  CheckLike(kName, "output_gradient", output_gradient, cell);
  if (cell_gradient != nullptr) CheckLike(kName, "next_cell_gradient", *cell_gradient, cell);
  const Place place = ResultPlace(OpCode::kLstmCellGrad, {&result.activations, &cell, &result.cell,
                                                          &output_gradient, cell_gradient});
  LstmCellGradients gradients{NDArray(result.activations.shape(), cell.dtype(), place),
                              NDArray(cell.shape(), cell.dtype(), place)};
  Dispatch(OpCode::kLstmCellGrad,
           {&result.activations, &cell, &result.cell, &output_gradient, cell_gradient},
           {&gradients.gates, &gradients.cell});
  return gradients;
}

LstmStepResult LstmStep(const NDArray& input, const NDArray& output, const NDArray& cell,
                        const LstmWeights& weights) {
  CheckAlive("lstm_step", {{"input", &input},
                           {"hidden", &output},
                           {"cell", &cell},
                           {"input weights", &weights.input},
                           {"recurrent weights", &weights.recurrent},
                           {"bias", &weights.bias}});
  CheckProducts("lstm_step", input, output, weights.input, weights.recurrent, 4);
  CheckLike("lstm_step", "cell", cell, output);
  NDArray gates = MatMul(input, weights.input, kByWeights, &weights.bias);
  MatMulInto(output, weights.recurrent, gates, kAddByWeights);
  return LstmCell(gates, cell);
}

LstmStepGradients LstmStepGrad(const NDArray& input, const NDArray& output, const NDArray& cell,
                               const LstmWeights& weights, const LstmStepResult& result,
                               const NDArray& output_gradient, const NDArray* cell_gradient,
                               LstmWeights& weight_gradients) {
  constexpr char kName[] = "lstm_step_grad";
  CheckAlive(kName, {{"input", &input},
                     {"hidden", &output},
                     {"cell", &cell},
                     {"input weights", &weights.input},
                     {"recurrent weights", &weights.recurrent},
                     {"input weights' gradient", &weight_gradients.input},
                     {"recurrent weights' gradient", &weight_gradients.recurrent},
                     {"bias' gradient", &weight_gradients.bias}});
  CheckProducts(kName, input, output, weights.input, weights.recurrent, 4);
  CheckLike(kName, "input weights' gradient", weight_gradients.input, weights.input);
  CheckLike(kName, "recurrent weights' gradient", weight_gradients.recurrent, weights.recurrent);
  CheckShape(kName, "bias' gradient", weight_gradients.bias, {weights.input.dim(0)});
  CheckDType(kName, "bias' gradient", weight_gradients.bias, cell.dtype());
  // What allocates comes first: a failure leaves the weights' gradients as they were.
  const LstmCellGradients d = LstmCellGrad(cell, result, output_gradient, cell_gradient);
  const NDArray ones = Ones({input.dim(0)}, cell.dtype(), Place::CurrentOn(d.gates.device()));
  LstmStepGradients gradients{MatMul(d.gates, weights.input), MatMul(d.gates, weights.recurrent),
                              d.cell};
  MatMulInto(d.gates, input, weight_gradients.input, kAddToWeights);
  MatMulInto(d.gates, output, weight_gradients.recurrent, kAddToWeights);
  MatMulInto(ones, d.gates, weight_gradients.bias, kAdd);
  return gradients;
}

GruCellResult GruCell(const NDArray& input_gates, const NDArray& hidden_gates,
                      const NDArray& hidden) {
  CheckOperands(OpCode::kGruCell, {&input_gates, &hidden_gates, &hidden});
  CheckState("gru_cell", "hidden", hidden);
  CheckGates("gru_cell", "input_gates", input_gates, hidden, 3);
  CheckGates("gru_cell", "hidden_gates", hidden_gates, hidden, 3);
  const Place place = ResultPlace(OpCode::kGruCell, {&input_gates, &hidden_gates, &hidden});
  GruCellResult result{NDArray(hidden.shape(), hidden.dtype(), place),
                       NDArray(input_gates.shape(), hidden.dtype(), place)};
  Dispatch(OpCode::kGruCell, {&input_gates, &hidden_gates, &hidden},
           {&result.output, &result.activations});
  return result;
}

GruCellGradients GruCellGrad(const NDArray& activations, const NDArray& hidden_gates,
                             const NDArray& hidden, const NDArray& output_gradient) {
  constexpr char kName[] = "gru_cell_grad";
  CheckOperands(OpCode::kGruCellGrad, {&activations, &hidden_gates, &hidden, &output_gradient});
  CheckState(kName, "hidden", hidden);
  CheckGates(kName, "activations", activations, hidden, 3);
  CheckGates(kName, "hidden_gates", hidden_gates, hidden, 3);
  CheckLike(kName, "next_hidden_gradient", output_gradient, hidden);
  const Place place =
      ResultPlace(OpCode::kGruCellGrad, {&activations, &hidden_gates, &hidden, &output_gradient});
  GruCellGradients gradients{NDArray(activations.shape(), hidden.dtype(), place),
                             NDArray(activations.shape(), hidden.dtype(), place),
                             NDArray(hidden.shape(), hidden.dtype(), place)};
  Dispatch(OpCode::kGruCellGrad, {&activations, &hidden_gates, &hidden, &output_gradient},
           {&gradients.input_gates, &gradients.hidden_gates, &gradients.hidden});
  return gradients;
}

GruStepResult GruStep(const NDArray& input, const NDArray& hidden, const GruWeights& weights) {
  CheckAlive("gru_step", {{"input", &input},
                          {"hidden", &hidden},
                          {"input weights", &weights.input},
                          {"recurrent weights", &weights.recurrent},
                          {"input bias", &weights.input_bias},
                          {"recurrent bias", &weights.recurrent_bias}});
  CheckProducts("gru_step", input, hidden, weights.input, weights.recurrent, 3);
  const NDArray input_gates = MatMul(input, weights.input, kByWeights, &weights.input_bias);
  NDArray hidden_gates = MatMul(hidden, weights.recurrent, kByWeights, &weights.recurrent_bias);
  GruCellResult cell = GruCell(input_gates, hidden_gates, hidden);
  return {cell.output, cell.activations, hidden_gates};
}

GruStepGradients GruStepGrad(const NDArray& input, const NDArray& hidden, const GruWeights& weights,
                             const GruStepResult& result, const NDArray& output_gradient,
                             GruWeights& weight_gradients) {
  constexpr char kName[] = "gru_step_grad";
  CheckAlive(kName, {{"input", &input},
                     {"hidden", &hidden},
                     {"input weights", &weights.input},
                     {"recurrent weights", &weights.recurrent},
                     {"input weights' gradient", &weight_gradients.input},
                     {"recurrent weights' gradient", &weight_gradients.recurrent},
                     {"input bias' gradient", &weight_gradients.input_bias},
                     {"recurrent bias' gradient", &weight_gradients.recurrent_bias}});
  CheckProducts(kName, input, hidden, weights.input, weights.recurrent, 3);
  CheckLike(kName, "input weights' gradient", weight_gradients.input, weights.input);
  CheckLike(kName, "recurrent weights' gradient", weight_gradients.recurrent, weights.recurrent);
  for (const NDArray* bias : {&weight_gradients.input_bias, &weight_gradients.recurrent_bias}) {
    CheckShape(kName, "bias' gradient", *bias, {weights.input.dim(0)});
    CheckDType(kName, "bias' gradient", *bias, hidden.dtype());
  }
  const GruCellGradients d =
      GruCellGrad(result.activations, result.hidden_gates, hidden, output_gradient);
  const NDArray ones =
      Ones({input.dim(0)}, hidden.dtype(), Place::CurrentOn(d.input_gates.device()));
  GruStepGradients gradients{MatMul(d.input_gates, weights.input), d.hidden};
  MatMulInto(d.hidden_gates, weights.recurrent, gradients.hidden, kAdd);
  MatMulInto(d.input_gates, input, weight_gradients.input, kAddToWeights);
  MatMulInto(d.hidden_gates, hidden, weight_gradients.recurrent, kAddToWeights);
  MatMulInto(ones, d.input_gates, weight_gradients.input_bias, kAdd);
  MatMulInto(ones, d.hidden_gates, weight_gradients.recurrent_bias, kAdd);
  return gradients;
}

}  // namespace tidepool
