// What of a parameter update changes from step to step, as kernels use it. In an array of the device it
// can change between replays of a captured step; attributes cannot (ndarray/ops/updaters.h).
#ifndef TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_
#define TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_

#include <cmath>
#include <cstdint>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

// The array has the parameters' type and this many elements, in the order of the members.
inline constexpr int kUpdateNumbers = 3;

struct UpdateNumbers {
  double rate = 0;     // the learning rate; Adam's with the bias corrections
  double epsilon = 0;  // Adam's, corrected likewise
  double keep = 1;     // Adam's: what weight decay leaves of the parameters
};

inline UpdateNumbers NumbersOf(const SgdAttributes& a) {
  return {a.learning_rate};
}
inline UpdateNumbers NumbersOf(const NesterovsAttributes& a) {
  return {a.learning_rate};
}
// m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + e), with the corrections moved out of the loop.
inline UpdateNumbers NumbersOf(const AdamAttributes& a) {
  const double first = 1 - std::pow(a.beta1, static_cast<double>(a.step));
  const double second = std::sqrt(1 - std::pow(a.beta2, static_cast<double>(a.step)));
  return {a.learning_rate * second / first, a.epsilon * second, 1 - a.learning_rate * a.weight_decay};
}

// Of a call whose operands the host can read: its array's when it has one.
template <typename Attributes, typename T = float>
UpdateNumbers NumbersOf(const KernelCall& call) {
  const TensorRef& numbers = call.inputs[1];
  if (!numbers.present) return NumbersOf(call.attrs<Attributes>());
  const int64_t stride = numbers.strides[0];
  const T* const at = numbers.as<T>();
  return {at[0], at[stride], at[2 * stride]};
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_
