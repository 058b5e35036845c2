// Parameter updates by the formulas of attributes.h, in the wide type; state is rounded when
// stored.
#include <cmath>

#include "tidepool/backends/reference/float_kernels.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/kernel/update_numbers.h"

namespace tidepool {
namespace {

// Calls update(gradient, parameter, states...) for each element, unless the step is left out;
// kStates state arrays.
template <typename T, int kStates, typename Update>
void ForEachParameter(const KernelCall& call, Update update) {
  if (call.inputs[1].present && NumbersOf<SgdAttributes, T>(call).is_skipped()) return;
  const TensorRef& gradient = call.inputs[0];
  constexpr int kOperands = 2 + kStates;
  int64_t strides[kOperands][kMaxRank];
  T* data[kOperands];
  for (int n = 0; n < kOperands; ++n) {
    const TensorRef& ref = n == 0 ? gradient : call.outputs[n - 1];
    BroadcastStrides(ref.rank, ref.dims, ref.strides, ref.rank, strides[n]);
    data[n] = ref.as<T>();
  }
  ForEachRun<kOperands>(gradient.rank, gradient.dims, strides,
                        [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                          for (int64_t i = 0; i < count; ++i) {
                            T* element[kOperands];
                            for (int n = 0; n < kOperands; ++n) {
                              element[n] = data[n] + offset[n] + i * stride[n];
                            }
                            update(element);
                          }
                        });
}

// That of the array of numbers, where there is one: a replayed step changes it there.
template <typename T, typename Attributes>
Wide<T> RateOf(const KernelCall& call, const Attributes& a) {
  return call.inputs[1].present ? NumbersOf<Attributes, T>(call).rate
                                : static_cast<Wide<T>>(a.learning_rate);
}

// g of the formulas.
template <typename T, typename Attributes>
auto GradientOf(const KernelCall& call, const Attributes& a) {
  using W = Wide<T>;
  const double scale = call.inputs[1].present ? NumbersOf<Attributes, T>(call).scale : 1;
  const W l2 = a.l2, l1 = a.l1, clip = a.clip;
  return [=](W gradient, W parameter) {
    W g = scale * gradient;
    if (clip > 0 && g > clip) g = clip;
    if (clip > 0 && g < -clip) g = -clip;
    const W sign = parameter > 0 ? 1 : parameter < 0 ? -1 : 0;
    return g + l2 * parameter + l1 * sign;
  };
}

template <typename T>
void Sgd(const KernelCall& call) {
  using W = Wide<T>;
  const auto& a = call.attrs<SgdAttributes>();
  const W rate = RateOf<T>(call, a);
  const auto gradient_of = GradientOf<T>(call, a);
  ForEachParameter<T, 0>(call, [&](T** element) {
    const W parameter = *element[1];
    *element[1] = static_cast<T>(parameter - rate * gradient_of(*element[0], parameter));
  });
}

template <typename T>
void Nesterovs(const KernelCall& call) {
  using W = Wide<T>;
  const auto& a = call.attrs<NesterovsAttributes>();
  const W rate = RateOf<T>(call, a), momentum = a.momentum;
  const auto gradient_of = GradientOf<T>(call, a);
  ForEachParameter<T, 1>(call, [&](T** element) {
    const W parameter = *element[1];
    const W step = rate * gradient_of(*element[0], parameter);
    const W velocity = momentum * *element[2] - step;
    *element[2] = static_cast<T>(velocity);
    *element[1] = static_cast<T>(parameter + (momentum * velocity - step));
  });
}

// By the root of state = keep * state + add * g^2.
template <typename T, typename Attributes>
void ByRoot(const KernelCall& call, Wide<T> keep, Wide<T> add) {
  using W = Wide<T>;
  const auto& a = call.attrs<Attributes>();
  const W rate = RateOf<T>(call, a);
  const W epsilon =
      call.inputs[1].present ? NumbersOf<Attributes, T>(call).epsilon : static_cast<W>(a.epsilon);
  const auto gradient_of = GradientOf<T>(call, a);
  ForEachParameter<T, 1>(call, [&](T** element) {
    const W parameter = *element[1];
    const W g = gradient_of(*element[0], parameter);
    const W state = keep * *element[2] + add * g * g;
    *element[2] = static_cast<T>(state);
    *element[1] = static_cast<T>(parameter - rate * g / (std::sqrt(state) + epsilon));
  });
}

template <typename T>
void AdaGrad(const KernelCall& call) {
  ByRoot<T, AdaGradAttributes>(call, 1, 1);
}

template <typename T>
void RmsProp(const KernelCall& call) {
  const Wide<T> decay = call.attrs<RmsPropAttributes>().decay;
  ByRoot<T, RmsPropAttributes>(call, decay, 1 - decay);
}

template <typename T>
void Adam(const KernelCall& call) {
  using W = Wide<T>;
  const auto& a = call.attrs<AdamAttributes>();
  const W step = static_cast<W>(a.step), beta1 = a.beta1, beta2 = a.beta2;
  // The numbers have the corrections in them (update_numbers.h), where epsilon stands beside the
  // root of v itself.
  const bool numbered = call.inputs[1].present;
  const W rate = numbered ? RateOf<T>(call, a) : a.learning_rate / (1 - std::pow(beta1, step));
  const W correction = numbered ? 1 : 1 - std::pow(beta2, step);
  const W epsilon = numbered ? NumbersOf<AdamAttributes, T>(call).epsilon : a.epsilon;
  const W keep = numbered ? static_cast<W>(NumbersOf<AdamAttributes, T>(call).keep)
                          : 1 - static_cast<W>(a.learning_rate) * static_cast<W>(a.weight_decay);
  const auto gradient_of = GradientOf<T>(call, a);
  ForEachParameter<T, 2>(call, [&](T** element) {
    const W parameter = *element[1];
    const W gradient = gradient_of(*element[0], parameter);
    const W first = beta1 * *element[2] + (1 - beta1) * gradient;
    const W second = beta2 * *element[3] + (1 - beta2) * gradient * gradient;
    *element[2] = static_cast<T>(first);
    *element[3] = static_cast<T>(second);
    *element[1] = static_cast<T>(keep * parameter -
                                 rate * first / (std::sqrt(second / correction) + epsilon));
  });
}

const KernelRegistrar registrar({
    ReferenceKernel(OpCode::kSgdUpdate, DType::kFloat32, &Sgd<float>),
    ReferenceKernel(OpCode::kSgdUpdate, DType::kFloat64, &Sgd<double>),
    ReferenceKernel(OpCode::kNesterovsUpdate, DType::kFloat32, &Nesterovs<float>),
    ReferenceKernel(OpCode::kNesterovsUpdate, DType::kFloat64, &Nesterovs<double>),
    ReferenceKernel(OpCode::kAdaGradUpdate, DType::kFloat32, &AdaGrad<float>),
    ReferenceKernel(OpCode::kAdaGradUpdate, DType::kFloat64, &AdaGrad<double>),
    ReferenceKernel(OpCode::kRmsPropUpdate, DType::kFloat32, &RmsProp<float>),
    ReferenceKernel(OpCode::kRmsPropUpdate, DType::kFloat64, &RmsProp<double>),
    ReferenceKernel(OpCode::kAdamUpdate, DType::kFloat32, &Adam<float>),
    ReferenceKernel(OpCode::kAdamUpdate, DType::kFloat64, &Adam<double>),
});

}  // namespace
}  // namespace tidepool
