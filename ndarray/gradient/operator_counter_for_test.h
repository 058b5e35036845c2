// Which operators ran, for tests of tapes.
#ifndef TIDEPOOL_NDARRAY_GRADIENT_OPERATOR_COUNTER_FOR_TEST_H_
#define TIDEPOOL_NDARRAY_GRADIENT_OPERATOR_COUNTER_FOR_TEST_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Counts the operators that reach it.
class OperatorCounter final : public CallRecorder {
 public:
  void Run(OpCode op, absl::Span<const NDArray* const> inputs, absl::Span<NDArray* const> outputs,
           AttributesRef attributes) override {
    ++counts[Info(op).name];
    const RecorderFrame::OutsideOf outside(frame_);
    Dispatch(op, inputs, outputs, attributes);
  }
  void NoteFunction(const char*, absl::Span<const NDArray>, absl::Span<const NDArray>,
                    Backward) override {}
  std::vector<NDArray> RunSegment(
      std::function<std::vector<NDArray>(absl::Span<const NDArray>)> function,
      absl::Span<const NDArray> inputs) override {
    return function(inputs);
  }
  int operator[](const char* op) { return counts[op]; }
  std::map<std::string, int> counts;

 private:
  RecorderFrame frame_{this};
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_GRADIENT_OPERATOR_COUNTER_FOR_TEST_H_
