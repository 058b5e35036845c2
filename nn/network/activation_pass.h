// A training pass by an activation plan: what the network, its layers and the tape tell one another.
#ifndef TIDEPOOL_NN_NETWORK_ACTIVATION_PASS_H_
#define TIDEPOOL_NN_NETWORK_ACTIVATION_PASS_H_

#include <cstdint>
#include <memory>

#include "absl/types/span.h"
#include "tidepool/memory/spill/host_blocks.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/spill/spilled_tape.h"
#include "tidepool/nn/network/activation_plan.h"

namespace tidepool::nn {

// Told of a pass by who measures it.
class SegmentObserver {
 public:
  // By number in the plan. `inputs`: of all its layers, from outside of it.
  virtual void BeginSegment(int segment, absl::Span<const NDArray> inputs) = 0;
  // `outputs`: what layers behind it, or the loss, take. Of a plan that spills nothing it may visit what the tape keeps.
  virtual void EndSegment(int segment, absl::Span<const NDArray> outputs, GradientTape& tape) = 0;
  // With the loss.
  virtual void EndForward(GradientTape& tape) = 0;
  // As many as there are segments: of the loss.
  virtual void BackwardIsAt(int segment) = 0;

 protected:
  ~SegmentObserver() = default;
};

// Of a network, from pass to pass.
struct Activations {
  ActivationPlan plan;
  std::shared_ptr<SpillFile> file;  // of a plan that spills
  SegmentObserver* observer = nullptr;
  SpilledTapeStats last;   // of the last pass
  HostBlocks host_blocks;  // in which what is spilled of a device waits
};

class ActivationPass final : public GradientListener {
 public:
  ActivationPass(Activations& activations, GradientTape& tape, GradientListener* listener);
  ~ActivationPass();
  ActivationPass(const ActivationPass&) = delete;
  ActivationPass& operator=(const ActivationPass&) = delete;

  const ActivationPlan& plan() const { return activations_.plan; }
  // The caller has it beyond the forward pass.
  void Stays(const NDArray& array) { spilled_.Stays(array); }
  void BeginSegment(int segment, absl::Span<const NDArray> inputs);
  void EndSegment(int segment, absl::Span<const NDArray> outputs);
  void EndForward();

  void GradientIsFinal(int watched) override {
    if (listener_ != nullptr) listener_->GradientIsFinal(watched);
  }
  void PartIsNext(int part) override;

 private:
  Activations& activations_;
  GradientTape& tape_;
  GradientListener* const listener_;
  const bool spills_;
  SpilledTape spilled_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_ACTIVATION_PASS_H_
