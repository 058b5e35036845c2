// Layers that put values together, and those that scale them.
#ifndef TIDEPOOL_NN_LAYERS_MERGE_H_
#define TIDEPOOL_NN_LAYERS_MERGE_H_

#include <string>
#include <vector>

#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

enum class MergeKind : uint8_t { kAdd, kSubtract, kMultiply, kAverage, kMax, kConcat };

// Of one input or more, of one shape: element by element; the first less the others (two or more of
// kSubtract). kConcat: side by side along `axis` of an example, -1 the last, the other axes being
// the same. Each input has zeros behind its own end, and one without a mask behind that of the
// output, which is the mask of the first input that has one; where sequences go one behind the
// other (axis 0) there is none.
class Merge final : public Layer {
 public:
  explicit Merge(MergeKind merge = MergeKind::kAdd, int64_t axis = -1)
      : merge_(merge), axis_(axis) {}

  std::string Kind() const override { return "merge"; }
  InputTypes TakenTypes() const override {
    return merge_ == MergeKind::kAverage ? InputTypes::kFloats : InputTypes::kAlike;
  }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShapeOf(absl::Span<const Shape> inputs) const override;
  NDArray ForwardOf(LayerContext& context, absl::Span<const NDArray> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  int64_t AxisOf(int rank) const { return axis_ < 0 ? axis_ + rank : axis_; }

  MergeKind merge_;
  int64_t axis_;
};

// x * scale + shift with numbers for each element of the last axis, learned: "scale", "shift".
class Scaling final : public Layer {
 public:
  explicit Scaling(bool shift = true) : shift_(shift) {}

  std::string Kind() const override { return "scaling"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  bool shift_;
};

// x / sqrt(sum of x^2 over the last axis + epsilon): of length 1.
class L2Normalization final : public Layer {
 public:
  explicit L2Normalization(double epsilon = 1e-12) : epsilon_(epsilon) {}

  std::string Kind() const override { return "l2_norm"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  double epsilon_;
};

// x > 0 ? x : alpha * x with a learned "alpha" for each element of the last axis, or one for all
// (He et al. 2015).
class PRelu final : public Layer {
 public:
  explicit PRelu(double initial = 0.25, bool shared = false) : initial_(initial), shared_(shared) {}

  std::string Kind() const override { return "prelu"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  std::vector<ParameterSpec> Parameters(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  double initial_;
  bool shared_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_MERGE_H_
