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

void GraphBody::FindEnds(size_t begin, size_t end, std::vector<int>* inputs,
                         std::vector<int>* outputs) const {
  inputs->clear();
  outputs->clear();
  for (size_t at = begin; at < end; ++at) {
    const auto node = static_cast<size_t>(order_[at]);
    for (const int value : nodes_[node].inputs) {
      const bool is_outside = static_cast<size_t>(value) < inputs_.size() ||
                              made_at_[static_cast<size_t>(value)] < begin;
      if (is_outside && std::find(inputs->begin(), inputs->end(), value) == inputs->end())
        inputs->push_back(value);
    }
    if (last_used_at_[inputs_.size() + node] >= end)
      outputs->push_back(static_cast<int>(inputs_.size() + node));
  }
}

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
    FindEnds(begin, end, &inputs, &outputs);
    call.pass->BeginSegment(number, see(inputs));
    seen.clear();
    // What masks become of steps along an axis only layers know.
    const bool is_masked =
        frame.masks[static_cast<size_t>(inputs[0])].is_defined() || call.see != nullptr;
    if (segment.slice > 0 && !is_masked) {
      RunInSlices(call, frame, begin, end, segment.slice);
    } else {
      segment.recomputes() ? RunToRecompute(call, frame, begin, end, inputs, outputs)
                           : Run(call, frame, begin, end);
    }
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
    const Node& node = nodes_[static_cast<size_t>(order_[at])];
    // What a frozen layer keeps stays, and others may be reading it (replicas).
    if (call.frozen != nullptr && IsFrozen(node, *call.frozen)) continue;
    for (const int p : node.parameters) {
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

SlicedChain GraphBody::ChainOf(size_t begin, size_t end) const {
  std::vector<const Layer*> layers;
  std::vector<Shape> shapes;
  for (size_t at = begin; at < end; ++at) {
    const Node& node = nodes_[static_cast<size_t>(order_[at])];
    if (layers.empty()) shapes.push_back(shapes_[static_cast<size_t>(node.inputs[0])]);
    layers.push_back(node.layer);
    shapes.push_back(shapes_[inputs_.size() + static_cast<size_t>(order_[at])]);
  }
  return SlicedChain(layers, shapes);
}

int64_t GraphBody::SliceOf(int begin, int layers, std::string* why_not) const {
  const auto first = static_cast<size_t>(begin), end = first + static_cast<size_t>(layers);
  std::vector<int> inputs, outputs;
  FindEnds(first, end, &inputs, &outputs);
  bool is_chain = inputs.size() == 1 && outputs.size() == 1;
  for (size_t at = first; at < end && is_chain; ++at) {
    const Node& node = nodes_[static_cast<size_t>(order_[at])];
    is_chain = node.inputs.size() == 1 &&
               node.inputs[0] ==
                   (at == first ? inputs[0] : static_cast<int>(inputs_.size()) + order_[at - 1]);
  }
  if (!is_chain) {
    *why_not = "they are no chain";
    return 0;
  }
  const SlicedChain chain = ChainOf(first, end);
  *why_not = chain.why_not();
  return why_not->empty() ? chain.examples_at_once() : 0;
}

void GraphBody::RunInSlices(BodyCall& call, Frame& frame, size_t begin, size_t end,
                            int64_t slice) const {
  const auto input_value =
      static_cast<size_t>(nodes_[static_cast<size_t>(order_[begin])].inputs[0]);
  NDArray& value = frame.values[input_value];
  const NDArray input = last_used_at_[input_value] < end ? std::move(value) : value;
  std::vector<NDArray> parameters;
  for (size_t at = begin; at < end; ++at) {
    for (const int p : nodes_[static_cast<size_t>(order_[at])].parameters)
      parameters.push_back(call.parameters[static_cast<size_t>(p)]);
  }
  frame.values[inputs_.size() + static_cast<size_t>(order_[end - 1])] =
      ChainOf(begin, end).Run(input, parameters, slice);
}

}  // namespace tidepool::nn
