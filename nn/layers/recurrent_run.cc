#include "tidepool/nn/layers/recurrent_run.h"

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/nn/layers/sequence_mask.h"
#include "tidepool/nn/layers/sequence_pass.h"

namespace tidepool::nn {
namespace {

class ForwardPass {
 public:
  ForwardPass(SequencePass& pass, bool keeps, absl::Span<const NDArray> parameters)
      : pass_(pass), keeps_(keeps), weights_(pass, parameters) {}

  // The output.
  NDArray Run(const NDArray& input, absl::Span<NDArray> carried) {
    const SequencePass& p = pass_;
    if (!p.last) output_ = p.New({p.batch, p.length, p.units});
    if (keeps_)
      record_ = !p.last && !p.mask.is_defined() ? output_ : p.New({p.batch, p.length, p.units});
    if (keeps_ && p.states() > 1)
      pass_.c_ends = p.New({static_cast<int64_t>(p.runs.size()), p.batch, p.units});
    if (p.mask.is_defined()) zero_ = Full({1, 1}, 0, p.dtype, p.place());
    States states = p.first;
    int64_t position = 0;
    for (StepRun& run : pass_.runs) {
      const int64_t steps = run.end - run.begin;
      if (keeps_) {
        if (p.states() > 1 && steps > 1) run.c = p.New({steps - 1, p.batch, p.units});
        for (int size : p.cell->kept()) run.kept.push_back(p.New({steps, p.batch, size * p.units}));
      }
      const NDArray gates = p.GatesOf(input, run, weights_);
      for (int64_t i = 0; i < steps; ++i) Step(run, position++, gates, states);
    }
    for (size_t s = 0; s < carried.size(); ++s) carried[s] = states[s].Dup();
    pass_.h = KeptForGradient(std::move(record_));
    return p.last ? std::move(states[0]) : std::move(output_);
  }

 private:
  // `states`: replaced by those behind the step.
  void Step(StepRun& run, int64_t position, const NDArray& gates, States& states) {
    SequencePass& p = pass_;
    const int64_t t = p.TimeOf(position), i = t - run.begin;
    States next;
    // The state before last lies free unless it was handed in.
    next[0] = spare_.is_defined() ? std::move(spare_) : p.New({p.batch, p.units});
    if (p.states() > 1) next[1] = keeps_ ? p.CellAt(position) : p.New({p.batch, p.units});
    absl::InlinedVector<NDArray, 2> kept;
    for (const NDArray& array : run.kept) kept.push_back(array.Index(0, i));
    p.cell->Step(gates.Index(0, i), weights_.arrays, weights_.are_turned,
                 absl::MakeConstSpan(states.data(), p.states()),
                 absl::MakeSpan(next.data(), p.states()), absl::MakeSpan(kept));
    if (p.mask.is_defined()) {
      const NDArray here = p.MaskAt(t);
      for (size_t s = 0; s < p.states(); ++s) WhereInto(here, next[s], states[s], next[s]);
    }
    if (record_.is_defined()) {
      NDArray at = record_.Index(1, t);
      CopyInto(next[0], at);
    }
    if (output_.is_defined() && (p.mask.is_defined() || !record_.is_defined())) {
      NDArray at = output_.Index(1, t);
      p.mask.is_defined() ? WhereInto(p.MaskAt(t), next[0], zero_, at) : CopyInto(next[0], at);
    }
    if (owns_state_) spare_ = std::move(states[0]);
    owns_state_ = true;
    states = std::move(next);
  }

  SequencePass& pass_;
  const bool keeps_;
  const ReadWeights weights_;
  NDArray output_, record_, zero_, spare_;
  bool owns_state_ = false;
};

// Gradients of the parameters and of the input. Run by run, last to first: those of the gates, by
// step, for which a run lets go of what it kept unless the pass may come again; then, of many rows
// while they are near, what the run adds to those of the parameters. That of the input comes last, if
// somebody reads it: by then what the runs kept is free.
class BackwardPass {
 public:
  BackwardPass(SequencePass& pass, bool comes_again) : pass_(pass), comes_again_(comes_again) {}

  // Of input, input weight, recurrent weight, bias, recurrent bias where there is one.
  void Run(const NDArray& dz, absl::Span<NDArray> gradients) {
    SequencePass& p = pass_;
    const bool two_products = p.cell->has_recurrent_bias(), has_dx = IsGradientUsed(0);
    if (p.trains) ones_ = Ones({p.StepsOfRun() * p.batch}, p.dtype, p.place());
    if (p.last) gradients_[0] = dz;
    int64_t position = p.length;
    const auto add = [&](StepRun& run, NDArray before) {
      if (p.trains) two_products ? AddTwoProducts(run, std::move(before)) : AddOneProduct(run);
      run.recurrent_gradient = NDArray();
      if (!has_dx) run.gate_gradient = NDArray();
    };
    // For fewer rows the sums are not worth their memory beside all that the runs keep.
    const bool at_once = p.batch >= kRowsToTurn;
    for (auto run = p.runs.rbegin(); run != p.runs.rend(); ++run) {
      NDArray before = StepsBack(*run, dz, position);
      if (at_once) add(*run, std::move(before));
    }
    for (auto run = p.runs.rbegin(); run != p.runs.rend() && !at_once; ++run) add(*run, NDArray());
    ones_ = NDArray();
    weights_.reset();
    if (!comes_again_) {
      p.h = KeptForGradient();
      p.c_ends = NDArray();
    }
    if (p.trains && !two_products) {
      dr_ = dw_.Slice(1, p.width, p.width + p.units).Dup();
      dw_ = dw_.Slice(1, 0, p.width).Dup();
    }
    if (has_dx) gradients[0] = InputGradient();
    gradients[1] = std::move(dw_);
    gradients[2] = std::move(dr_);
    gradients[3] = std::move(db_);
    if (two_products) gradients[4] = std::move(dd_);
  }

 private:
  NDArray RowsOf(const NDArray& steps) const {
    return steps.Reshape({steps.dim(0) * pass_.batch, steps.dim(2)});
  }
  // sum += x^T y, of which it is the first where there is none yet.
  void AddProduct(const NDArray& x, const NDArray& y, NDArray& sum) const {
    const bool is_first = !sum.is_defined();
    if (is_first) sum = pass_.New({x.dim(1), y.dim(1)});
    MatMulInto(x, y, sum, {.transpose_x = true, .accumulate = !is_first});
  }
  void AddRows(const NDArray& rows, NDArray& sum) const {
    const bool is_first = !sum.is_defined();
    if (is_first) sum = pass_.New({rows.dim(1)});
    MatMulInto(ones_.Slice(0, 0, rows.dim(0)), rows, sum, {.accumulate = !is_first});
  }
  // Where gates and the state's product have one gradient, one product has both weights' parts:
  // [gates, width + units].
  void AddOneProduct(const StepRun& run) {
    const SequencePass& p = pass_;
    const NDArray rows = RowsOf(run.gate_gradient);
    NDArray operands = p.New({run.end - run.begin, p.batch, p.width + p.units});
    NDArray inputs = operands.Slice(2, 0, p.width),
            h = operands.Slice(2, p.width, p.width + p.units);
    p.CopyInputs(p.input.array, run, inputs);
    p.CopyStatesBefore(run, h);
    AddProduct(rows, RowsOf(operands), dw_);
    AddRows(rows, db_);
  }
  void AddTwoProducts(const StepRun& run, NDArray before) {
    const SequencePass& p = pass_;
    if (!before.is_defined()) before = p.StatesBefore(run);
    AddProduct(RowsOf(run.recurrent_gradient), RowsOf(before), dr_);
    AddRows(RowsOf(run.recurrent_gradient), dd_);
    before = NDArray();
    AddProduct(RowsOf(run.gate_gradient), p.Rows(p.input.array, run), dw_);
    AddRows(RowsOf(run.gate_gradient), db_);
  }
  NDArray InputGradient() const {
    SequencePass& p = pass_;
    NDArray dx = p.New({p.batch, p.length, p.width});
    for (StepRun& run : p.runs) {
      const NDArray gates = RowsOf(std::exchange(run.gate_gradient, NDArray()));
      NDArray at = dx.Slice(1, run.begin, run.end).Transpose({1, 0, 2});
      CopyInto(MatMul(gates, p.parameters[0]).Reshape({run.end - run.begin, p.batch, p.width}), at);
    }
    return dx;
  }

  // `position` counts down. Returns the states h before the steps where the cell has read them.
  NDArray StepsBack(StepRun& run, const NDArray& dz, int64_t& position) {
    const SequencePass& p = pass_;
    const Shape shape{run.end - run.begin, p.batch, p.gate_width()};
    run.gate_gradient = p.New(shape);
    run.recurrent_gradient = p.cell->has_recurrent_bias() ? p.New(shape) : run.gate_gradient;
    const bool is_away = !run.kept.empty() && !run.kept[0].is_defined();
    NDArray before;
    if (p.cell->reads_h() || is_away) before = p.StatesBefore(run);
    if (is_away) {
      if (!weights_.has_value()) weights_.emplace(p, p.parameters);
      pass_.Remake(run, before, *weights_);
      if (!p.cell->reads_h()) before = NDArray();
    }
    for (int64_t i = shape[0]; i-- > 0;) {
      --position;
      if (!p.last) AddOutputGradient(dz, p.TimeOf(position));
      Step(run, position, before);
    }
    if (!comes_again_) {
      run.kept.clear();
      run.c = NDArray();
    }
    return before;
  }

  void AddOutputGradient(const NDArray& dz, int64_t t) {
    const SequencePass& p = pass_;
    NDArray here = dz.Index(1, t);
    if (p.mask.is_defined()) here = Where(p.MaskAt(t), here, 0);
    NDArray& dh = gradients_[0];
    if (!dh.is_defined()) {
      dh = std::move(here);
    } else {
      AddInto(dh, here, dh);
    }
  }

  void Step(StepRun& run, int64_t position, const NDArray& before) {
    SequencePass& p = pass_;
    const int64_t t = p.TimeOf(position), i = t - run.begin;
    States states, next = {p.h.array.Index(1, t)};
    if (before.is_defined()) states[0] = before.Index(0, i);
    if (p.states() > 1) {
      next[1] = p.CellAt(position);
      states[1] = position == 0 ? p.first[1] : p.CellAt(position - 1);
    }
    absl::InlinedVector<NDArray, 2> kept;
    for (const NDArray& array : run.kept) kept.push_back(array.Index(0, i));
    NDArray gates = run.gate_gradient.Index(0, i), of_state = run.recurrent_gradient.Index(0, i);
    const States were = p.mask.is_defined() ? gradients_ : States();
    p.cell->StepGrad(absl::MakeConstSpan(states.data(), p.states()),
                     absl::MakeConstSpan(next.data(), p.states()), absl::MakeSpan(kept),
                     absl::MakeSpan(gradients_.data(), p.states()), gates, of_state);
    NDArray& dh = gradients_[0];
    if (dh.is_defined()) {
      MatMulInto(of_state, p.parameters[1], dh, {.accumulate = true});
    } else {
      dh = MatMul(of_state, p.parameters[1]);
    }
    if (!p.mask.is_defined()) return;
    // Steps that are none pass gradients through as they passed the states.
    const NDArray here = p.MaskAt(t);
    const NDArray zero = Full({1, 1}, 0, p.dtype, p.place());
    WhereInto(here, gates, zero, gates);
    if (p.cell->has_recurrent_bias()) WhereInto(here, of_state, zero, of_state);
    for (size_t s = 0; s < p.states(); ++s)
      WhereInto(here, gradients_[s], were[s].is_defined() ? were[s] : zero, gradients_[s]);
  }

  SequencePass& pass_;
  const bool comes_again_;
  NDArray ones_;
  std::optional<ReadWeights> weights_;  // where something is made again
  NDArray dw_, dr_, db_, dd_;           // dw_ has both weights' where there is one product
  States gradients_;                    // of the states behind the step under way
};

}  // namespace

void SequencePass::Run(absl::Span<const NDArray> output_gradients,
                       absl::Span<NDArray> input_gradients, bool is_last) {
  input.Check(name, "input");
  h.Check(name, "output");
  BackwardPass(*this, /*comes_again=*/!is_last).Run(output_gradients[0], input_gradients);
}

NDArray RunSequence(const RecurrentCell& cell, const char* name, bool last, bool reversed,
                    LayerContext& context, const NDArray& input) {
  SequencePass* const pass = SequencePass::Take();
  HandGradientHandle handle(pass);
  pass->cell = &cell;
  pass->name = name;
  pass->last = last;
  pass->reversed = reversed;
  pass->batch = input.dim(0);
  pass->length = input.dim(1);
  pass->width = input.dim(2);
  pass->units = context.parameters[1].dim(1);
  pass->dtype = input.dtype();
  pass->device = input.device();
  pass->MakeRuns();
  pass->trains = IsRecorded(context.parameters);
  const bool keeps = pass->trains || IsRecorded({&input, 1});
  NDArray output;
  {
    const NoGradientScope by_hand;
    if (IsMaskOf(context.mask, input)) pass->mask = Cast(context.mask, DType::kBool);
    for (size_t s = 0; s < pass->states(); ++s) {
      const bool goes_on = s < context.carried.size() && context.carried[s].is_defined();
      pass->first[s] = goes_on ? Cast(context.carried[s].To(pass->device), pass->dtype)
                               : Zeros({pass->batch, pass->units}, pass->dtype, pass->place());
    }
    output = ForwardPass(*pass, keeps, context.parameters).Run(input, context.carried);
  }
  if (last) context.mask = NDArray();
  if (!keeps) return output;
  if (pass->trains) pass->input = KeptForGradient(input);
  pass->parameters.assign(context.parameters.begin(), context.parameters.end());
  absl::InlinedVector<NDArray, 6> inputs = {input};
  inputs.insert(inputs.end(), context.parameters.begin(), context.parameters.end());
  SetGradient(name, inputs, {&output, 1}, std::move(handle));
  return output;
}

}  // namespace tidepool::nn
