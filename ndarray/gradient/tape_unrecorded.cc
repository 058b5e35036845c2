// Calls that a tape sees without recording them, as they may overwrite what it has kept: in a NoGradientScope, and in Backward().
#include <utility>

#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/gradient/tape_recorder.h"

namespace tidepool {

void GradientTape::Recorder::Unrecorded::Run(OpCode op, absl::Span<const NDArray* const> inputs,
                                             absl::Span<NDArray* const> outputs,
                                             AttributesRef attributes) {
  const RecorderFrame::OutsideOf outside(tape_.frame_);
  CallRecorder* const outer = CallRecorder::Current();
  const RecorderFrame::Only only(outer != nullptr ? outer->InUnrecordedScope() : nullptr);
  Dispatch(op, inputs, outputs, attributes);
  if (tape_.state_ == State::kRecording) tape_.NoteWrites(Info(op).name, outputs);
}

CallRecorder* GradientTape::Recorder::InUnrecordedScope() {
  if (state_ == State::kRecording) return &unrecorded_;
  const RecorderFrame::OutsideOf outside(frame_);
  CallRecorder* const outer = CallRecorder::Current();
  return outer != nullptr ? outer->InUnrecordedScope() : nullptr;
}

void GradientTape::Recorder::InBackward::Run(OpCode op, absl::Span<const NDArray* const> inputs,
                                             absl::Span<NDArray* const> outputs,
                                             AttributesRef attributes) {
  tape_.writes_.Reserve(2 * outputs.size());
  {
    const RecorderFrame::OutsideOf outside(*frame_);
    if (records_) {
      Dispatch(op, inputs, outputs, attributes);
    } else {
      CallRecorder* const outer = CallRecorder::Current();
      const RecorderFrame::Only only(outer != nullptr ? outer->InUnrecordedScope() : nullptr);
      Dispatch(op, inputs, outputs, attributes);
    }
  }
  tape_.NoteWrites(Info(op).name, outputs, /*in_backward=*/true);
}

void GradientTape::Recorder::InBackward::NoteFunction(const char* name,
                                                      absl::Span<const NDArray> inputs,
                                                      absl::Span<const NDArray> outputs,
                                                      Backward backward) {
  if (!records_) return;
  const RecorderFrame::OutsideOf outside(*frame_);
  if (CallRecorder* const outer = CallRecorder::Current())
    outer->NoteFunction(name, inputs, outputs, std::move(backward));
}

bool GradientTape::Recorder::InBackward::Follows(absl::Span<const NDArray> inputs) const {
  if (!records_) return false;
  const RecorderFrame::OutsideOf outside(*frame_);
  return IsRecorded(inputs);
}

std::vector<NDArray> GradientTape::Recorder::InBackward::RunSegment(
    std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
    absl::Span<const NDArray> inputs) {
  if (!IsRecordedOutside()) return function(inputs);
  const RecorderFrame::OutsideOf outside(*frame_);
  return CallRecorder::Current()->RunSegment(std::move(function), inputs);
}

bool GradientTape::Recorder::InBackward::IsRecordedOutside() const {
  if (!records_) return false;
  const RecorderFrame::OutsideOf outside(*frame_);
  return IsRecordedHere();
}

bool GradientTape::Recorder::IsRecordedHere() {
  const CallRecorder* const current = CallRecorder::Current();
  if (const auto* const other = dynamic_cast<const InBackward*>(current))
    return other->IsRecordedOutside();
  return dynamic_cast<const Recorder*>(current) != nullptr;
}

}  // namespace tidepool
