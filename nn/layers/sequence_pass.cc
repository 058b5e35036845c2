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
  cell->Remake(GatesOf(input.array, run, weights), weights.arrays, weights.are_turned, h_before,
               absl::MakeSpan(run.kept));
}

// What the gates became comes from the input, which is there where parameters are trained.
void SequencePass::VisitKept(KeptVisit visit) {
  visit("input", input.array, false);
  visit("output", h.array, false);
  for (StepRun& run : runs) {
    visit("cell state", run.c, false);
    for (NDArray& kept : run.kept) visit("gates", kept, /*can_be_made_again=*/trains);
  }
}

SequencePass* SequencePass::Take() { return Passes().Take(); }

void SequencePass::Done() noexcept {
  input = h = KeptForGradient();
  parameters.clear();
  mask = NDArray();
  first = States();
  runs.clear();
  Passes().Give(this);
}

}  // namespace tidepool::nn
