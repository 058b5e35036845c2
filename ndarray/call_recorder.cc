#include "tidepool/ndarray/call_recorder.h"

namespace tidepool {

thread_local constinit CallRecorder* CallRecorder::current_ = nullptr;
thread_local constinit RecorderFrame* RecorderFrame::innermost_ = nullptr;

RecorderFrame::RecorderFrame(CallRecorder* recorder)
    : recorder_(recorder), kind_(recorder != nullptr ? Kind::kRecorder : Kind::kScope) {
  Enter();
}

void RecorderFrame::Enter() noexcept {
  if (is_in_) return;
  outer_ = innermost_;
  CallRecorder* const outside = CallRecorder::current_;
  now_ = kind_ == Kind::kRecorder ? recorder_
         : outside != nullptr     ? outside->InUnrecordedScope()
                                  : nullptr;
  is_in_ = true;
  innermost_ = this;
  CallRecorder::current_ = now_;
}

void RecorderFrame::LeaveFromBetween() noexcept {
  is_in_ = false;
  RecorderFrame* inside = innermost_;
  while (inside != nullptr && inside->outer_ != this) inside = inside->outer_;
  if (inside == nullptr) return;  // it is of another thread
  inside->outer_ = outer_;
  // Nobody goes back to what has left.
  CallRecorder* const outside = outer_ != nullptr ? outer_->now_ : nullptr;
  CallRecorder* const looks_on =
      kind_ == Kind::kRecorder ? recorder_->OwnInUnrecordedScope() : nullptr;
  for (RecorderFrame* frame = innermost_; frame != outer_; frame = frame->outer_) {
    if (frame->of_ == this) frame->of_ = inside;
    if (kind_ != Kind::kRecorder || frame->kind_ != Kind::kOnly || frame->recorder_ == nullptr)
      continue;
    if (frame->recorder_ == recorder_) frame->recorder_ = outside;
    if (frame->recorder_ == looks_on)
      frame->recorder_ = outside != nullptr ? outside->InUnrecordedScope() : nullptr;
  }
  innermost_->Refresh();
  CallRecorder::current_ = innermost_->now_;
}

void RecorderFrame::Refresh() noexcept {
  if (outer_ != nullptr) outer_->Refresh();
  switch (kind_) {
    case Kind::kRecorder:
    case Kind::kOnly:
      now_ = recorder_;
      break;
    case Kind::kOutsideOf:
      now_ = OfThoseOutside();
      break;
    case Kind::kScope:
      CallRecorder* const outside = OfThoseOutside();
      now_ = outside != nullptr ? outside->InUnrecordedScope() : nullptr;
      break;
  }
}

}  // namespace tidepool
