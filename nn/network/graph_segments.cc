// GraphBody: layers that are called by an activation plan.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/graph_body.h"
#include "tidepool/nn/network/graph_frame.h"

namespace tidepool::nn {

// A segment's two runs. What the second one needs beside its inputs is here, as it was when the first one began.
struct GraphBody::SegmentRun {
  const GraphBody* body;
  BodyCall* first_call;  // until the first one is done
  Frame* first_frame;
  size_t begin, end;
  std::vector<int> inputs, outputs;  // values
  BodyCall call;
  std::vector<NDArray> masks;    // of inputs
  std::vector<NDArray> carried;  // of carried_shapes()
  std::vector<std::pair<int, NDArray>>
      state;  // of what layers keep beside their parameters, by parameter

  std::vector<NDArray> Run(absl::Span<const NDArray> given) {
    const FrameLease lease(*body);
    Frame& frame = *lease;
    for (size_t i = 0; i < inputs.size(); ++i) {
      frame.values[static_cast<size_t>(inputs[i])] = given[i];
      frame.masks[static_cast<size_t>(inputs[i])] = masks[i];
    }
    if (first_call == nullptr) {
      for (const auto& [parameter, value] : state) {
        NDArray now = call.parameters[static_cast<size_t>(parameter)];
        CopyInto(value, now);
      }
      call.carried = absl::MakeSpan(carried);
    }
    body->Run(first_call != nullptr ? *first_call : call, frame, begin, end);
    std::vector<NDArray> made;
    for (const int value : outputs) {
      made.push_back(frame.values[static_cast<size_t>(value)]);
      if (first_call != nullptr)
        first_frame->masks[static_cast<size_t>(value)] = frame.masks[static_cast<size_t>(value)];
    }
    return made;
  }
};

void GraphBody::RunByPlan(BodyCall& call, Frame& frame) const {
  size_t begin = 0;
  int number = 0;
  std::vector<int> inputs, outputs;
  std::vector<NDArray> seen;
  const auto see = [&](absl::Span<const int> values) {
    seen.clear();
    for (const int value : values) seen.push_back(frame.values[static_cast<size_t>(value)]);
    return absl::MakeConstSpan(seen);
  };
  for (const ActivationSegment& segment : call.pass->plan().segments) {
    const size_t end = begin + static_cast<size_t>(segment.layers);
    inputs.clear();
    outputs.clear();
    for (size_t at = begin; at < end; ++at) {
      const auto node = static_cast<size_t>(order_[at]);
      for (const int value : nodes_[node].inputs) {
        const bool is_outside = static_cast<size_t>(value) < inputs_.size() ||
                                made_at_[static_cast<size_t>(value)] < begin;
        if (is_outside && std::find(inputs.begin(), inputs.end(), value) == inputs.end())
          inputs.push_back(value);
      }
      if (last_used_at_[inputs_.size() + node] >= end)
        outputs.push_back(static_cast<int>(inputs_.size() + node));
    }
    call.pass->BeginSegment(number, see(inputs));
    seen.clear();
    segment.recomputes() ? RunToRecompute(call, frame, begin, end, inputs, outputs)
                         : Run(call, frame, begin, end);
    call.pass->EndSegment(number, see(outputs));
    seen.clear();
    begin = end;
    ++number;
  }
}

void GraphBody::RunToRecompute(BodyCall& call, Frame& frame, size_t begin, size_t end,
                               absl::Span<const int> inputs, absl::Span<const int> outputs) const {
  const auto run = std::make_shared<SegmentRun>(SegmentRun{this,
                                                           &call,
                                                           &frame,
                                                           begin,
                                                           end,
                                                           {inputs.begin(), inputs.end()},
                                                           {outputs.begin(), outputs.end()},
                                                           call,
                                                           {},
                                                           {},
                                                           {}});
  run->call.pass = nullptr;
  run->call.workspaces = nullptr;
  run->carried.assign(call.carried.begin(), call.carried.end());
  std::vector<NDArray> given;
  for (const int value : inputs) {
    NDArray& input = frame.values[static_cast<size_t>(value)];
    given.push_back(last_used_at_[static_cast<size_t>(value)] < end ? std::move(input) : input);
    run->masks.push_back(frame.masks[static_cast<size_t>(value)]);
  }
  for (size_t at = begin; at < end; ++at) {
    for (const int p : nodes_[static_cast<size_t>(order_[at])].parameters) {
      if (parameters_[static_cast<size_t>(p)].spec.is_trained) continue;
      const NoGradientScope constants;
      run->state.emplace_back(p, call.parameters[static_cast<size_t>(p)].Dup());
    }
  }
  std::vector<NDArray> made =
      Recomputed([run](absl::Span<const NDArray> arrays) { return run->Run(arrays); }, given);
  run->first_call = nullptr;
  run->first_frame = nullptr;
  for (size_t o = 0; o < made.size(); ++o)
    frame.values[static_cast<size_t>(outputs[o])] = std::move(made[o]);
}

}  // namespace tidepool::nn
