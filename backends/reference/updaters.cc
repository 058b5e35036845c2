// Parameter updates by the formulas of attributes.h, in double; state is rounded when stored.
#include <cmath>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/strided_loop.h"
#include "tidepool/ndarray/kernel/update_numbers.h"

namespace tidepool {
namespace {

// Calls update(gradient, parameter, states...) for each element; kStates state arrays.
template <int kStates, typename Update>
void ForEachParameter(const KernelCall& call, Update update) {
  const TensorRef& gradient = call.inputs[0];
  constexpr int kOperands = 2 + kStates;
  int64_t strides[kOperands][kMaxRank];
  float* data[kOperands];
  for (int n = 0; n < kOperands; ++n) {
    const TensorRef& ref = n == 0 ? gradient : call.outputs[n - 1];
    BroadcastStrides(ref.rank, ref.dims, ref.strides, ref.rank, strides[n]);
    data[n] = ref.as<float>();
  }
  ForEachRun<kOperands>(gradient.rank, gradient.dims, strides,
                        [&](const int64_t* offset, int64_t count, const int64_t* stride) {
                          for (int64_t i = 0; i < count; ++i) {
                            float* element[kOperands];
                            for (int n = 0; n < kOperands; ++n) {
                              element[n] = data[n] + offset[n] + i * stride[n];
                            }
                            update(element);
                          }
                        });
}

// That of the array of numbers, where there is one: a replayed step changes it there.
double RateOf(const KernelCall& call, double rate) {
  return call.inputs[1].present ? NumbersOf<SgdAttributes>(call).rate : rate;
}

void Sgd(const KernelCall& call) {
  const auto& a = call.attrs<SgdAttributes>();
  const double rate = RateOf(call, a.learning_rate);
  ForEachParameter<0>(call, [&](float** element) {
    const double parameter = *element[1];
    const double gradient = *element[0] + a.l2 * parameter;
    *element[1] = static_cast<float>(parameter - rate * gradient);
  });
}

void Nesterovs(const KernelCall& call) {
  const auto& a = call.attrs<NesterovsAttributes>();
  const double rate = RateOf(call, a.learning_rate);
  ForEachParameter<1>(call, [&](float** element) {
    const double parameter = *element[1];
    const double step = rate * (*element[0] + a.l2 * parameter);
    const double velocity = a.momentum * *element[2] - step;
    *element[2] = static_cast<float>(velocity);
    *element[1] = static_cast<float>(parameter + (a.momentum * velocity - step));
  });
}

void Adam(const KernelCall& call) {
  const auto& a = call.attrs<AdamAttributes>();
  const double step = static_cast<double>(a.step);
  // The numbers have the corrections in them (update_numbers.h), where epsilon stands beside the root of v itself.
  const bool numbered = call.inputs[1].present;
  const double rate = RateOf(call, a.learning_rate / (1 - std::pow(a.beta1, step)));
  const double correction = numbered ? 1 : 1 - std::pow(a.beta2, step);
  const double epsilon = numbered ? NumbersOf<AdamAttributes>(call).epsilon : a.epsilon;
  ForEachParameter<2>(call, [&](float** element) {
    const double parameter = *element[1];
    const double gradient = *element[0] + a.l2 * parameter;
    const double first = a.beta1 * *element[2] + (1 - a.beta1) * gradient;
    const double second = a.beta2 * *element[3] + (1 - a.beta2) * gradient * gradient;
    *element[2] = static_cast<float>(first);
    *element[3] = static_cast<float>(second);
    *element[1] = static_cast<float>(parameter - rate * first /
                                                         (std::sqrt(second / correction) + epsilon));
  });
}

constexpr Kernel Strided(OpCode op, void (*run)(const KernelCall&)) {
  return {op, DeviceType::kHost, DType::kFloat32, "reference", 0, run, nullptr, nullptr, true};
}

const KernelRegistrar registrar({
    Strided(OpCode::kSgdUpdate, &Sgd),
    Strided(OpCode::kNesterovsUpdate, &Nesterovs),
    Strided(OpCode::kAdamUpdate, &Adam),
});

}  // namespace
}  // namespace tidepool
