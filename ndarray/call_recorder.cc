#include "tidepool/ndarray/call_recorder.h"

namespace tidepool {

thread_local constinit CallRecorder* CallRecorder::current_ = nullptr;
thread_local constinit RecorderFrame* RecorderFrame::innermost_ = nullptr;

RecorderFrame::RecorderFrame(CallRecorder* recorder) : recorder_(recorder), is_in_(false) { Enter(); }

void RecorderFrame::Enter() noexcept {
  if (is_in_) return;
  is_in_ = true;
  outer_ = innermost_;
  innermost_ = this;
  CallRecorder::current_ = recorder_;
}

void RecorderFrame::Leave() noexcept {
  if (!is_in_) return;
  is_in_ = false;
  if (innermost_ == this) {
    innermost_ = outer_;
    CallRecorder::current_ = innermost_ != nullptr ? innermost_->recorder_ : nullptr;
    return;
  }
  for (RecorderFrame* frame = innermost_; frame != nullptr; frame = frame->outer_) {
    if (frame->outer_ != this) continue;
    frame->outer_ = outer_;
    return;
  }
}

}  // namespace tidepool
