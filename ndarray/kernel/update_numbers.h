// What of a parameter update changes from step to step, as kernels use it. In an array of the
// device it can change between replays of a captured step; attributes cannot
// (ndarray/ops/updaters.h).
#ifndef TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_
#define TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_

#include <cmath>
#include <cstdint>
#include <limits>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

// The array has the parameters' type and this many elements, in the order of the members.
inline constexpr int kUpdateNumbers = 5;

// As a kernel uses them, in double whatever the array's type.
struct UpdateNumbers {
  double rate = 0;     // the learning rate; Adam's with the bias corrections
  double epsilon = 0;  // beside the root; Adam's corrected likewise
  double keep = 1;     // Adam's: what weight decay leaves of the parameters
  double scale =
      1;  // of the gradient, before everything else: of its clipped norm, of a loss that was scaled
  // Not 0, NaN too: the update is left out, parameters and state keep their bits. A device finds
  // out by itself that gradients overflowed (a scaled loss), in the middle of a captured step.
  double skip = 0;

  // Whether the update is left out.
  bool is_skipped() const { return !(skip == 0); }
};

// The numbers of a call without an array of them.
inline UpdateNumbers NumbersOf(const SgdAttributes& a) { return {a.learning_rate}; }
inline UpdateNumbers NumbersOf(const NesterovsAttributes& a) { return {a.learning_rate}; }
inline UpdateNumbers NumbersOf(const AdaGradAttributes& a) { return {a.learning_rate, a.epsilon}; }
inline UpdateNumbers NumbersOf(const RmsPropAttributes& a) { return {a.learning_rate, a.epsilon}; }
// m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + e), with the corrections moved out of the loop.
inline UpdateNumbers NumbersOf(const AdamAttributes& a) {
  const double first = 1 - std::pow(a.beta1, static_cast<double>(a.step));
  const double second = std::sqrt(1 - std::pow(a.beta2, static_cast<double>(a.step)));
  return {a.learning_rate * second / first, a.epsilon * second,
          1 - a.learning_rate * a.weight_decay};
}

// Of a call whose operands the host can read: its array's when it has one.
template <typename Attributes, typename T = float>
UpdateNumbers NumbersOf(const KernelCall& call) {
  const TensorRef& numbers = call.inputs[1];
  if (!numbers.present) return NumbersOf(call.attrs<Attributes>());
  const int64_t stride = numbers.strides[0];
  const T* const at = numbers.as<T>();
  return {at[0], at[stride], at[2 * stride], at[3 * stride], at[4 * stride]};
}

// What becomes of an element of the gradient before the formulas use it, as attributes.h has it. W:
// what to compute in.
template <typename W>
struct GradientTerms {
  // As the formula has them; no clip is infinity.
  W scale = 1, l2 = 0, l1 = 0, clip = std::numeric_limits<W>::infinity();

  // Those of an update's attributes; `scale` is UpdateNumbers::scale.
  template <typename Attributes>
  static GradientTerms Of(const Attributes& a, double scale) {
    GradientTerms terms{static_cast<W>(scale), static_cast<W>(a.l2), static_cast<W>(a.l1)};
    if (a.clip > 0) terms.clip = static_cast<W>(a.clip);
    return terms;
  }
  // g of the formulas.
  W Gradient(W gradient, W parameter) const {
    W g = scale * gradient;
    g = g > clip ? clip : g;
    g = g < -clip ? -clip : g;
    const W sign = static_cast<W>(parameter > 0) - static_cast<W>(parameter < 0);
    return g + l2 * parameter + l1 * sign;
  }
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_
