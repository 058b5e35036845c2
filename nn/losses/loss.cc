#include "tidepool/nn/losses/loss.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <mutex>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/ctc.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool::nn {
namespace {

using tidepool::Mean;

// The first `count` sizes of a shape.
Shape Leading(const Shape& shape, int count) {
  return Shape(shape.span().subspan(0, static_cast<size_t>(count)));
}

// x with the axes before `first_kept` as one.
NDArray Rows(const NDArray& x, int first_kept) {
  int64_t dims[kMaxRank + 1] = {Leading(x.shape(), first_kept).NumElements()};
  size_t rank = 1;
  for (int i = first_kept; i < x.rank(); ++i) dims[rank++] = x.dim(i);
  return x.ReshapeOrCopy(Shape(absl::MakeConstSpan(dims, rank)));
}

// Not of none, which would be all.
Axes AxesFrom(int first, int rank) {
  int axes[kMaxRank];
  size_t count = 0;
  for (int i = first; i < rank; ++i) axes[count++] = i;
  return absl::MakeConstSpan(axes, count);
}

// All axes but the first.
NDArray RowMean(const NDArray& x) { return x.rank() == 1 ? x : Mean(x, AxesFrom(1, x.rank())); }

// x where the mask is not 0, 0 elsewhere.
NDArray Masked(const NDArray& x, const NDArray& used) {
  int64_t dims[kMaxRank];
  for (int i = 0; i < x.rank(); ++i) dims[i] = i < used.rank() ? used.dim(i) : 1;
  const Shape shape(absl::MakeConstSpan(dims, static_cast<size_t>(x.rank())));
  return Where(used.ReshapeOrCopy(shape), x, 0);
}

void ZeroOut(NDArray& array) {
  if (array.NumElements() == 0) return;
  std::memset(array.raw_data(), 0,
              static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype()));
}

NDArray IsUsed(const NDArray& mask) { return mask.dtype() == DType::kBool ? mask : mask != 0; }

NDArray WithoutZeros(const NDArray& x) { return Where(x == 0, 1, x); }

// The type that sums are made in: a few thousand losses, or as many weights, are more than f16 has.
DType WideType(DType dtype) { return DTypeBytes(dtype) == 2 ? DType::kFloat32 : dtype; }
NDArray Wide(const NDArray& x) { return Cast(x, WideType(x.dtype())); }

// Of wide ones.
NDArray MeanOver(const NDArray& values, const NDArray& weights, const Axes& axes) {
  return Sum(values * weights, axes) / WithoutZeros(Sum(weights, axes));
}

}  // namespace

NDArray WeightedMean(const NDArray& values, const NDArray& weights, const std::vector<int>& axes) {
  return Cast(MeanOver(Wide(values), Wide(weights), axes), values.dtype());
}

NDArray WithoutMaskedLabels(const NDArray& labels, const NDArray* mask) {
  if (mask == nullptr || mask->rank() > labels.rank()) return labels;
  return Masked(labels, IsUsed(mask->To(labels.device())));
}

struct Loss::Weights {
  std::mutex mutex;
  NDArray array;
};

// Losses of positions, of the output's leading axes, and what the mask and classes weigh them with. Wide where there is such.
struct Loss::Parts {
  NDArray losses;
  NDArray mask;           // of the losses' type; undefined: 1
  NDArray class_weights;  // of the positions' labels; undefined: 1
};

Loss::Loss(LossConfig config) : config_(std::move(config)), weights_(std::make_shared<Weights>()) {
  config_.Check();
}

LabelForm Loss::labels() const {
  if (config_.kind == LossKind::kSoftmaxCrossEntropy) return LabelForm::kClasses;
  return config_.kind == LossKind::kCtc ? LabelForm::kSequences : LabelForm::kLikeOutput;
}

// Made once for a type and device, on the heap: steps that are captured find it there.
NDArray Loss::ClassWeights(DType dtype, Device device, int64_t classes) const {
  const auto count = static_cast<int64_t>(config_.class_weights.size());
  if (count != classes) {
    ThrowInvalidArgument(absl::StrCat("loss ", LossName(kind()), ": ", count,
                                      " class weights, expected one for each of ", classes,
                                      " classes"));
  }
  const std::lock_guard<std::mutex> lock(weights_->mutex);
  NDArray& array = weights_->array;
  if (!array.is_defined() || array.dtype() != dtype || array.device() != device) {
    const HandlesOwnScope handles;
    const NDArray exact =
        FromValues(absl::MakeConstSpan(config_.class_weights), {count}, Place::Heap());
    NDArray made({count}, dtype, Place::Heap());
    CopyInto(exact, made);
    array = device == Host() ? made : made.CopyTo(Place::On(device));
  }
  return array;
}

// Of rows [positions, classes].
NDArray Loss::Classified(const NDArray& output, const NDArray& labels, Labels known,
                         NDArray* weights) const {
  const int64_t classes = output.dim(1);
  const double smoothing = config_.label_smoothing;
  const NDArray of_class = config_.class_weights.empty()
                               ? NDArray()
                               : ClassWeights(output.dtype(), output.device(), classes);
  if (labels.rank() == 2) {
    NDArray targets = smoothing == 0 ? labels
                                     : ScaleShift(labels, 1 - smoothing,
                                                  smoothing / static_cast<double>(classes));
    if (of_class.is_defined()) targets = targets * of_class;
    return DenseCrossEntropy(output, targets).loss;
  }
  if (of_class.is_defined()) *weights = Gather(of_class, labels);
  if (smoothing == 0) {
    NDArray losses = SoftmaxCrossEntropy(output, labels, known).loss;
    return weights->is_defined() ? losses * *weights : losses;
  }
  if (known != Labels::kChecked) CheckSoftmaxLabels(labels, classes);
  const double off = smoothing / static_cast<double>(classes);
  NDArray targets = OneHot(labels, classes, output.dtype(), 1 - smoothing + off, off);
  if (of_class.is_defined()) targets = targets * of_class;
  return DenseCrossEntropy(output, targets).loss;
}

// Of rows [positions, ...].
NDArray Loss::Compared(const NDArray& x, const NDArray& t) const {
  switch (config_.kind) {
    case LossKind::kBinaryCrossEntropy: {
      const double smoothing = config_.label_smoothing;
      return BinaryCrossEntropy(x,
                                smoothing == 0 ? t : ScaleShift(t, 1 - smoothing, smoothing / 2));
    }
    case LossKind::kSquaredError:
      return MeanSquaredError(x, t);
    case LossKind::kAbsoluteError:
      return MeanAbsoluteError(x, t);
    case LossKind::kHuber:
      return HuberError(x, t, config_.delta);
    case LossKind::kHinge:
      return RowMean(Relu(1 - x * t));
    case LossKind::kPoisson:
      return RowMean(Exp(x) - x * t);
    case LossKind::kKullbackLeibler: {
      const NDArray entropy = Sum(t * Log(WithoutZeros(t)), 1);
      return DenseCrossEntropy(x, t).loss + entropy;
    }
    case LossKind::kCosineProximity: {
      // Each by its own length first: products of short ones would be 0.
      const NDArray x_length = Norm2(x, 1, true), t_length = Norm2(t, 1, true);
      const NDArray none = LogicalOr(x_length == 0, t_length == 0);
      const NDArray unit_x = x / WithoutZeros(x_length), unit_t = t / WithoutZeros(t_length);
      return 1 - Where(none.Squeeze(1), 0, Sum(unit_x * unit_t, 1));
    }
    case LossKind::kSoftmaxCrossEntropy:
    case LossKind::kCtc:
      break;
  }
  ThrowInternal("loss: a kind without a formula");
}

Loss::Parts Loss::PartsOf(const NDArray& output, const NDArray& labels, const NDArray* mask,
                          Labels known) const {
  const bool along_last = kind() == LossKind::kSoftmaxCrossEntropy ||
                          kind() == LossKind::kKullbackLeibler ||
                          kind() == LossKind::kCosineProximity;
  const auto refuse = [&](const char* operand, const NDArray& array, const std::string& expected) {
    ThrowInvalidArgument(absl::StrCat("loss ", LossName(kind()), ": ", operand, " has shape ",
                                      array.shape().ToString(), " of ", DTypeName(array.dtype()),
                                      ", expected ", expected));
  };
  for (const auto& [name, array] : {std::pair{"output", &output}, {"labels", &labels}})
    array->CheckAlive("loss", name);
  if (!IsFloating(output.dtype()) || output.rank() < (along_last ? 2 : 1)) {
    refuse("output", output, along_last ? "floats [batch, ..., classes]" : "floats [batch, ...]");
  }
  const int most = along_last ? output.rank() - 1 : output.rank();  // axes that a mask may have
  if (mask != nullptr) {
    mask->CheckAlive("loss", "mask");
    if (mask->rank() < 1 || mask->rank() > most ||
        mask->shape() != Leading(output.shape(), mask->rank())) {
      refuse("mask", *mask,
             absl::StrCat("what ", Leading(output.shape(), most).ToString(),
                          " begins with, at least its batch"));
    }
  }
  const bool are_classes = kind() == LossKind::kSoftmaxCrossEntropy && !IsFloating(labels.dtype());
  const int positions = along_last ? most : mask != nullptr ? mask->rank() : 1;
  if (are_classes &&
      (labels.dtype() != DType::kInt64 || labels.shape() != Leading(output.shape(), positions))) {
    refuse(
        "labels", labels,
        absl::StrCat("i64 ", Leading(output.shape(), positions).ToString(), " or like the output"));
  }
  if (!are_classes && labels.shape() != output.shape())
    refuse("labels", labels, output.shape().ToString());
  NDArray x = output, t = are_classes ? labels : Cast(labels, output.dtype());
  if (mask != nullptr) {
    const NDArray used = IsUsed(*mask);
    x = Masked(x, used);
    t = Masked(t, used);
  }
  const Shape leading = Leading(output.shape(), positions);
  x = Rows(x, positions);
  Parts parts;
  if (kind() == LossKind::kSoftmaxCrossEntropy) {
    t = are_classes ? t.ReshapeOrCopy({leading.NumElements()}) : Rows(t, positions);
    parts.losses = Classified(x, t, known, &parts.class_weights);
  } else {
    parts.losses = Compared(x, Rows(t, positions));
  }
  parts.losses = parts.losses.Reshape(leading);
  if (mask != nullptr || parts.class_weights.is_defined()) parts.losses = Wide(parts.losses);
  if (parts.class_weights.is_defined())
    parts.class_weights = Wide(parts.class_weights).Reshape(leading);
  if (mask != nullptr) {
    parts.mask = Cast(*mask, parts.losses.dtype());
    // Positions behind the mask's axes.
    if (mask->rank() < positions) {
      const Axes axes = AxesFrom(mask->rank(), positions);
      parts.losses = tidepool::Mean(parts.losses, axes);
      if (parts.class_weights.is_defined())
        parts.class_weights = tidepool::Mean(parts.class_weights, axes);
    }
  }
  return parts;
}

NDArray Loss::Of(const NDArray& output, const NDArray& labels, const NDArray* mask,
                 Labels known) const {
  if (kind() == LossKind::kCtc) {
    NDArray losses = Ctc(output, labels, mask, known);
    if (mask == nullptr || mask->rank() != 1) return losses;
    return losses * Cast(*mask, losses.dtype());
  }
  const Parts parts = PartsOf(output, labels, mask, known);
  if (!parts.mask.is_defined()) return Cast(RowMean(parts.losses), output.dtype());
  return Cast(parts.mask.rank() == 1
                  ? parts.losses * parts.mask
                  : MeanOver(parts.losses, parts.mask, AxesFrom(1, parts.mask.rank())),
              output.dtype());
}

NDArray Loss::Mean(const NDArray& output, const NDArray& labels, const NDArray* mask,
                   Labels known) const {
  const bool is_ctc = kind() == LossKind::kCtc;
  Parts parts;
  if (is_ctc) {
    parts.losses = Ctc(output, labels, mask, known);
    if (mask != nullptr && mask->rank() == 1) parts.mask = Cast(*mask, parts.losses.dtype());
  } else {
    parts = PartsOf(output, labels, mask, known);
  }
  NDArray& losses = parts.losses;
  if (losses.NumElements() == 0) return Cast(Sum(losses), is_ctc ? losses.dtype() : output.dtype());
  if (!parts.mask.is_defined() && !parts.class_weights.is_defined()) return tidepool::Mean(losses);
  // The losses have the weights of their classes already.
  const NDArray total = Sum(parts.mask.is_defined() ? losses * parts.mask : losses);
  NDArray weights = parts.class_weights;
  if (parts.mask.is_defined()) weights = weights.is_defined() ? weights * parts.mask : parts.mask;
  const NDArray sum = Sum(weights);
  NDArray mean = total / WithoutZeros(sum);
  // Smoothed labels are partly of other classes, which have weights where a label's own has none.
  if (parts.class_weights.is_defined() && config_.label_smoothing > 0)
    mean = Where(sum == 0, 0, mean);
  return Cast(mean, is_ctc ? losses.dtype() : output.dtype());
}

namespace {

struct Alignment {
  NDArray input_lengths, label_lengths;
};
// Lengths by the mask of frames and by what stands behind labels.
Alignment AlignmentOf(const NDArray& output, const NDArray& labels, const NDArray* mask) {
  const int64_t batch = output.dim(0);
  Alignment lengths;
  const NDArray labelled = Cast(labels >= 0, DType::kInt64);
  lengths.label_lengths = Sum(labelled, 1);
  lengths.input_lengths =
      mask != nullptr && mask->rank() == 2
          ? Sum(Cast(IsUsed(*mask), DType::kInt64), 1)
          : Full({batch}, output.dim(1), DType::kInt64, Place::CurrentOn(output.device()));
  return lengths;
}

// Those of examples that a mask [batch] leaves out: none.
NDArray UsedSequences(const NDArray& labels, const NDArray* mask) {
  if (mask == nullptr || mask->rank() != 1) return labels;
  return Where(IsUsed(*mask).ExpandDims(1), labels, Scalar(int64_t{-1}));
}

void CheckSequences(const NDArray& output, const NDArray& labels, const NDArray* mask) {
  const auto refuse = [&](const char* operand, const NDArray& array, const char* expected) {
    ThrowInvalidArgument(absl::StrCat("loss ctc: ", operand, " has shape ",
                                      array.shape().ToString(), " of ", DTypeName(array.dtype()),
                                      ", expected ", expected));
  };
  for (const auto& [name, array] : {std::pair{"output", &output}, {"labels", &labels}})
    array->CheckAlive("loss", name);
  if (output.rank() != 3 || !IsFloating(output.dtype()))
    refuse("output", output, "floats [batch, time, classes]");
  if (labels.rank() != 2 || labels.dim(0) != output.dim(0) || labels.dtype() != DType::kInt64) {
    refuse("labels", labels, "i64 [batch, most labels]");
  }
  if (mask == nullptr) return;
  mask->CheckAlive("loss", "mask");
  if (mask->rank() < 1 || mask->rank() > 2 ||
      mask->shape() != Leading(output.shape(), mask->rank()))
    refuse("mask", *mask, "[batch], or [batch, time], of which the first frames are used");
}

}  // namespace

NDArray Loss::Ctc(const NDArray& output, const NDArray& labels, const NDArray* mask,
                  Labels known) const {
  CheckSequences(output, labels, mask);
  const NDArray used = UsedSequences(labels, mask);
  const Alignment lengths = AlignmentOf(output, used, mask);
  NDArray x = output;
  if (x.dtype() != DType::kFloat64) x = Cast(x, DType::kFloat32);
  if (mask != nullptr) x = Masked(x, IsUsed(*mask));
  return CtcLoss(LogSoftmax(x), used, lengths.input_lengths, lengths.label_lengths,
                 {config_.blank, config_.zero_infinity}, known);
}

void Loss::WriteSomeLabels(const Shape& output, NDArray& labels) const {
  const bool are_sequences = kind() == LossKind::kCtc && labels.rank() == 2 && output.rank() == 3;
  if (!are_sequences || labels.dtype() != DType::kInt64) return ZeroOut(labels);
  const int64_t most = labels.dim(1), frames = output[1], classes = output[2];
  const int64_t blank = config_.blank;
  const int64_t first = blank == 0 ? 1 : 0;
  int64_t second = first + 1 == blank ? first + 2 : first + 1;
  // Between equal neighbours stands a frame of the blank.
  if (second >= classes) second = first;
  const int64_t length =
      classes < 2 ? 0 : std::min(most, second != first ? frames : (frames + 1) / 2);
  auto* const values = labels.mutable_data<int64_t>();
  for (int64_t i = 0; i < labels.NumElements(); ++i) {
    const int64_t at = i % most;
    values[i] = at >= length ? -1 : at % 2 == 0 ? first : second;
  }
}

void Loss::CheckLabels(const NDArray& output, const NDArray& labels, const NDArray* mask) const {
  if (kind() == LossKind::kCtc) {
    CheckSequences(output, labels, mask);
    const NDArray used = UsedSequences(labels, mask);
    const Alignment lengths = AlignmentOf(output, used, mask);
    CheckCtcLabels(used, lengths.input_lengths, lengths.label_lengths, output.dim(1), output.dim(2),
                   {config_.blank, config_.zero_infinity});
  } else if (kind() == LossKind::kSoftmaxCrossEntropy && !IsFloating(labels.dtype())) {
    CheckSoftmaxLabels(WithoutMaskedLabels(labels, mask).ReshapeOrCopy({labels.NumElements()}),
                       output.dim(output.rank() - 1));
  }
}

}  // namespace tidepool::nn
