#include "tidepool/nn/network/activation_pass.h"

namespace tidepool::nn {

// Parts of the tape are segments from 1, and the loss is behind them.
ActivationPass::ActivationPass(Activations& activations, GradientTape& tape,
                               GradientListener* listener)
    : activations_(activations),
      tape_(tape),
      listener_(listener),
      spills_(activations.plan.spills()),
      spilled_(tape, activations.file.get(),
               {.behind = activations.plan.spill_behind, .ahead = activations.plan.spill_ahead},
               &activations.host_blocks) {
  if (spills_) activations.host_blocks.EndRound();
}

ActivationPass::~ActivationPass() { activations_.last = spilled_.stats(); }

void ActivationPass::BeginSegment(int segment, absl::Span<const NDArray> inputs) {
  tape_.set_part(segment + 1);
  if (activations_.observer != nullptr) activations_.observer->BeginSegment(segment, inputs);
}

void ActivationPass::EndSegment(int segment, absl::Span<const NDArray> outputs) {
  const ActivationSegment& ended = plan().segments[static_cast<size_t>(segment)];
  if (ended.retention == Retention::kRemake)
    tape_.VisitRemakeable(segment + 1, [](const BufferHandle&) { return true; });
  if (spills_) spilled_.EndPart(segment + 1, ended.spills());
  tape_.set_part(static_cast<int>(plan().segments.size()) + 1);
  if (activations_.observer != nullptr) activations_.observer->EndSegment(segment, outputs, tape_);
}

void ActivationPass::EndForward() {
  if (spills_) {
    spilled_.EndPart(static_cast<int>(plan().segments.size()) + 1, /*spills=*/false);
    spilled_.EndForward();
  }
  if (activations_.observer != nullptr) activations_.observer->EndForward(tape_);
}

void ActivationPass::PartIsNext(int part) {
  if (activations_.observer != nullptr) activations_.observer->BackwardIsAt(part - 1);
  if (spills_) spilled_.PartIsNext(part);
}

}  // namespace tidepool::nn
