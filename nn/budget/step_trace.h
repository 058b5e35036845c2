// Of step_meter.cc: which requests of a step belong to which layer, and who keeps them.
#ifndef TIDEPOOL_NN_BUDGET_STEP_TRACE_H_
#define TIDEPOOL_NN_BUDGET_STEP_TRACE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/budget/activation_problem.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/activation_pass.h"

namespace tidepool::nn {

// Where requests of a step belong, counted in requests.
class StepTrace final : public SegmentObserver {
 public:
  explicit StepTrace(Network& network)
      : network_(network),
        layers_(network.config()->nodes.size()),
        forward_begins_(layers_ + 2),
        back_begins_(layers_ + 1, -1),
        input_of_(layers_),
        kept_by_(layers_ + 1),
        outputs_(layers_),
        is_view_(layers_) {}

  void BeginSegment(int segment, absl::Span<const NDArray> inputs) override {
    const auto s = static_cast<size_t>(segment);
    if (s == 0) {
      input_of_.assign(layers_, {});
      kept_by_.assign(layers_ + 1, {});
      outputs_.assign(layers_, {});
      back_begins_.assign(layers_ + 1, -1);
      kept_.clear();
      held_.clear();
      remakeable_.clear();
    }
    forward_begins_[s] = Clock();
    for (const NDArray& input : inputs) AddSlot(input, &input_of_[s]);
  }
  void EndSegment(int segment, absl::Span<const NDArray> outputs, GradientTape& tape) override {
    const auto s = static_cast<size_t>(segment);
    forward_begins_[s + 1] = Clock();
    for (const NDArray& output : outputs) AddSlot(output, &outputs_[s]);
    is_view_[s] =
        !outputs_[s].empty() &&
        std::all_of(outputs_[s].begin(), outputs_[s].end(), [&](size_t output) {
          return std::find(input_of_[s].begin(), input_of_[s].end(), output) != input_of_[s].end();
        });
    Visit(s, tape);
    tape.VisitRemakeable(segment + 1, [&](const BufferHandle& buffer) {
      if (buffer->attached) remakeable_.push_back(buffer->request.slot);
      return false;
    });
  }
  void EndForward(GradientTape& tape) override {
    forward_begins_[layers_ + 1] = Clock();
    Visit(layers_, tape);
    for (const auto& [buffer, slot] : kept_) {
      if (buffer->references.load(std::memory_order_relaxed) > tape.KeptHandles(buffer->id))
        held_.push_back(slot);
    }
  }
  void BackwardIsAt(int segment) override {
    if (segment >= 0) back_begins_[static_cast<size_t>(segment)] = Clock();
  }

  void BeginCycle() { cycle_begin_ = Requests(); }
  void EndCycle() { end_ = Clock(); }

  ActivationProblem Problem() const;

 private:
  int64_t Requests() const {
    const WorkspaceStats stats = network_.training_workspaces().workspaces()[0]->stats();
    return static_cast<int64_t>(stats.hits + stats.spills);
  }
  int64_t Clock() const { return Requests() - cycle_begin_; }
  static void AddSlot(const NDArray& array, std::vector<size_t>* slots) {
    if (!array.is_defined() || !array.buffer() || !array.buffer()->attached) return;
    const size_t slot = array.buffer()->request.slot;
    if (std::find(slots->begin(), slots->end(), slot) == slots->end()) slots->push_back(slot);
  }
  void Visit(size_t layer, GradientTape& tape) {
    tape.VisitKept([&](const BufferHandle& buffer) {
      if (!buffer->attached) return;
      kept_by_[layer].push_back(buffer->request.slot);
      kept_.emplace(buffer.get(), buffer->request.slot);
      bytes_[buffer->request.slot] = static_cast<int64_t>(buffer->bytes);
    });
  }

  Network& network_;
  const size_t layers_;
  int64_t cycle_begin_ = 0, end_ = 0;
  std::vector<int64_t> forward_begins_;  // of layers, the loss, and where it ends
  std::vector<int64_t> back_begins_;     // of layers and the loss; -1: it has nothing
  std::vector<std::vector<size_t>> input_of_, kept_by_, outputs_;  // requests, by layer
  std::vector<bool> is_view_;
  std::map<const Buffer*, size_t> kept_;  // by the tape, and their requests
  std::map<size_t, int64_t> bytes_;       // of these requests
  std::vector<size_t> held_;              // of these, what somebody has beside it
  std::vector<size_t> remakeable_;        // requests
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_STEP_TRACE_H_
