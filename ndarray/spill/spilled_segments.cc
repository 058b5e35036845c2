#include "tidepool/ndarray/spill/spilled_segments.h"

#include <utility>

#include "tidepool/ndarray/call_recorder.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/spill/spilled_array.h"

namespace tidepool {

// What Backward() needs of one. Gone with the tape's record of it.
struct SpilledSegments::Segment {
  Function function;
  std::vector<SpilledArray> inputs;
  std::vector<NDArray> parameters;
  std::weak_ptr<Segment> before;

  void Prefetch() {
    for (SpilledArray& input : inputs) input.Prefetch();
  }

  // Of the inputs and then the parameters, undefined where there is none.
  std::vector<NDArray> Backward(absl::Span<const NDArray> output_gradients) {
    std::vector<NDArray> restored;
    restored.reserve(inputs.size());
    for (SpilledArray& input : inputs) restored.push_back(input.Restore());
    // It is read beside what is computed here.
    if (const std::shared_ptr<Segment> next = before.lock()) next->Prefetch();
    const NoGradientScope outside;  // the tape whose gradients these are records nothing of it
    GradientTape tape;
    std::vector<NDArray> wanted;
    for (const auto* const arrays : {&restored, &parameters}) {
      for (const NDArray& array : *arrays) {
        const bool flows = IsFloating(array.dtype()) && array.NumElements() > 0;
        if (flows) tape.Watch(array);
        wanted.push_back(flows ? array : NDArray());
      }
    }
    std::vector<NDArray> outputs = function(restored), gradients;
    restored.clear();
    std::vector<NDArray> reached;
    for (size_t o = 0; o < outputs.size() && o < output_gradients.size(); ++o) {
      if (!output_gradients[o].is_defined()) continue;
      reached.push_back(std::move(outputs[o]));
      gradients.push_back(output_gradients[o]);
    }
    outputs.clear();
    tape.Backward(reached, gradients);
    for (NDArray& array : wanted) {
      if (array.is_defined()) array = tape.Gradient(array);
    }
    return wanted;
  }
};

std::vector<NDArray> SpilledSegments::Run(Function function, absl::Span<const NDArray> inputs,
                                          absl::Span<const NDArray> parameters) {
  if (CallRecorder::Current() == nullptr) return function(inputs);
  auto segment = std::make_shared<Segment>();
  // Written beside what is computed: nobody writes to an input meanwhile.
  std::vector<SpilledArray::Writing> writing;
  writing.reserve(inputs.size());
  for (const NDArray& input : inputs) writing.emplace_back(file_, input);
  std::vector<NDArray> outputs;
  {
    const NoGradientScope inside;
    outputs = function(inputs);
  }
  for (SpilledArray::Writing& one : writing) {
    segment->inputs.push_back(one.Finish());
    spilled_bytes_ += static_cast<int64_t>(segment->inputs.back().bytes());
  }
  segment->function = std::move(function);
  segment->parameters.assign(parameters.begin(), parameters.end());
  segment->before = std::exchange(last_, segment);
  std::vector<NDArray> all(inputs.begin(), inputs.end());
  all.insert(all.end(), parameters.begin(), parameters.end());
  SetGradient("spilled segment", all, outputs, [segment](absl::Span<const NDArray> gradients) {
    return segment->Backward(gradients);
  });
  return outputs;
}

}  // namespace tidepool
