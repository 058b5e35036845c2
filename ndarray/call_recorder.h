// Sees the operator calls of a thread: what a tape of gradients is made by (ndarray/gradient/gradient_tape.h).
#ifndef TIDEPOOL_NDARRAY_CALL_RECORDER_H_
#define TIDEPOOL_NDARRAY_CALL_RECORDER_H_

#include <functional>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// While one is Current() on a thread, Dispatch() hands it each call of that thread instead of running it, and the recorder
// runs it by DispatchUnrecorded. Calls that a call makes itself (fallbacks, copies) are not seen again.
class CallRecorder {
 public:
  virtual void Run(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
                   AttributesRef attributes) = 0;

  // What computes `outputs` from `inputs` without operators, as ndarray/linalg does, says so when it has done it. `backward`
  // gives, by input, the gradients from those of the outputs (undefined: nothing flows from that one), and keeps what it
  // captured until then; empty: there are none, which is an error when gradients flow.
  using Backward = std::function<std::vector<NDArray>(absl::Span<const NDArray> output_gradients)>;
  virtual void NoteFunction(const char* name, absl::Span<const NDArray> inputs, absl::Span<const NDArray> outputs,
                            Backward backward) = 0;

  static CallRecorder* Current() { return current_; }

 protected:
  ~CallRecorder() = default;
  static void SetCurrent(CallRecorder* recorder) { current_ = recorder; }

 private:
  static thread_local constinit CallRecorder* current_;
};

// Dispatch() for a recorder, which is not Current() meanwhile.
void DispatchUnrecorded(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
                        AttributesRef attributes);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_CALL_RECORDER_H_
