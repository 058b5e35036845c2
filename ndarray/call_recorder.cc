#include "tidepool/ndarray/call_recorder.h"

namespace tidepool {

thread_local constinit CallRecorder* CallRecorder::current_ = nullptr;
thread_local constinit RecorderFrame* RecorderFrame::innermost_ = nullptr;

RecorderFrame::RecorderFrame(CallRecorder* recorder) : recorder_(recorder), is_in_(false) { Enter(); }

void RecorderFrame::Enter() noexcept {
  if (is_in_) return;
  is_in_ = true;
  outer_ = innermost_;
  elsewhere_ = CallRecorder::current_;
  is_elsewhere_ = elsewhere_ != (outer_ != nullptr ? outer_->recorder_ : nullptr);
  innermost_ = this;
  CallRecorder::current_ = recorder_;
}

void RecorderFrame::Leave() noexcept {
  if (!is_in_) return;
  is_in_ = false;
  if (innermost_ == this) {
    innermost_ = outer_;
    CallRecorder::current_ = Outside();
    return;
  }
  for (RecorderFrame* frame = innermost_; frame != nullptr; frame = frame->outer_) {
    if (frame->outer_ != this) continue;
    frame->outer_ = outer_;
    if (is_elsewhere_ && !frame->is_elsewhere_) {
      frame->is_elsewhere_ = true;
      frame->elsewhere_ = elsewhere_;
    }
    return;
  }
}

}  // namespace tidepool
