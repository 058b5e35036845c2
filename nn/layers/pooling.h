// Pooling by windows of one to three axes, and over all of them. See max_pool2d.h for the maximum
// of two.
//
//   MaxPool1D({2})   AveragePool2D({2, 2})   MaxPool3D({2, 2, 2})
//   GlobalPooling(PoolingKind::kAverage)
//
// Windows side by side unless a stride is given; windows that do not fit the padded input are left
// out.
//
// Masks of sequences (one axis, and GlobalPooling): steps that are none do not count: neither as
// the largest nor in the number that sums are divided by, in which padding counts as it does without
// a mask (count_padding). Without any step in a window the output is 0, and is no step of the output.
#ifndef TIDEPOOL_NN_LAYERS_POOLING_H_
#define TIDEPOOL_NN_LAYERS_POOLING_H_

#include <array>
#include <string>
#include <vector>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

// What becomes of the elements of a window.
enum class PoolingKind : uint8_t { kMax, kAverage, kSum };

// What a pooling layer may be given beside its window.
template <int kAxes>
struct PoolingOptions {
  std::array<int64_t, kAxes> stride = {};  // 0: the kernel's size
  // Padding, each smaller than the kernel; never the largest.
  std::array<int64_t, kAxes> before = {}, behind = {};
  bool count_padding = false;  // of averages: as zeros
};

template <int kAxes, PoolingKind kKind>
class Pooling final : public Layer {
 public:
  using Sizes = std::array<int64_t, kAxes>;  // elements, by axis
  explicit Pooling(Sizes kernel = Twos(), PoolingOptions<kAxes> options = {})
      : kernel_(kernel), options_(options) {}

  std::string Kind() const override;
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  LayerCost CostOf(absl::Span<const Shape> inputs) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  static constexpr Sizes Twos() {
    Sizes sizes;
    sizes.fill(2);
    return sizes;
  }
  int64_t Stride(int axis) const {
    return options_.stride[axis] == 0 ? kernel_[axis] : options_.stride[axis];
  }
  // Of images [batch, height, width, channels]: the layer's axis `of_height`, and `of_width`, which
  // is left as it is for -1.
  Pool2dAttributes AttributesOf(int of_height, int of_width) const;
  NDArray PoolImages(const NDArray& x, int of_height, int of_width) const;
  NDArray PoolMasked(LayerContext& context, const NDArray& input) const;

  Sizes kernel_;
  PoolingOptions<kAxes> options_;
};

// By axes and kind.
using MaxPool1D = Pooling<1, PoolingKind::kMax>;
using MaxPool3D = Pooling<3, PoolingKind::kMax>;
using AveragePool1D = Pooling<1, PoolingKind::kAverage>;
using AveragePool2D = Pooling<2, PoolingKind::kAverage>;
using AveragePool3D = Pooling<3, PoolingKind::kAverage>;

// Over all axes but the last: [..., channels] becomes [channels].
class GlobalPooling final : public Layer {
 public:
  explicit GlobalPooling(PoolingKind pooling = PoolingKind::kAverage) : pooling_(pooling) {}

  std::string Kind() const override { return "global_pool"; }
  InputTypes TakenTypes() const override { return InputTypes::kFloats; }
  void VisitFields(FieldVisitor& visitor) override;
  std::string Describe() const override;
  Shape OutputShape(const Shape& input) const override;
  NDArray Forward(LayerContext& context, const NDArray& input) const override;
  bool ToFrozen(FrozenOp& op) const override;

 private:
  PoolingKind pooling_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LAYERS_POOLING_H_
