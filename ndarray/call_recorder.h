// Sees the operator calls of a thread: what a tape of gradients is made by (ndarray/gradient/gradient_tape.h).
#ifndef TIDEPOOL_NDARRAY_CALL_RECORDER_H_
#define TIDEPOOL_NDARRAY_CALL_RECORDER_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/hand_gradient.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// While one is Current() on a thread, Dispatch() hands it each call of that thread instead of running it, and the recorder
// runs it by DispatchUnrecorded. Calls that a call makes itself (fallbacks, copies) are not seen again.
class CallRecorder {
 public:
  virtual void Run(OpCode op, absl::Span<const NDArray* const> inputs,
                   absl::Span<NDArray* const> outputs, AttributesRef attributes) = 0;

  // What computes `outputs` from `inputs` without operators, as ndarray/linalg does, says so when it has done it. `backward`
  // gives, by input, the gradients from those of the outputs, and keeps what it captured until then; none: there are none, which is an
  // error when gradients flow.
  using Backward = HandGradientHandle;
  virtual void NoteFunction(const char* name, absl::Span<const NDArray> inputs,
                            absl::Span<const NDArray> outputs, Backward backward) = 0;
  // Whether a function of these inputs would be recorded: whether gradients flow to one of them.
  virtual bool Follows(absl::Span<const NDArray> /*inputs*/) const { return true; }
  // function(inputs), which is recorded as one thing and called again for its gradients.
  virtual std::vector<NDArray> RunSegment(
      std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
      absl::Span<const NDArray> inputs) = 0;

  // What sees the calls of a scope without recording (RecorderFrame of null) that begins while this is current; null: nobody does.
  virtual CallRecorder* InUnrecordedScope() { return nullptr; }
  // Of the recorder's own: it ends with the recorder's frame.
  virtual CallRecorder* OwnInUnrecordedScope() { return nullptr; }

  static CallRecorder* Current() { return current_; }

 protected:
  ~CallRecorder() = default;

 private:
  friend class RecorderFrame;
  static thread_local constinit CallRecorder* current_;
};

// One of the thread's, of which the innermost one says who is current. They may end in any order, on that thread.
class RecorderFrame {
 public:
  // Null: nothing is recorded in it, by those outside neither; they may look on (InUnrecordedScope).
  explicit RecorderFrame(CallRecorder* recorder);
  ~RecorderFrame() { Leave(); }
  RecorderFrame(const RecorderFrame&) = delete;
  RecorderFrame& operator=(const RecorderFrame&) = delete;
  // From here on it is as if it had never been. Idempotent.
  void Leave() noexcept {
    if (!is_in_) return;
    if (innermost_ != this) return LeaveFromBetween();
    is_in_ = false;
    innermost_ = outer_;
    CallRecorder::current_ = outer_ != nullptr ? outer_->now_ : nullptr;
  }
  // After Leave(): the calling thread's innermost one again.
  void Enter() noexcept;
  bool is_in() const { return is_in_; }

  class OutsideOf;
  class Only;

 private:
  enum class Kind : uint8_t { kRecorder, kScope, kOutsideOf, kOnly };

  // Inline, with what it calls: a tape makes one for each call that it sees. GCC warns where it sees that it leaves its own
  // address behind, which Leave() takes back.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdangling-pointer"
#endif
  RecorderFrame(Kind kind, CallRecorder* recorder, const RecorderFrame* of) noexcept
      : recorder_(recorder),
        outer_(innermost_),
        of_(of == nullptr || of->is_in_ ? of : this),
        kind_(kind),
        is_in_(true) {
    now_ = kind == Kind::kOnly ? recorder : OfThoseOutside();
    innermost_ = this;
    CallRecorder::current_ = now_;
  }
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic pop
#endif
  CallRecorder* OfThoseOutside() const {
    const RecorderFrame* const outer =
        kind_ == Kind::kOutsideOf && of_ != this ? of_->outer_ : outer_;
    return outer != nullptr ? outer->now_ : nullptr;
  }
  void LeaveFromBetween() noexcept;
  // Who is current in it, and in those outside, after one of these has left.
  void Refresh() noexcept;

  CallRecorder* recorder_;
  CallRecorder* now_ = nullptr;  // who is current where this is the innermost one
  RecorderFrame* outer_ = nullptr;
  const RecorderFrame* of_ = nullptr;  // of kOutsideOf: one outside of it, or itself
  Kind kind_;
  bool is_in_ = false;
  static thread_local constinit RecorderFrame* innermost_;
};

// While one is alive the frames from `frame` inwards do not count, but for those that are entered meanwhile. Of one that is not in:
// all count.
class RecorderFrame::OutsideOf {
 public:
  explicit OutsideOf(const RecorderFrame& frame) : frame_(Kind::kOutsideOf, nullptr, &frame) {}

 private:
  RecorderFrame frame_;
};

// And here no others do.
class RecorderFrame::Only {
 public:
  explicit Only(CallRecorder* recorder) : frame_(Kind::kOnly, recorder, nullptr) {}
  const RecorderFrame& frame() const { return frame_; }

 private:
  RecorderFrame frame_;
};

// Dispatch() for a recorder, which is not Current() meanwhile.
void DispatchUnrecorded(OpCode op, absl::Span<const NDArray* const> inputs,
                        absl::Span<NDArray* const> outputs, AttributesRef attributes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_CALL_RECORDER_H_
