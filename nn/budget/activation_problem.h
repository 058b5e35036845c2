// A training step as a problem: what waits for the backward pass how long, what it costs to bring it back, and what a plan
// of activations comes to.
//
// The clock has a tick for each forward call of a layer, the loss, the second call of a layer that is computed again, and each layer's
// gradients. The bytes that are alive are counted at every tick: a cap on what is kept would not do, as what is rebuilt is alive
// together.
//
// Threads: values and pure functions.
#ifndef TIDEPOOL_NN_BUDGET_ACTIVATION_PROBLEM_H_
#define TIDEPOOL_NN_BUDGET_ACTIVATION_PROBLEM_H_

#include <cstdint>
#include <vector>

#include "tidepool/nn/network/activation_plan.h"

namespace tidepool::nn {

// Layers by their place in the order in which they are called; their number stands for the loss.
struct ActivationArray {
  int64_t bytes = 0;
  int made = 0;               // the layer that makes it
  int used_until = 0;         // the last one whose forward call has it
  std::vector<int> input_of;  // layers that take it, ascending
  std::vector<int>
      kept_by;  // layers whose gradients read it, ascending; empty: it is gone behind its last use
  int64_t written_bytes = 0;  // where it is spilled; 0: as many as it takes
  bool can_spill = true;      // false: operators do not tell of it
  bool can_remake = false;    // by the gradient of the one layer that keeps it
};

struct LayerActivations {
  double forward_seconds = 0, backward_seconds = 0;
  double remake_seconds = 0;  // of its gradient beside these, where it makes again what it can
  // Beside these, where it is called again: more than another call, as what the first one reads is noted; below 0: as forward.
  double again_seconds = -1;
  // Most that is alive during the call beside arrays that were there before, and during that of its gradients beside arrays.
  int64_t forward_bytes = 0, backward_bytes = 0;
  int64_t gradient_bytes = 0;  // alive when its gradients are next, beside arrays
  bool is_view = false;        // it computes nothing: a segment of such alone is not computed again
  // Layers of one chain that can be computed in slices of the batch have its number; others -1.
  int chain = -1;
  int64_t parameter_bytes =
      0;  // of gradients of what is trained in it, which slices add up beside the step's
};

// What there is of a slice of the batch.
struct SlicedActivations {
  int64_t examples = 0;
  std::vector<LayerActivations> layers;  // in bytes alone
  std::vector<int64_t> array_bytes;
  // Of all slices, by the times of the whole batch.
  double forward_factor = 1.1, backward_factor = 1.1;
};

// What a layer takes that is called again.
inline double AgainSeconds(const LayerActivations& layer) {
  return layer.again_seconds < 0 ? layer.forward_seconds : layer.again_seconds;
}

struct ActivationProblem {
  std::vector<LayerActivations> layers;
  LayerActivations loss;
  std::vector<ActivationArray> arrays;
  std::vector<SlicedActivations> slices;  // that segments of a chain may have, ascending
  int64_t constant_bytes = 0;             // the batch, from begin to end
  // Of the file; and what it takes of memory.
  double written_bytes_per_second = 1e9, read_bytes_per_second = 1e9;
  int64_t file_bytes = 0;
  // What a byte that goes to the file and back takes from whoever computes: copies, checksums.
  double round_trip_seconds_per_byte = 0;
};

struct ActivationCost {
  int64_t peak_bytes = 0;  // with those of the file, where the plan spills
  double seconds = 0;
  double recompute_seconds = 0, stall_seconds = 0;  // of these
  int64_t spilled_bytes = 0;                        // one way
};

// Of a plan of all layers, whose slices are among those of the problem. `alive`, if not null: bytes at each tick. O(layers + arrays) times their mean number of users.
ActivationCost CostOf(const ActivationProblem& problem, const ActivationPlan& plan,
                      std::vector<int64_t>* alive = nullptr);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_ACTIVATION_PROBLEM_H_
