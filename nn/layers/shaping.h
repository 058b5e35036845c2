// Layers without parameters that move elements: shapes, order, padding, cropping, resizing.
//
// Masks of sequences stay where the steps of the output are those of the input; padding and
// cropping of sequences pad (with no step) and crop the mask; all others clear it where the length
// changes or steps are others.
#ifndef TIDEPOOL_NN_LAYERS_SHAPING_H_
#define TIDEPOOL_NN_LAYERS_SHAPING_H_

#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes_images.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// To `shape` of an example; one of its sizes may be -1: what is left.
class ReshapeLayer final : public Layer {
 public:
  explicit ReshapeLayer(std::vector<int64_t> shape) : shape_(std::move(shape)) {}
  std::string Kind() const override { return "reshape"; }
  InputTypes TakenTypes() const override { return InputTypes::kAlike; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  std::vector<int64_t> shape_;
};

// [...] becomes [elements], in their order.
class Flatten final : public Layer {
 public:
  std::string Kind() const override { return "flatten"; }
  InputTypes TakenTypes() const override { return InputTypes::kAlike; }
  std::string Describe() const override { return "flatten"; }
  Shape OutputShape(const Shape& input) const override { return {input.NumElements()}; }
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  bool ToFrozen(FrozenOp& op) const override;
};

// Axis i of an example is its axis axes[i] before, from 0. The result is dense.
class Permute final : public Layer {
 public:
  explicit Permute(std::vector<int64_t> axes) : axes_(std::move(axes)) {}
  std::string Kind() const override { return "permute"; }
  InputTypes TakenTypes() const override { return InputTypes::kAlike; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  std::vector<int64_t> axes_;
};

// [width] becomes [count, width], the same at each step.
class RepeatVector final : public Layer {
 public:
  explicit RepeatVector(int64_t count) : count_(count) {}
  std::string Kind() const override { return "repeat_vector"; }
  InputTypes TakenTypes() const override { return InputTypes::kAlike; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  int64_t count_;
};

// `padding`: [before, behind] of each axis but the last, one axis behind the other: [1, 1] of
// sequences, [top, bottom, left, right] of images, six numbers of volumes; one number stands for all.
class ZeroPadding final : public Layer {
 public:
  explicit ZeroPadding(std::vector<int64_t> padding) : padding_(std::move(padding)) {}
  std::string Kind() const override { return "zero_padding"; }
  InputTypes TakenTypes() const override { return InputTypes::kAlike; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  std::vector<int64_t> padding_;
};

// Takes as much away; one number likewise.
class Cropping final : public Layer {
 public:
  explicit Cropping(std::vector<int64_t> cropping) : cropping_(std::move(cropping)) {}
  std::string Kind() const override { return "cropping"; }
  InputTypes TakenTypes() const override { return InputTypes::kAlike; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;

 private:
  std::vector<int64_t> cropping_;
};

// Each element `factors` times in a row along each axis but the last: of one to three axes. One factor stands for all.
class Upsampling final : public Layer {
 public:
  explicit Upsampling(std::vector<int64_t> factors) : factors_(std::move(factors)) {}
  std::string Kind() const override { return "upsampling"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  std::vector<int64_t> factors_;
};

// To `sizes`: [length] of sequences, [height, width] of images, [depth, height, width] of volumes, or one for all axes;
// ndarray/ops/resize.h says how.
class Resize final : public Layer {
 public:
  explicit Resize(std::vector<int64_t> sizes, ResizeMode mode = ResizeMode::kLinear,
                  bool align_corners = false)
      : sizes_(std::move(sizes)), mode_(mode), align_corners_(align_corners) {}
  std::string Kind() const override { return "resize"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  std::vector<int64_t> sizes_;
  ResizeMode mode_;
  bool align_corners_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_SHAPING_H_
