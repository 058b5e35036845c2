// What of a parameter update changes from step to step, as kernels use it. In an array of the device it
// can change between replays of a captured step; attributes cannot (ndarray/ops/updaters.h).
#ifndef TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_
#define TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_

#include <cmath>
#include <cstdint>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/kernel.h"

namespace tidepool {

// The array is f32 of this many elements, in the order of the members.
inline constexpr int kUpdateNumbers = 2;

struct UpdateNumbers {
  float rate = 0;     // the learning rate; Adam's with the bias corrections
  float epsilon = 0;  // Adam's, corrected likewise
};

inline UpdateNumbers NumbersOf(const SgdAttributes& a) {
  return {static_cast<float>(a.learning_rate), 0};
}
inline UpdateNumbers NumbersOf(const NesterovsAttributes& a) {
  return {static_cast<float>(a.learning_rate), 0};
}
// m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + e), with the corrections moved out of the loop.
inline UpdateNumbers NumbersOf(const AdamAttributes& a) {
  const double first = 1 - std::pow(a.beta1, static_cast<double>(a.step));
  const double second = std::sqrt(1 - std::pow(a.beta2, static_cast<double>(a.step)));
  return {static_cast<float>(a.learning_rate * second / first),
          static_cast<float>(a.epsilon * second)};
}

// Of a call whose operands the host can read: its array's when it has one.
template <typename Attributes>
UpdateNumbers NumbersOf(const KernelCall& call) {
  const TensorRef& numbers = call.inputs[1];
  if (!numbers.present) return NumbersOf(call.attrs<Attributes>());
  const int64_t stride = numbers.strides[0];
  return {numbers.as<float>()[0], numbers.as<float>()[stride]};
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_UPDATE_NUMBERS_H_
