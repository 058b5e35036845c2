// How what the layers of a network compute waits for the backward pass: in memory, in a spill file, or not at all, computed again.
//
//   network.SetActivationPlan({{{.layers = 2}, {.layers = 3, .retention = Retention::kRecompute}, ...}});
//
// Bits are the same by any plan. nn/budget/step_budget.h finds the one that suits a budget.
#ifndef TIDEPOOL_NN_NETWORK_ACTIVATION_PLAN_H_
#define TIDEPOOL_NN_NETWORK_ACTIVATION_PLAN_H_

#include <cstdint>
#include <string>
#include <vector>

namespace tidepool::nn {

// What becomes of the activations of some layers until the backward pass.
enum class Retention : uint8_t {
  kKeep,  // what gradients read stays
  kSpill,  // it is written to the file and comes back ahead of use; what operators do not tell of stays
  kRecompute,  // the segment's inputs stay, and its layers are called once more in the backward pass
  kRecomputeSpilled,  // its inputs wait in the file
  kRemake,  // what a layer's gradient can make again from the rest that it keeps (gates of an LSTM or GRU) goes, and is made again there
};
const char* RetentionName(
    Retention retention);  // "keep", "spill", "recompute", "recompute from file", "remake"

// Layers one behind the other, in the order in which they are called.
struct ActivationSegment {
  int layers = 1;                          // at least 1
  Retention retention = Retention::kKeep;  // of all of them
  // Of one that computes again: so many examples at a time, forwards and again, and nothing of its inside is there as a whole. 0: all of
  // them. What can be sliced, and of what this is a multiple, Network::SliceOf() tells.
  int64_t slice = 0;

  // Whether the retention writes to the file.
  bool spills() const {
    return retention == Retention::kSpill || retention == Retention::kRecomputeSpilled;
  }
  // Whether it computes again.
  bool recomputes() const {
    return retention == Retention::kRecompute || retention == Retention::kRecomputeSpilled;
  }
  bool operator==(const ActivationSegment&) const = default;
};

struct ActivationPlan {
  std::vector<ActivationSegment> segments;  // of all layers; empty: everything is kept
  // In segments: how long a write may take, and how early a read begins. What is under way is in memory.
  int spill_behind = 1, spill_ahead = 1;

  // Whether some segment does.
  bool spills() const;
  bool recomputes() const;
  bool remakes() const;
  // "keep 3 layers, recompute 4, spill 1"
  std::string ToString() const;
  bool operator==(const ActivationPlan&) const = default;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_ACTIVATION_PLAN_H_
