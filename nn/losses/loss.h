// Loss: what training makes small, as a value with a name: a kind and its numbers.
//
//   const Loss loss(LossKind::kSoftmaxCrossEntropy);  // or Loss::Named("huber")
//   NDArray mean = loss.Mean(logits, labels, &mask);  // on the thread's tape, if there is one
//
// Made of operators that have gradients with respect to the output, so that a GradientTape needs
// nothing else. Labels are constants. Positions are the items of the batch, or, for [batch, time,
// ...], the frames of each: what the losses below are one number of.
//
// `mask` gives each position a weight: bool or any numbers, of a shape that the output's begins
// with, from [batch] (weights of whole examples) to all of its axes but classes. Where it is 0,
// output and labels count nowhere, whatever they hold: NaN, a padding of -1. Losses of positions
// behind its axes are averaged first. CTC's is [batch], or [batch, time] whose frames that are not 0 come first.
//
// Ownership: a value; copies share nothing but an array of class weights. Threads: any number at
// once. Results are in the current place, of the output's type (CTC: f32 of 16-bit outputs).
// Errors: kInvalidArgument naming loss, operand, found, expected. Cost: one pass each way for the
// first five and CTC, some elementwise ones for the others, for masks (one over the output each
// way), label smoothing and class weights.
#ifndef TIDEPOOL_NN_LOSSES_LOSS_H_
#define TIDEPOOL_NN_LOSSES_LOSS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/loss.h"

namespace tidepool::nn {

// x: the output, t: the labels. Means are over what a position has of axes.
enum class LossKind : uint8_t {
  kSoftmaxCrossEntropy,  // -log(softmax(x)[label]); or -sum(t * log(softmax(x))) of labels like the
                         // output
  kBinaryCrossEntropy,   // mean of -t log(p) - (1 - t) log(1 - p), p = 1 / (1 + exp(-x))
  kSquaredError,         // mean of (x - t)^2
  kAbsoluteError,        // mean of |x - t|
  kHuber,                // mean of d^2 / 2, from d = |x - t| = delta on delta * (d - delta / 2)
  kHinge,                // mean of max(0, 1 - t * x), t: -1 or 1
  kKullbackLeibler,      // sum of t * (log(t) - log(softmax(x))): t is a distribution over the last
                         // axis
  kPoisson,              // mean of exp(x) - t * x: x is the logarithm of the rate
  kCosineProximity,      // 1 - cos of the angle between x and t along the last axis; 1, without a
                         // gradient, where one is 0
  kCtc,                  // ndarray/ops/ctc.h, of softmax(x)
};

// How labels are written for a loss.
enum class LabelForm : uint8_t {
  kClasses,  // i64 [batch, ...], one a position; or floats like the output: how probable each class
             // is
  kLikeOutput,  // of the output's shape; another type is converted
  kSequences,   // i64 [batch, most labels], -1 behind each one's last
};

// A plain value: kind and numbers.
struct LossConfig {
  LossKind kind = LossKind::kSoftmaxCrossEntropy;  // which of them
  double delta = 1;                                // kHuber
  // kSoftmaxCrossEntropy: so much of the probability is shared out to all classes;
  // kBinaryCrossEntropy: to both. 0 to 1.
  double label_smoothing = 0;
  // kSoftmaxCrossEntropy: what errors of each class count; none: 1.
  std::vector<double> class_weights;
  int64_t blank = 0;           // kCtc
  bool zero_infinity = false;  // kCtc: labels that the input is too short for cost 0; else they are
                               // an error where checked

  // Throws kInvalidArgument naming a field that is out of range, or not the kind's and not as it is
  // made.
  void Check() const;
  std::string ToString() const;  // "huber(delta 1)"
  bool operator==(const LossConfig&) const = default;
};

// "softmax_cross_entropy", "binary_cross_entropy", "squared_error", "absolute_error", "huber",
// "hinge", "kullback_leibler", "poisson", "cosine_proximity", "ctc"
const char* LossName(LossKind kind);
// Throws kInvalidArgument for anything else, naming them.
LossKind ParseLoss(const std::string& name);

class Loss {
 public:
  // Throws as LossConfig::Check.
  explicit Loss(LossConfig config);
  explicit Loss(LossKind kind) : Loss(LossConfig{.kind = kind}) {}
  // By its name; throws as ParseLoss.
  static Loss Named(const std::string& name) { return Loss(ParseLoss(name)); }

  // [batch], each example's own. Its positions' weighted mean: divided by the sum of the mask over
  // the example, 0 where that is 0. A mask [batch] multiplies instead. Class weights multiply.
  // `known`: whether labels have been checked (CheckLabels); if not they are, on the host.
  NDArray Of(const NDArray& output, const NDArray& labels, const NDArray* mask = nullptr,
             Labels known = Labels::kUnchecked) const;
  // One number: the weighted mean over all positions, divided by the sum of their weights: the
  // mask's, times those of the labels' classes where labels are classes (as PyTorch). 0 where the
  // weights' sum is 0 and of no examples. Longer sequences count more than shorter ones, other than
  // in the mean of Of. Of CTC: the mean over examples, weighted by a mask [batch].
  NDArray Mean(const NDArray& output, const NDArray& labels, const NDArray* mask = nullptr,
               Labels known = Labels::kUnchecked) const;

  // What the two above check of labels' values on the host; those of masked positions may be
  // anything. Nothing to check for labels like the output. For steps that are captured, before
  // them.
  void CheckLabels(const NDArray& output, const NDArray& labels,
                   const NDArray* mask = nullptr) const;

  // Writes labels that it takes of outputs [batch, ...] of that shape into `labels`, dense integers on the host: class 0; sequences
  // as long as there is room and `output` is, without blanks and repetitions. For steps that are run to be measured.
  void WriteSomeLabels(const Shape& output, NDArray& labels) const;

  // As constructed, how its labels are written, and its name with what is not as it is made.
  LossKind kind() const { return config_.kind; }
  LabelForm labels() const;
  const LossConfig& config() const { return config_; }
  std::string ToString() const { return config_.ToString(); }
  // Of equal configurations.
  bool operator==(const Loss& other) const { return config_ == other.config_; }

 private:
  struct Parts;
  struct Weights;  // of classes, as an array
  Parts PartsOf(const NDArray& output, const NDArray& labels, const NDArray* mask,
                Labels known) const;
  NDArray Classified(const NDArray& output, const NDArray& labels, Labels known,
                     NDArray* weights) const;
  NDArray Compared(const NDArray& output, const NDArray& labels) const;
  NDArray Ctc(const NDArray& output, const NDArray& labels, const NDArray* mask,
              Labels known) const;
  NDArray ClassWeights(DType dtype, Device device, int64_t classes) const;

  LossConfig config_;
  std::shared_ptr<Weights> weights_;
};

// Sum of weights * values over these axes divided by the sum of weights, 0 where that is 0; shapes
// are equal. What Loss makes of masks.
NDArray WeightedMean(const NDArray& values, const NDArray& weights, const std::vector<int>& axes);

// `labels` with 0 where the mask, of their first axes, is 0: what is left to check of their values. As they are without a mask, and by
// one of more axes than they have, which losses refuse by name.
NDArray WithoutMaskedLabels(const NDArray& labels, const NDArray* mask);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_LOSSES_LOSS_H_
