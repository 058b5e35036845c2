#include "tidepool/nn/layers/pooling.h"

#include <algorithm>
#include <limits>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/joining.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/sequence_mask.h"
#include "tidepool/nn/layers/sizes_by_axis.h"

namespace tidepool::nn {
namespace {

constexpr const char* kKinds[] = {"max", "average", "sum"};
constexpr double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

template <int kAxes, PoolingKind kKind>
std::string Pooling<kAxes, kKind>::Kind() const {
  return absl::StrCat(kKinds[static_cast<int>(kKind)], "_pool", kAxes, "d");
}

template <int kAxes, PoolingKind kKind>
void Pooling<kAxes, kKind>::VisitFields(FieldVisitor& visitor) {
  VisitSizes(visitor, "kernel", kernel_);
  VisitSizes(visitor, "stride", options_.stride);
  VisitPadding(visitor, "padding", options_.before, options_.behind);
  if (kKind == PoolingKind::kAverage) visitor.Field("count_padding", options_.count_padding);
}

template <int kAxes, PoolingKind kKind>
std::string Pooling<kAxes, kKind>::Describe() const {
  Sizes stride;
  for (int i = 0; i < kAxes; ++i) stride[i] = Stride(i);
  std::string text = absl::StrCat(Kind(), " ", absl::StrJoin(kernel_, "x"), " stride ",
                                  absl::StrJoin(stride, "x"));
  if (options_.before != Sizes{} || options_.behind != Sizes{}) {
    absl::StrAppend(&text, " pad ", absl::StrJoin(options_.before, ","), " and ",
                    absl::StrJoin(options_.behind, ","));
  }
  return text;
}

template <int kAxes, PoolingKind kKind>
Shape Pooling<kAxes, kKind>::OutputShape(const Shape& input) const {
  if (input.rank() != kAxes + 1 || input[kAxes] < 1) {
    RefuseInput(input, kAxes == 1   ? "[length, channels]"
                       : kAxes == 2 ? "[height, width, channels]"
                                    : "[depth, height, width, channels]");
  }
  std::vector<int64_t> dims;
  for (int i = 0; i < kAxes; ++i) {
    const int64_t before = options_.before[i], behind = options_.behind[i], kernel = kernel_[i];
    // Of a file too: what operators refuse is refused when the network is made.
    constexpr int64_t kMost = int64_t{1} << 30;
    if (kernel < 1 || kernel > kMost || options_.stride[i] < 0 || options_.stride[i] > kMost ||
        before < 0 || behind < 0 || before >= kernel || behind >= kernel) {
      RefuseInput(
          input, absl::StrCat("a kernel of at least 1 and paddings smaller than it, found kernel ",
                              kernel, ", stride ", Stride(i), ", padding ", before, " and ", behind,
                              ", of which none is above ", kMost));
    }
    if (input[i] + before + behind < kernel) RefuseInput(input, "axes that hold the kernel");
    dims.push_back((input[i] + before + behind - kernel) / Stride(i) + 1);
  }
  dims.push_back(input[kAxes]);
  return Shape(absl::MakeConstSpan(dims));
}

template <int kAxes, PoolingKind kKind>
Pool2dAttributes Pooling<kAxes, kKind>::AttributesOf(int of_height, int of_width) const {
  Pool2dAttributes a;
  a.kernel_height = kernel_[of_height];
  a.stride_height = Stride(of_height);
  a.pad_top = options_.before[of_height];
  a.pad_bottom = options_.behind[of_height];
  a.kernel_width = of_width < 0 ? 1 : kernel_[of_width];
  a.stride_width = of_width < 0 ? 1 : Stride(of_width);
  a.pad_left = of_width < 0 ? 0 : options_.before[of_width];
  a.pad_right = of_width < 0 ? 0 : options_.behind[of_width];
  a.count_include_pad = options_.count_padding;
  return a;
}

template <int kAxes, PoolingKind kKind>
NDArray Pooling<kAxes, kKind>::PoolImages(const NDArray& x, int of_height, int of_width) const {
  const Pool2dAttributes a = AttributesOf(of_height, of_width);
  return kKind == PoolingKind::kMax ? MaxPool2d(x, a) : AveragePool2d(x, a);
}

template <int kAxes, PoolingKind kKind>
NDArray Pooling<kAxes, kKind>::PoolMasked(LayerContext& context, const NDArray& input) const {
  const bool is_max = kKind == PoolingKind::kMax;
  const NDArray filled =
      Where(MaskOfRank(context.mask, input.rank()), input, is_max ? -kInfinity : 0.0);
  // The share of what counts in each window.
  NDArray share;
  {
    const NoGradientScope constants;
    const NDArray steps =
        Cast(Cast(context.mask, DType::kBool), input.dtype()).ExpandDims(-1).ExpandDims(-1);
    Pool2dAttributes a;
    a.kernel_height = kernel_[0];
    a.stride_height = Stride(0);
    a.pad_top = options_.before[0];
    a.pad_bottom = options_.behind[0];
    a.kernel_width = a.stride_width = 1;
    a.count_include_pad = options_.count_padding;
    share = AveragePool2d(steps, a).Squeeze(3);
    context.mask = NotEqual(share, 0).Squeeze(2);
    if (options_.count_padding && (a.pad_top > 0 || a.pad_bottom > 0)) {
      // Padding counts as it does without a mask: as steps that are there, of zeros.
      a.pad_top = a.pad_bottom = 0;
      share = AveragePool2d(Pad(steps, {0, options_.before[0], 0, 0}, {0, options_.behind[0], 0, 0},
                                /*value=*/1),
                            a)
                  .Squeeze(3);
    }
  }
  const NDArray pooled = PoolImages(filled.ExpandDims(2), 0, -1).Squeeze(2);
  const NDArray has_any = context.mask.ExpandDims(-1);
  return is_max ? Where(has_any, pooled, 0) : pooled / Where(has_any, share, 1);
}

template <int kAxes, PoolingKind kKind>
LayerCost Pooling<kAxes, kKind>::CostOf(absl::Span<const Shape> inputs) const {
  LayerCost cost = CostWith(inputs, 0);
  double window = 1;
  for (int axis = kAxes == 3 ? 1 : 0; axis < kAxes; ++axis) {
    window *= static_cast<double>(kernel_[axis]);
  }
  if constexpr (kAxes == 3) {
    // Height and width at each depth, then depth.
    const Shape output = OutputShape(inputs[0]);
    const double between =
        cost.elements / static_cast<double>(output[0]) * static_cast<double>(inputs[0][0]);
    cost.operations += between * window + cost.elements * static_cast<double>(kernel_[0]);
    cost.elements += between;
  } else {
    cost.operations += cost.elements * window;
  }
  return cost;
}

template <int kAxes, PoolingKind kKind>
NDArray Pooling<kAxes, kKind>::Forward(LayerContext& context, const NDArray& features) const {
  if constexpr (kAxes == 1) {
    if (IsMaskOf(context.mask, features)) return PoolMasked(context, features);
    context.mask = NDArray();
    return PoolImages(features.ExpandDims(2), 0, -1).Squeeze(2);
  } else {
    const NDArray input = WithoutMasked(context.mask, features);
    context.mask = NDArray();
    if constexpr (kAxes == 2) {
      return PoolImages(input, 0, 1);
    } else {
      // Height and width first, then depth.
      const int64_t batch = input.dim(0), depth = input.dim(1), channels = input.dim(4);
      const NDArray flat = PoolImages(
          input.ReshapeOrCopy({batch * depth, input.dim(2), input.dim(3), channels}), 1, 2);
      const int64_t height = flat.dim(1), width = flat.dim(2);
      const NDArray deep =
          PoolImages(flat.Reshape({batch, depth, height * width, channels}), 0, -1);
      return deep.Reshape({batch, deep.dim(1), height, width, channels});
    }
  }
}

template <int kAxes, PoolingKind kKind>
bool Pooling<kAxes, kKind>::ToFrozen(FrozenOp& op) const {
  if constexpr (kAxes != 2) {
    op.why_not = "pooling of other axes than two";
    return false;
  } else {
    op.kind = FrozenOp::Kind::kAveragePool2d;
    op.pooling = AttributesOf(0, 1);
    return true;
  }
}

template class Pooling<1, PoolingKind::kMax>;
template class Pooling<3, PoolingKind::kMax>;
template class Pooling<1, PoolingKind::kAverage>;
template class Pooling<2, PoolingKind::kAverage>;
template class Pooling<3, PoolingKind::kAverage>;

void GlobalPooling::VisitFields(FieldVisitor& visitor) {
  visitor.Choice("pooling", pooling_, kKinds);
}
std::string GlobalPooling::Describe() const {
  return absl::StrCat("global_pool ", kKinds[static_cast<int>(pooling_)]);
}

Shape GlobalPooling::OutputShape(const Shape& input) const {
  if (input.rank() < 2 || input.NumElements() < 1)
    RefuseInput(input, "at least one axis before the channels, and an element");
  return {input[input.rank() - 1]};
}

NDArray GlobalPooling::Forward(LayerContext& context, const NDArray& input) const {
  const NDArray mask =
      IsMaskOf(context.mask, input) ? MaskOfRank(context.mask, input.rank()) : NDArray();
  context.mask = NDArray();
  absl::InlinedVector<int, kMaxRank> reduced;  // a steady step calls no malloc
  int64_t count = 1;                           // of elements that one step has
  for (int axis = 1; axis < input.rank() - 1; ++axis) {
    reduced.push_back(axis);
    if (axis > 1) count *= input.dim(axis);
  }
  const Axes axes{absl::Span<const int>(reduced)};
  if (!mask.is_defined()) {
    return pooling_ == PoolingKind::kMax   ? Max(input, axes)
           : pooling_ == PoolingKind::kSum ? Sum(input, axes)
                                           : Mean(input, axes);
  }
  // Averages of 16-bit floats are made in f32: of a thousand steps neither the sum nor their number may be one of f16.
  const DType wide = pooling_ == PoolingKind::kAverage && DTypeBytes(input.dtype()) == 2
                         ? DType::kFloat32
                         : input.dtype();
  NDArray steps;  // [batch, 1]
  {
    const NoGradientScope constants;
    steps = Sum(Cast(mask, wide).Reshape({input.dim(0), input.dim(1)}), 1, /*keep_dims=*/true);
  }
  if (pooling_ == PoolingKind::kMax) {
    return Where(NotEqual(steps, 0), Max(Where(mask, input, -kInfinity), axes), 0);
  }
  const NDArray sum = Sum(Cast(Where(mask, input, 0), wide), axes);
  if (pooling_ == PoolingKind::kSum) return sum;
  return Cast(sum / Maximum(steps * static_cast<double>(count), 1.0), input.dtype());
}

bool GlobalPooling::ToFrozen(FrozenOp& op) const {
  if (pooling_ != PoolingKind::kAverage || op.input_shape.rank() != 3) {
    op.why_not = "pooling over all axes but the average of images";
    return false;
  }
  op.kind = FrozenOp::Kind::kGlobalAverage;
  return true;
}

}  // namespace tidepool::nn
