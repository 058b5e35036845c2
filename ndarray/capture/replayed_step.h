// ReplayedStep: the same work on arrays of a device again and again, captured once it can be and
// replayed from then on.
//
//   ReplayedStep step(workspace, "trainer");
//   for (...) {
//     ...                                    // new contents in `features`, by the host or the device
//     step.Run({&features}, {&parameters}, [&] { Queue(features, parameters); });
//   }
//
// Run does the work as it is (in a cycle of the workspace, which learns) until a cycle has followed its
// plan from end to end; the next one is captured and launched, later ones only launched: the same
// kernels with the same arguments, so the same bits. It is captured anew when an array is another one
// (address, shape or type) or the workspace was used by somebody else. A capture that fails is no
// error: the work is done as it is, and after kMostFailures of them in a row no more are tried until
// the arrays change.
//
// What the work must keep to: all that stays and that it reads or writes is named (`reads`, `writes`);
// everything else it makes is gone when it returns; it does not wait for the device, and numbers that
// differ from call to call come from arrays, not from arguments.
//
// While there is a captured step its cycle of the workspace stays open, so that the memory it works in
// cannot go; Forget() and other arrays end it. Somebody else who enters the workspace meanwhile, on the
// same thread, continues that cycle, and the next Run notices; on another thread that is an error.
//
// Errors: whatever the work throws when done as it is; kFailedPrecondition for operands that are gone or
// in use by a view. What a device's CapturedStep throws, whatever its type, is a failure to capture or to
// launch. Threads: one at a time, always the same one while a step is captured; no other
// thread may queue work on the device during a capture. Cost of a replay: one launch, and a look at
// each named array.
#ifndef TIDEPOOL_NDARRAY_CAPTURE_REPLAYED_STEP_H_
#define TIDEPOOL_NDARRAY_CAPTURE_REPLAYED_STEP_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

class ReplayedStep {
 public:
  static constexpr int kMostFailures = 3;  // in a row, of captures and launches, before it gives up

  // What it has done since it was made.
  struct Stats {
    int64_t captures = 0;       // that succeeded
    int64_t launches = 0;       // the one after each capture among them
    int64_t done_as_it_is = 0;  // without a graph: while learning, and after failures
    int64_t failures = 0;       // of captures and launches
    std::string last_failure;   // its message
    size_t nodes = 0;           // of the last capture
  };

  // Throws kUnimplemented when the workspace's device cannot capture, or the workspace is switched off;
  // `who` says who asks. The workspace outlives it.
  ReplayedStep(Workspace& workspace, const char* who);
  ~ReplayedStep();
  // Work is done in that one from here on, of the same device: what is captured goes first. Throws as the constructor and as Forget(), and
  // works in the one before then. The one before may be gone unless a step is captured, whose cycle is open there.
  void SetWorkspace(Workspace& workspace);
  ReplayedStep(const ReplayedStep&) = delete;
  ReplayedStep& operator=(const ReplayedStep&) = delete;

  // Arrays that are null or undefined count as absent; the same ones in every call.
  void Run(absl::Span<const NDArray* const> reads, absl::Span<NDArray* const> writes,
           absl::FunctionRef<void()> step);
  // The next Run is done as it is. The workspace is closed afterwards, also when it throws what waiting for the
  // device throws; the destructor keeps that to itself.
  void Forget();

  // Whether a captured step is held, and the workspace's cycle with it; and the numbers above.
  bool is_captured() const { return held_; }
  const Stats& stats() const { return stats_; }

 private:
  // Of an array that a captured step has in its arguments.
  struct Operand {
    const void* data;
    Shape shape;
    DType dtype;
    bool operator==(const Operand& other) const {
      return data == other.data && dtype == other.dtype && shape == other.shape;
    }
  };
  // Equal before and after a cycle that followed its plan; what it learned from and what it spilled.
  using Marks = std::array<uint64_t, 7>;

  Marks MarksNow() const;
  void Failed();
  void ForgetQuietly() noexcept;
  bool TryCapture(absl::FunctionRef<void()> step);
  bool TryLaunch();

  Workspace* workspace_;
  const char* const who_;
  std::unique_ptr<CapturedStep> captured_;
  std::vector<Operand> operands_, seen_;  // of the last Run; of this one
  bool steady_ = false;                   // the last cycle followed its plan
  bool held_ = false;                     // captured_ has the step, and its cycle is open
  uint64_t held_generation_ = 0;
  size_t held_bytes_ = 0;
  int failures_in_a_row_ = 0;
  Stats stats_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_CAPTURE_REPLAYED_STEP_H_
