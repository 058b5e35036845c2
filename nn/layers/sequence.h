// Layers around sequences [length, ...].
#ifndef TIDEPOOL_NN_LAYERS_SEQUENCE_H_
#define TIDEPOOL_NN_LAYERS_SEQUENCE_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/layers/recurrent.h"

namespace tidepool::nn {

// What becomes of the outputs of both directions: side by side in the last axis, their sum, their mean.
enum class BidirectionalMerge : uint8_t { kConcat, kAdd, kAverage };

// A recurrent layer twice, with parameters of its own each: as it is ("forward.input_weight", ...)
// and in the other direction
// ("backward.input_weight", ...). Of layers that give the last state alone the other direction's is
// that at the first step. Carries nothing: the other direction needs the end of a sequence first.
class Bidirectional final : public Layer {
 public:
  explicit Bidirectional(AnyLayer layer, BidirectionalMerge merge = BidirectionalMerge::kConcat)
      : layer_(std::move(layer)), merge_(merge) {}
  Bidirectional() = default;

  std::string Kind() const override { return "bidirectional"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;

 private:
  AnyLayer layer_;
  BidirectionalMerge merge_ = BidirectionalMerge::kConcat;
};

// A sequence's own last step: [length, ...] becomes [...]. Of a sequence without any step zeros.
class LastTimeStep final : public Layer {
 public:
  std::string Kind() const override { return "last_time_step"; }
  InputTypes TakenTypes() const override { return InputTypes::kAlike; }
  std::string Describe() const override { return "last_time_step"; }
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
};

// A layer of each step by itself, with the same parameters. Steps are examples of a larger batch to
// it, of which those that are none are zeros: layers of batches (batch_norm) count them.
class TimeDistributed final : public Layer {
 public:
  explicit TimeDistributed(AnyLayer layer) : layer_(std::move(layer)) {}
  TimeDistributed() = default;

  std::string Kind() const override { return "time_distributed"; }
  InputTypes TakenTypes() const override {
    return layer_ ? layer_->TakenTypes() : InputTypes::kAny;
  }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool IsRandom() const override { return layer_ && layer_->IsRandom(); }

 private:
  AnyLayer layer_;
};

// From the last step to the first, and the mask with them.
class Reverse final : public Layer {
 public:
  std::string Kind() const override { return "reverse"; }
  InputTypes TakenTypes() const override { return InputTypes::kAlike; }
  std::string Describe() const override { return "reverse"; }
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_SEQUENCE_H_
