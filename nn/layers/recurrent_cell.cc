#include "tidepool/nn/layers/recurrent_cell.h"

#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/recurrent.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/layers/step_products.h"

namespace tidepool::nn {
namespace {

MatMulAttributes ByWeights(bool is_turned, bool accumulate) {
  return {.transpose_y = !is_turned, .accumulate = accumulate};
}

// Of several steps, as rows.
NDArray RowsOf(const NDArray& steps) {
  return steps.Reshape({steps.dim(0) * steps.dim(1), steps.dim(2)});
}
NDArray NewLike(const NDArray& x) {
  return Empty(x.shape(), x.dtype(), Place::CurrentOn(x.device()));
}

// Parameters: input weight, recurrent weight, bias.
class LstmSteps final : public RecurrentCell {
 public:
  int gates() const override { return 4; }
  int states() const override { return 2; }
  absl::Span<const int> kept() const override {
    static constexpr int kKept[] = {4};
    return kKept;
  }
  void Step(NDArray gates, absl::Span<const NDArray> parameters, bool is_turned,
            absl::Span<const NDArray> states, absl::Span<NDArray> next,
            KeptOfStep kept) const override {
    MatMulInto(states[0], parameters[1], gates, ByWeights(is_turned, /*accumulate=*/true));
    NDArray activations =
        kept.empty() ? Empty(gates.shape(), gates.dtype(), Place::CurrentOn(gates.device()))
                     : kept[0];
    Dispatch(OpCode::kLstmCell, {&gates, &states[1]}, {&next[0], &next[1], &activations});
  }
  void Remake(NDArray gates, absl::Span<const NDArray> parameters, bool is_turned, const NDArray& h,
              KeptOfStep) const override {
    MultiplySteps(h, parameters[1], gates, ByWeights(is_turned, /*accumulate=*/true), nullptr);
  }
  void RemakeStep(const NDArray& gates, const NDArray& c, NDArray& next_c,
                  KeptOfStep kept) const override {
    NDArray next_h = NewLike(c);  // which is there already
    Dispatch(OpCode::kLstmCell, {&gates, &c}, {&next_h, &next_c, &kept[0]});
  }
  void StepGrad(absl::Span<const NDArray> states, absl::Span<const NDArray> next, KeptOfStep kept,
                absl::Span<NDArray> gradients, NDArray& gate_gradient,
                NDArray& recurrent_gradient) const override {
    NDArray cell =
        Empty(states[1].shape(), states[1].dtype(), Place::CurrentOn(states[1].device()));
    Dispatch(OpCode::kLstmCellGrad,
             {&kept[0], &states[1], &next[1], &gradients[0],
              gradients[1].is_defined() ? &gradients[1] : nullptr},
             {&gate_gradient, &cell});
    recurrent_gradient = gate_gradient;
    gradients[0] = NDArray();
    gradients[1] = std::move(cell);
  }
};

// Besides a bias of the state's product.
class GruSteps final : public RecurrentCell {
 public:
  int gates() const override { return 3; }
  int states() const override { return 1; }
  absl::Span<const int> kept() const override {
    static constexpr int kKept[] = {3, 3};
    return kKept;
  }
  bool has_recurrent_bias() const override { return true; }
  bool reads_h() const override { return true; }
  void Step(NDArray gates, absl::Span<const NDArray> parameters, bool is_turned,
            absl::Span<const NDArray> states, absl::Span<NDArray> next,
            KeptOfStep kept) const override {
    const Place place = Place::CurrentOn(gates.device());
    NDArray activations = kept.empty() ? Empty(gates.shape(), gates.dtype(), place) : kept[0];
    NDArray of_state = kept.empty() ? Empty(gates.shape(), gates.dtype(), place) : kept[1];
    MatMulInto(states[0], parameters[1], of_state, ByWeights(is_turned, /*accumulate=*/false),
               &parameters[3]);
    Dispatch(OpCode::kGruCell, {&gates, &of_state, &states[0]}, {&next[0], &activations});
  }
  void Remake(NDArray gates, absl::Span<const NDArray> parameters, bool is_turned, const NDArray& h,
              KeptOfStep kept) const override {
    MultiplySteps(h, parameters[1], kept[1], ByWeights(is_turned, /*accumulate=*/false),
                  &parameters[3]);
    const NDArray rows = RowsOf(gates), of_state = RowsOf(kept[1]), hidden = RowsOf(h);
    NDArray activations = RowsOf(kept[0]), next = NewLike(hidden);
    Dispatch(OpCode::kGruCell, {&rows, &of_state, &hidden}, {&next, &activations});
  }
  void StepGrad(absl::Span<const NDArray> states, absl::Span<const NDArray>, KeptOfStep kept,
                absl::Span<NDArray> gradients, NDArray& gate_gradient,
                NDArray& recurrent_gradient) const override {
    NDArray hidden =
        Empty(states[0].shape(), states[0].dtype(), Place::CurrentOn(states[0].device()));
    Dispatch(OpCode::kGruCellGrad, {&kept[0], &kept[1], &states[0], &gradients[0]},
             {&gate_gradient, &recurrent_gradient, &hidden});
    gradients[0] = std::move(hidden);
  }
};

class SimpleSteps final : public RecurrentCell {
 public:
  explicit SimpleSteps(bool relu) : relu_(relu) {}
  int gates() const override { return 1; }
  int states() const override { return 1; }
  absl::Span<const int> kept() const override { return {}; }
  void Step(NDArray gates, absl::Span<const NDArray> parameters, bool is_turned,
            absl::Span<const NDArray> states, absl::Span<NDArray> next, KeptOfStep) const override {
    MatMulInto(states[0], parameters[1], gates, ByWeights(is_turned, /*accumulate=*/true));
    relu_ ? ReluInto(gates, next[0]) : TanhInto(gates, next[0]);
  }
  void Remake(NDArray, absl::Span<const NDArray>, bool, const NDArray&, KeptOfStep) const override {
  }
  void StepGrad(absl::Span<const NDArray>, absl::Span<const NDArray> next, KeptOfStep,
                absl::Span<NDArray> gradients, NDArray& gate_gradient,
                NDArray& recurrent_gradient) const override {
    relu_ ? ReluGradInto(next[0], gradients[0], gate_gradient)
          : TanhGradInto(next[0], gradients[0], gate_gradient);
    recurrent_gradient = gate_gradient;
    gradients[0] = NDArray();
  }

 private:
  const bool relu_;
};

}  // namespace

void RecurrentCell::RemakeStep(const NDArray&, const NDArray&, NDArray&, KeptOfStep) const {}

const RecurrentCell& LstmCellOfLayers() {
  static const LstmSteps cell;
  return cell;
}
const RecurrentCell& GruCellOfLayers() {
  static const GruSteps cell;
  return cell;
}
const RecurrentCell& SimpleCellOfLayers(bool relu) {
  static const SimpleSteps cells[] = {SimpleSteps(false), SimpleSteps(true)};
  return cells[relu ? 1 : 0];
}

}  // namespace tidepool::nn
