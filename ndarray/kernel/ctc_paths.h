// Connectionist temporal classification (Graves, Fernandez, Gomez and Schmidhuber 2006) of one
// example after the other, for kernels of the host: sums over all paths through an extended
// sequence of labels (blank, label, blank, ..., blank), forwards and backwards, of logarithms.
#ifndef TIDEPOOL_NDARRAY_KERNEL_CTC_PATHS_H_
#define TIDEPOOL_NDARRAY_KERNEL_CTC_PATHS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <utility>

#include "tidepool/ndarray/kernel/attributes_nn.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

// The logarithm of exp(a) + exp(b) + exp(c); NaN where one is NaN.
template <typename W>
W LogOfSum(W a, W b, W c) {
  W most = a > b ? a : b;
  most = c > most ? c : most;
  if (!(most > -std::numeric_limits<W>::infinity())) return a + b + c;
  return most + std::log(std::exp(a - most) + std::exp(b - most) + std::exp(c - most));
}

// One example of a call of ctc_loss or ctc_loss_grad. Lengths beyond the operands' are cut off and
// labels that are no class have a probability of 0, so that nothing else is read, whatever they
// hold.
template <typename T, typename W>
class CtcExample {
 public:
  static constexpr W kNever = -std::numeric_limits<W>::infinity();

  CtcExample(const KernelCall& call, int64_t example)
      : x_(call.inputs[0].as<T>() + example * call.inputs[0].strides[0]),
        x_strides_(call.inputs[0].strides),
        labels_(call.inputs[1].as<int64_t>() + example * call.inputs[1].strides[0]),
        label_stride_(call.inputs[1].strides[1]),
        blank_(call.attrs<CtcAttributes>().blank),
        zero_infinity_(call.attrs<CtcAttributes>().zero_infinity),
        classes(call.inputs[0].dims[2]),
        frames(Length(call.inputs[2], example, call.inputs[0].dims[1])),
        states(2 * Length(call.inputs[3], example, call.inputs[1].dims[1]) + 1) {}

  // forward[s]: of all paths of frames 0 to t that end in state s, this frame's probability
  // included.
  void Forward(int64_t t, const W* before, W* forward) const {
    for (int64_t s = 0; s < states; ++s) {
      W sum;
      if (t == 0) {
        sum = s < 2 ? W(0) : kNever;
      } else {
        sum = LogOfSum(before[s], s > 0 ? before[s - 1] : kNever,
                       MayLeap(s) ? before[s - 2] : kNever);
      }
      forward[s] = sum + At(t, s);
    }
  }
  // backward[s]: of all paths from state s at frame t to the end, this frame's probability left
  // out. `behind`: of frame t + 1.
  void Backward(int64_t t, const W* behind, W* backward) const {
    for (int64_t s = 0; s < states; ++s) {
      if (t == frames - 1) {
        backward[s] = s + 2 >= states ? W(0) : kNever;
        continue;
      }
      const auto from = [&](int64_t next) { return behind[next] + At(t + 1, next); };
      backward[s] = LogOfSum(from(s), s + 1 < states ? from(s + 1) : kNever,
                             s + 2 < states && MayLeap(s + 2) ? from(s + 2) : kNever);
    }
  }
  // The logarithm of the labels' probability, by forward sums of the last frame.
  W Probability(const W* last) const {
    if (frames == 0) return states == 1 ? W(0) : kNever;
    return LogOfSum(last[states - 1], states > 1 ? last[states - 2] : kNever, kNever);
  }
  T Loss(W probability) const {
    return zero_infinity_ && probability == kNever ? T(0) : static_cast<T>(-probability);
  }
  // Of a state: its class, -1 for none.
  int64_t ClassOf(int64_t s) const {
    const int64_t label = s % 2 == 0 ? blank_ : labels_[s / 2 * label_stride_];
    return label >= 0 && label < classes ? label : -1;
  }

 private:
  static int64_t Length(const TensorRef& lengths, int64_t example, int64_t most) {
    return std::clamp<int64_t>(lengths.as<int64_t>()[example * lengths.strides[0]], 0, most);
  }
  W At(int64_t t, int64_t s) const {
    const int64_t label = ClassOf(s);
    return label < 0 ? kNever : static_cast<W>(x_[t * x_strides_[1] + label * x_strides_[2]]);
  }
  // From two states before, over a blank: not between equal labels.
  bool MayLeap(int64_t s) const { return s > 1 && s % 2 == 1 && ClassOf(s) != ClassOf(s - 2); }

  const T* const x_;
  const int64_t* const x_strides_;
  const int64_t* const labels_;
  const int64_t label_stride_, blank_;
  const bool zero_infinity_;

 public:
  const int64_t classes, frames, states;
};

// Numbers that the functions below work with, for any example of the call.
inline int64_t CtcStates(const KernelCall& call) { return 2 * call.inputs[1].dims[1] + 1; }
inline int64_t CtcScratch(const KernelCall& call) { return 2 * CtcStates(call); }
inline int64_t CtcGradScratch(const KernelCall& call) {
  return (call.inputs[0].dims[1] + 2) * CtcStates(call) + call.inputs[0].dims[2];
}

template <typename T, typename W>
void CtcOfExamples(const KernelCall& call, int64_t begin, int64_t end, W* scratch) {
  for (int64_t example = begin; example < end; ++example) {
    const CtcExample<T, W> of(call, example);
    W *now = scratch, *before = scratch + of.states;
    for (int64_t t = 0; t < of.frames; ++t) {
      of.Forward(t, before, now);
      std::swap(now, before);
    }
    call.outputs[0].as<T>()[example * call.outputs[0].strides[0]] = of.Loss(of.Probability(before));
  }
}

// What a class has of the paths, taken away: of the logarithms as they are, whether they are
// normalised or not.
template <typename T, typename W>
void CtcGradOfExamples(const KernelCall& call, int64_t begin, int64_t end, W* scratch) {
  const TensorRef &result = call.outputs[0], &dloss = call.inputs[4];
  for (int64_t example = begin; example < end; ++example) {
    const CtcExample<T, W> of(call, example);
    const W scale = static_cast<W>(dloss.as<T>()[example * dloss.strides[0]]);
    const int64_t states = of.states;
    W* const forward = scratch;
    W *now = forward + of.frames * states, *behind = now + states, *const share = behind + states;
    // Nothing follows where nobody asks, nor from what cannot be.
    bool none = scale == 0 || of.frames == 0;
    W probability = 0;
    if (!none) {
      for (int64_t t = 0; t < of.frames; ++t)
        of.Forward(t, t > 0 ? forward + (t - 1) * states : nullptr, forward + t * states);
      probability = of.Probability(forward + (of.frames - 1) * states);
      none = probability == CtcExample<T, W>::kNever;
    }
    for (int64_t t = result.dims[1] - 1; t >= 0; --t) {
      std::fill_n(share, of.classes, W(0));
      if (t < of.frames && !none) {
        of.Backward(t, behind, now);
        for (int64_t s = 0; s < states; ++s) {
          const int64_t label = of.ClassOf(s);
          if (label >= 0) share[label] += std::exp(forward[t * states + s] + now[s] - probability);
        }
        std::swap(now, behind);
      }
      T* const row = result.as<T>() + example * result.strides[0] + t * result.strides[1];
      for (int64_t c = 0; c < of.classes; ++c)
        row[c * result.strides[2]] = share[c] == 0 ? T(0) : static_cast<T>(-scale * share[c]);
    }
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_CTC_PATHS_H_
