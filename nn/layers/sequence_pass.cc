#include "tidepool/nn/layers/sequence_pass.h"

#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/nn/layers/recycler.h"

namespace tidepool::nn {
namespace {

// On the host a product by weights as they lie, [gates, width], is computed and written the other
// way round; turned once for the whole pass, they are read as they are. Not worth it for less than
// this: of fewer rows weights are read where they lie.
constexpr int64_t kStepsToTurn = 4;

Recycler<SequencePass>& Passes() {
  static Recycler<SequencePass>& passes = Recycler<SequencePass>::New();
  return passes;
}

}  // namespace

ReadWeights::ReadWeights(const SequencePass& pass, absl::Span<const NDArray> parameters)
    : arrays(parameters.begin(), parameters.end()) {
  are_turned = pass.device == Host() && pass.batch >= kRowsToTurn && pass.length >= kStepsToTurn;
  if (!are_turned) return;
  for (NDArray* weight : {&arrays[0], &arrays[1]}) {
    NDArray turned = pass.New({weight->dim(1), weight->dim(0)});
    CopyInto(weight->Transpose(), turned);
    *weight = std::move(turned);
  }
}

NDArray SequencePass::GatesOf(const NDArray& x, const StepRun& run,
                              const ReadWeights& weights) const {
  return MatMul(Rows(x, run), weights.arrays[0], {.transpose_y = !weights.are_turned},
                &weights.arrays[2])
      .Reshape({run.end - run.begin, batch, gate_width()});
}

void SequencePass::Remake(StepRun& run, const NDArray& h_before, const ReadWeights& weights) {
  for (size_t k = 0; k < run.kept.size(); ++k)
    run.kept[k] = New({run.end - run.begin, batch, cell->kept()[k] * units});
  const NDArray gates = GatesOf(input.array, run, weights);
  cell->Remake(gates, weights.arrays, weights.are_turned, h_before, absl::MakeSpan(run.kept));
  if (states() < 2) return;
  const int64_t steps = run.end - run.begin;
  if (steps > 1) run.c = New({steps - 1, batch, units});
  NDArray behind = New({batch, units});
  for (int64_t made = 0, p = (&run - runs.data()) * StepsOfRun(); made < steps; ++made, ++p) {
    const int64_t t = TimeOf(p), i = t - run.begin;
    const NDArray c = p == 0 ? first[1] : CellAt(p - 1);
    NDArray next = made + 1 < steps ? run.c.Index(0, made) : behind;
    absl::InlinedVector<NDArray, 2> kept;
    for (const NDArray& array : run.kept) kept.push_back(array.Index(0, i));
    cell->RemakeStep(gates.Index(0, i), c, next, absl::MakeSpan(kept));
    if (mask.is_defined()) WhereInto(MaskAt(t), next, c, next);
  }
}

// What the gates became comes from the input, which is there where parameters are trained, and the states c come from that.
void SequencePass::VisitKept(KeptVisit visit) {
  visit("input", input.array, false);
  visit("output", h.array, false);
  visit("cell state", c_ends, false);
  for (StepRun& run : runs) {
    visit("cell state", run.c, /*can_be_made_again=*/trains);
    for (NDArray& kept : run.kept) visit("gates", kept, /*can_be_made_again=*/trains);
  }
}

SequencePass* SequencePass::Take() { return Passes().Take(); }

void SequencePass::Done() noexcept {
  input = h = KeptForGradient();
  parameters.clear();
  mask = NDArray();
  first = States();
  c_ends = NDArray();
  runs.clear();
  Passes().Give(this);
}

}  // namespace tidepool::nn
