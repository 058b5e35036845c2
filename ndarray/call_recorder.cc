#include "tidepool/ndarray/call_recorder.h"

namespace tidepool {
namespace {

CallRecorder* InUnrecordedScopeOf(CallRecorder* recorder) {
  return recorder != nullptr ? recorder->InUnrecordedScope() : nullptr;
}

}  // namespace

thread_local constinit CallRecorder* CallRecorder::current_ = nullptr;
thread_local constinit RecorderFrame* RecorderFrame::innermost_ = nullptr;

RecorderFrame::RecorderFrame(CallRecorder* recorder) : recorder_(recorder), is_in_(false) {
  Enter();
}

void RecorderFrame::Enter() noexcept {
  if (is_in_) return;
  is_in_ = true;
  outer_ = innermost_;
  elsewhere_ = CallRecorder::current_;
  is_elsewhere_ = elsewhere_ != (outer_ != nullptr ? outer_->recorder_ : nullptr);
  innermost_ = this;
  CallRecorder::current_ = recorder_ != nullptr ? recorder_ : InUnrecordedScopeOf(elsewhere_);
}

void RecorderFrame::Leave() noexcept {
  if (!is_in_) return;
  is_in_ = false;
  CallRecorder* const outside = Outside();
  CallRecorder* const looks_on = recorder_ != nullptr ? recorder_->OwnInUnrecordedScope() : nullptr;
  if (looks_on != nullptr && CallRecorder::current_ == looks_on)
    CallRecorder::current_ = InUnrecordedScopeOf(outside);
  // Frames inwards of it that were entered while it was current in another place than theirs: nobody goes back to what has left.
  for (RecorderFrame* frame = innermost_; frame != nullptr && frame != this;
       frame = frame->outer_) {
    if (recorder_ != nullptr && frame->is_elsewhere_ && frame->elsewhere_ == recorder_)
      frame->elsewhere_ = outside;
    if (looks_on != nullptr && frame->is_elsewhere_ && frame->elsewhere_ == looks_on) {
      frame->elsewhere_ = InUnrecordedScopeOf(outside);
    }
  }
  if (innermost_ == this) {
    innermost_ = outer_;
    CallRecorder::current_ = outside;
    return;
  }
  for (RecorderFrame* frame = innermost_; frame != nullptr; frame = frame->outer_) {
    if (frame->outer_ != this) continue;
    frame->outer_ = outer_;
    if (is_elsewhere_ && !frame->is_elsewhere_) {
      frame->is_elsewhere_ = true;
      frame->elsewhere_ = elsewhere_;
    }
    break;
  }
  // A frame that was entered while this one's gradients ran, and is still there, did not make it current again.
  if (recorder_ != nullptr && CallRecorder::current_ == recorder_)
    CallRecorder::current_ = innermost_->recorder_;
}

}  // namespace tidepool
