// Parameter updates: one launch over flat arrays, by the formulas of attributes.h in float.
#include <cstdint>

#include "tidepool/backends/cuda/framework/numbers.h"
#include "tidepool/backends/cuda/framework/queue.h"
#include "tidepool/backends/cuda/framework/registration.h"
#include "tidepool/backends/cuda/runtime/launch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/update_numbers.h"

namespace tidepool::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxStates = 2;

// Updates an element: the gradient, the parameter and its states. Take: the numbers that change from
// step to step, out of memory that may be written between replays of a captured step.
struct Terms {
  float scale, l2, l1, clip;
  // g of the formulas; NaN stays.
  __device__ float Gradient(float gradient, float p) const {
    float g = scale * gradient;
    g = g > clip ? clip : g;
    g = g < -clip ? -clip : g;
    const float sign = (p > 0 ? 1.0f : 0.0f) - (p < 0 ? 1.0f : 0.0f);
    return g + l2 * p + l1 * sign;
  }
};
struct SgdStep {
  static constexpr int kStates = 0;
  Terms terms;
  float rate;
  __device__ void Take(const float* numbers) {
    rate = numbers[0];
    terms.scale = numbers[3];
  }
  __device__ void operator()(float g, float& p, float*) const { p -= rate * terms.Gradient(g, p); }
};
struct NesterovsStep {
  static constexpr int kStates = 1;
  Terms terms;
  float rate, momentum;
  __device__ void Take(const float* numbers) {
    rate = numbers[0];
    terms.scale = numbers[3];
  }
  __device__ void operator()(float g, float& p, float* state) const {
    const float step = rate * terms.Gradient(g, p);
    const float velocity = momentum * state[0] - step;
    state[0] = velocity;
    p += momentum * velocity - step;
  }
};
// AdaGrad, where both are 1, and RMSProp.
struct ByRootStep {
  static constexpr int kStates = 1;
  Terms terms;
  float rate, epsilon, keep, rest;
  __device__ void Take(const float* numbers) {
    rate = numbers[0];
    epsilon = numbers[1];
    terms.scale = numbers[3];
  }
  __device__ void operator()(float gradient, float& p, float* state) const {
    const float g = terms.Gradient(gradient, p);
    state[0] = keep * state[0] + rest * g * g;
    p -= rate * g / (sqrtf(state[0]) + epsilon);
  }
};
struct AdamStep {
  static constexpr int kStates = 2;
  Terms terms;
  float beta1, beta2, rest1, rest2, size, epsilon, keep;
  __device__ void Take(const float* numbers) {
    size = numbers[0];
    epsilon = numbers[1];
    keep = numbers[2];
    terms.scale = numbers[3];
  }
  __device__ void operator()(float g, float& p, float* state) const {
    const float gradient = terms.Gradient(g, p);
    state[0] = beta1 * state[0] + rest1 * gradient;
    state[1] = beta2 * state[1] + rest2 * gradient * gradient;
    p = keep * p - size * state[0] / (sqrtf(state[1]) + epsilon);
  }
};

template <int kWidth, typename Step>
__device__ __forceinline__ void UpdateVector(const Step& step, int64_t n, const float* gradient,
                                             float* parameters, float* const* states) {
  using V = Vector<float, kWidth>;
  const V g = reinterpret_cast<const V*>(gradient)[n];
  V p = reinterpret_cast<V*>(parameters)[n];
  V s[kMaxStates];
#pragma unroll
  for (int i = 0; i < Step::kStates; ++i) s[i] = reinterpret_cast<V*>(states[i])[n];
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    float state[kMaxStates];
#pragma unroll
    for (int i = 0; i < Step::kStates; ++i) state[i] = s[i].lane[lane];
    step(g.lane[lane], p.lane[lane], state);
#pragma unroll
    for (int i = 0; i < Step::kStates; ++i) s[i].lane[lane] = state[i];
  }
  reinterpret_cast<V*>(parameters)[n] = p;
#pragma unroll
  for (int i = 0; i < Step::kStates; ++i) reinterpret_cast<V*>(states[i])[n] = s[i];
}

template <int kWidth, typename Step>
__global__ void __launch_bounds__(kThreads)
    Update(Step step, int64_t count, const float* gradient, float* parameters, float* first,
           float* second, const float* numbers) {
  if (numbers != nullptr) {
    if (!(numbers[4] == 0)) return;  // UpdateNumbers::skip, NaN too
    step.Take(numbers);
  }
  float* const states[kMaxStates] = {first, second};
  const int64_t vectors = count / kWidth;
  for (int64_t n = GlobalThread(); n < vectors; n += GlobalThreads()) {
    UpdateVector<kWidth>(step, n, gradient, parameters, states);
  }
  const int64_t n = vectors * kWidth + GlobalThread();
  if (n < count) UpdateVector<1>(step, n, gradient, parameters, states);
}

template <typename Step>
void Run(const KernelCall& call, const Step& step) {
  const Queue queue = QueueOf(call);
  const int64_t count = call.outputs[0].NumElements();
  const float* const gradient = call.inputs[0].as<const float>();
  float* data[1 + kMaxStates] = {};
  auto all = reinterpret_cast<uintptr_t>(gradient);
  for (int i = 0; i <= Step::kStates; ++i) {
    data[i] = call.outputs[i].as<float>();
    all |= reinterpret_cast<uintptr_t>(data[i]);
  }
  const float* const numbers =
      call.inputs[1].present ? call.inputs[1].as<const float>() : nullptr;
  if (all % 16 == 0) {
    Launch(Update<4, Step>, queue.Blocks(count / 4 + 1, kThreads), kThreads, 0, queue.stream, step, count,
           gradient, data[0], data[1], data[2], numbers);
  } else {
    Launch(Update<1, Step>, queue.Blocks(count, kThreads), kThreads, 0, queue.stream, step, count,
           gradient, data[0], data[1], data[2], numbers);
  }
}

template <typename Attributes>
Terms TermsOf(const Attributes& a) {
  const auto terms = GradientTerms<float>::Of(a, 1);
  return {terms.scale, terms.l2, terms.l1, terms.clip};
}

void RunSgd(const KernelCall& call) {
  const auto& a = call.attrs<SgdAttributes>();
  Run(call, SgdStep{TermsOf(a), static_cast<float>(a.learning_rate)});
}

void RunNesterovs(const KernelCall& call) {
  const auto& a = call.attrs<NesterovsAttributes>();
  Run(call, NesterovsStep{TermsOf(a), static_cast<float>(a.learning_rate), static_cast<float>(a.momentum)});
}

void RunAdaGrad(const KernelCall& call) {
  const auto& a = call.attrs<AdaGradAttributes>();
  Run(call, ByRootStep{TermsOf(a), static_cast<float>(a.learning_rate), static_cast<float>(a.epsilon), 1, 1});
}

void RunRmsProp(const KernelCall& call) {
  const auto& a = call.attrs<RmsPropAttributes>();
  Run(call, ByRootStep{TermsOf(a), static_cast<float>(a.learning_rate), static_cast<float>(a.epsilon),
                       static_cast<float>(a.decay), static_cast<float>(1 - a.decay)});
}

void RunAdam(const KernelCall& call) {
  const auto& a = call.attrs<AdamAttributes>();
  const UpdateNumbers numbers = NumbersOf(a);
  Run(call, AdamStep{TermsOf(a), static_cast<float>(a.beta1), static_cast<float>(a.beta2),
                     static_cast<float>(1 - a.beta1), static_cast<float>(1 - a.beta2),
                     static_cast<float>(numbers.rate), static_cast<float>(numbers.epsilon),
                     static_cast<float>(numbers.keep)});
}

const bool registered = [] {
  AddKernel(OpCode::kSgdUpdate, DType::kFloat32, &RunSgd);
  AddKernel(OpCode::kNesterovsUpdate, DType::kFloat32, &RunNesterovs);
  AddKernel(OpCode::kAdaGradUpdate, DType::kFloat32, &RunAdaGrad);
  AddKernel(OpCode::kRmsPropUpdate, DType::kFloat32, &RunRmsProp);
  AddKernel(OpCode::kAdamUpdate, DType::kFloat32, &RunAdam);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
