// What a recurrent layer's pass over a sequence is about, and what it leaves for the pass back: recurrent_run.cc.
#ifndef TIDEPOOL_NN_LAYERS_SEQUENCE_PASS_H_
#define TIDEPOOL_NN_LAYERS_SEQUENCE_PASS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/hand_gradient.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/layers/kept_for_gradient.h"
#include "tidepool/nn/layers/recurrent_cell.h"

namespace tidepool::nn {

// Products of fewer rows are slower by the row; more rows are more memory.
inline constexpr int64_t kRowsOfRun = 256;
// Weights are turned for so many rows, and those of gradients summed up while the rows are near.
inline constexpr int64_t kRowsToTurn = 64;
inline constexpr size_t kMostStates = 2;

using States = std::array<NDArray, kMostStates>;

// Steps [begin, end) that are taken together, and what they keep for the pass back: by step,
// [steps, batch, ...].
struct StepRun {
  int64_t begin = 0, end = 0;
  NDArray c;  // behind all steps but the one that is made last, in the order they are made
  absl::InlinedVector<NDArray, 2> kept;
  // Of the gates and of the state's product, the same array where both are one, as the pass back
  // finds them.
  NDArray gate_gradient, recurrent_gradient;
};

struct SequencePass;

// The parameters as the pass forward reads them.
struct ReadWeights {
  ReadWeights(const SequencePass& pass, absl::Span<const NDArray> parameters);
  absl::InlinedVector<NDArray, 4> arrays;
  bool are_turned = false;  // the weights: [width, gates]
};

// Its memory is used again (recycler.h).
struct SequencePass final : HandGradient {
  const RecurrentCell* cell = nullptr;
  std::string name;
  bool last = false, reversed = false;
  int64_t batch = 0, length = 0, width = 0, units = 0;
  DType dtype = DType::kFloat32;
  Device device;
  bool trains = false;    // gradients of parameters are wanted
  KeptForGradient input;  // where it trains
  absl::InlinedVector<NDArray, 4>
      parameters;             // not checked: layers write averages beside them in one array
  NDArray mask;               // bool [batch, length]; undefined: none
  States first;               // the states before the sequence
  std::vector<StepRun> runs;  // in the order they are made
  NDArray c_ends;     // the states c behind the runs, from where the next ones are made again
  KeptForGradient h;  // [batch, length, units]: the output, where that is a record

  void Run(absl::Span<const NDArray> output_gradients, absl::Span<NDArray> input_gradients,
           bool is_last) override;
  void VisitKept(KeptVisit visit) override;

  // One that is empty. It goes back by itself where it has had a HandGradientHandle.
  static SequencePass* Take();

  Place place() const { return Place::CurrentOn(device); }
  size_t states() const { return static_cast<size_t>(cell->states()); }
  int64_t gate_width() const { return cell->gates() * units; }
  NDArray New(const Shape& shape) const { return Empty(shape, dtype, place()); }
  // Of the p-th step that is made.
  int64_t TimeOf(int64_t p) const { return reversed ? length - 1 - p : p; }
  int64_t StepsOfRun() const {
    return std::clamp<int64_t>((kRowsOfRun + batch - 1) / batch, 1, length);
  }
  StepRun& RunOf(int64_t p) { return runs[static_cast<size_t>(p / StepsOfRun())]; }
  // The state c behind the p-th step that is made.
  NDArray CellAt(int64_t p) {
    const int64_t number = p / StepsOfRun(), made = p % StepsOfRun();
    const StepRun& run = runs[static_cast<size_t>(number)];
    return made + 1 == run.end - run.begin ? c_ends.Index(0, number) : run.c.Index(0, made);
  }
  NDArray MaskAt(int64_t t) const { return mask.Slice(1, t, t + 1); }  // [batch, 1]

  void MakeRuns() {
    for (int64_t p = 0; p < length; p += StepsOfRun()) {
      const int64_t steps = std::min(StepsOfRun(), length - p),
                    begin = reversed ? length - p - steps : p;
      runs.push_back({begin, begin + steps, {}, {}, {}, {}});
    }
  }
  // The run's steps of x [batch, length, n] as rows [steps * batch, n], zeros where there is no
  // step.
  NDArray Rows(const NDArray& x, const StepRun& run) const {
    const NDArray steps = x.Slice(1, run.begin, run.end).Transpose({1, 0, 2});
    const Shape rows{(run.end - run.begin) * batch, x.dim(2)};
    if (!mask.is_defined()) return steps.ReshapeOrCopy(rows);
    return Where(mask.Slice(1, run.begin, run.end).Transpose().ExpandDims(-1), steps, 0)
        .Reshape(rows);
  }
  // Likewise, into [steps, batch, n].
  void CopyInputs(const NDArray& x, const StepRun& run, NDArray& to) const {
    const NDArray steps = x.Slice(1, run.begin, run.end).Transpose({1, 0, 2});
    if (!mask.is_defined()) return CopyInto(steps, to);
    WhereInto(mask.Slice(1, run.begin, run.end).Transpose().ExpandDims(-1), steps,
              Full({1, 1, 1}, 0, dtype, place()), to);
  }
  // The state h before each of the run's steps, [steps, batch, units].
  NDArray StatesBefore(const StepRun& run) const {
    NDArray before = New({run.end - run.begin, batch, units});
    CopyStatesBefore(run, before);
    return before;
  }
  // The product of the run's steps of x with the input weight, plus the bias: [steps, batch, gates * units].
  NDArray GatesOf(const NDArray& x, const StepRun& run, const ReadWeights& weights) const;
  // What the run kept beside h and c_ends, which was let go of, to the same bits: the same products and functions.
  void Remake(StepRun& run, const NDArray& h_before, const ReadWeights& weights);
  void CopyStatesBefore(const StepRun& run, NDArray& before) const {
    const int64_t shift = reversed ? 1 : -1;
    const int64_t from = std::max<int64_t>(0, run.begin + shift),
                  to = std::min(length, run.end + shift);
    if (from < to) {
      NDArray inside = before.Slice(0, from - shift - run.begin, to - shift - run.begin);
      CopyInto(h.array.Slice(1, from, to).Transpose({1, 0, 2}), inside);
    }
    if (TimeOf(0) >= run.begin && TimeOf(0) < run.end) {
      NDArray first_step = before.Index(0, TimeOf(0) - run.begin);
      CopyInto(first[0], first_step);
    }
  }

 private:
  void Done() noexcept override;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_SEQUENCE_PASS_H_
