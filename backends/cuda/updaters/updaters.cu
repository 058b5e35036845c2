// Parameter updates: one launch over flat arrays, by the formulas of attributes.h in the parameters' type.
#include <cstdint>

#include "tidepool/backends/cuda/framework/math.h"
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
template <typename W>
struct Terms {
  W scale, l2, l1, clip;
  // g of the formulas; NaN stays.
  __device__ W Gradient(W gradient, W p) const {
    W g = scale * gradient;
    g = g > clip ? clip : g;
    g = g < -clip ? -clip : g;
    const W sign = static_cast<W>((p > 0 ? 1 : 0) - (p < 0 ? 1 : 0));
    return g + l2 * p + l1 * sign;
  }
};
template <typename W>
struct SgdStep {
  using Number = W;
  static constexpr int kStates = 0;
  Terms<W> terms;
  W rate;
  __device__ void Take(const W* numbers) {
    rate = numbers[0];
    terms.scale = numbers[3];
  }
  __device__ void operator()(W g, W& p, W*) const { p -= rate * terms.Gradient(g, p); }
};
template <typename W>
struct NesterovsStep {
  using Number = W;
  static constexpr int kStates = 1;
  Terms<W> terms;
  W rate, momentum;
  __device__ void Take(const W* numbers) {
    rate = numbers[0];
    terms.scale = numbers[3];
  }
  __device__ void operator()(W g, W& p, W* state) const {
    const W step = rate * terms.Gradient(g, p);
    const W velocity = momentum * state[0] - step;
    state[0] = velocity;
    p += momentum * velocity - step;
  }
};
// AdaGrad, where both are 1, and RMSProp.
template <typename W>
struct ByRootStep {
  using Number = W;
  static constexpr int kStates = 1;
  Terms<W> terms;
  W rate, epsilon, keep, rest;
  __device__ void Take(const W* numbers) {
    rate = numbers[0];
    epsilon = numbers[1];
    terms.scale = numbers[3];
  }
  __device__ void operator()(W gradient, W& p, W* state) const {
    const W g = terms.Gradient(gradient, p);
    state[0] = keep * state[0] + rest * g * g;
    p -= rate * g / (Sqrt(state[0]) + epsilon);
  }
};
template <typename W>
struct AdamStep {
  using Number = W;
  static constexpr int kStates = 2;
  Terms<W> terms;
  W beta1, beta2, rest1, rest2, size, epsilon, keep;
  __device__ void Take(const W* numbers) {
    size = numbers[0];
    epsilon = numbers[1];
    keep = numbers[2];
    terms.scale = numbers[3];
  }
  __device__ void operator()(W g, W& p, W* state) const {
    const W gradient = terms.Gradient(g, p);
    state[0] = beta1 * state[0] + rest1 * gradient;
    state[1] = beta2 * state[1] + rest2 * gradient * gradient;
    p = keep * p - size * state[0] / (Sqrt(state[1]) + epsilon);
  }
};

template <int kWidth, typename Step>
__device__ __forceinline__ void UpdateVector(const Step& step, int64_t n,
                                             const typename Step::Number* gradient,
                                             typename Step::Number* parameters,
                                             typename Step::Number* const* states) {
  using W = typename Step::Number;
  using V = Vector<W, kWidth>;
  const V g = reinterpret_cast<const V*>(gradient)[n];
  V p = reinterpret_cast<V*>(parameters)[n];
  V s[kMaxStates];
#pragma unroll
  for (int i = 0; i < Step::kStates; ++i) s[i] = reinterpret_cast<V*>(states[i])[n];
#pragma unroll
  for (int lane = 0; lane < kWidth; ++lane) {
    W state[kMaxStates];
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
    Update(Step step, int64_t count, const typename Step::Number* gradient,
           typename Step::Number* parameters, typename Step::Number* first,
           typename Step::Number* second, const typename Step::Number* numbers) {
  if (numbers != nullptr) {
    if (!(numbers[4] == 0)) return;  // UpdateNumbers::skip, NaN too
    step.Take(numbers);
  }
  typename Step::Number* const states[kMaxStates] = {first, second};
  const int64_t vectors = count / kWidth;
  for (int64_t n = GlobalThread(); n < vectors; n += GlobalThreads()) {
    UpdateVector<kWidth>(step, n, gradient, parameters, states);
  }
  const int64_t n = vectors * kWidth + GlobalThread();
  if (n < count) UpdateVector<1>(step, n, gradient, parameters, states);
}

template <typename Step>
void Run(const KernelCall& call, const Step& step) {
  using W = typename Step::Number;
  constexpr int kWidth = 16 / sizeof(W);
  const Queue queue = QueueOf(call);
  const int64_t count = call.outputs[0].NumElements();
  const W* const gradient = call.inputs[0].as<const W>();
  W* data[1 + kMaxStates] = {};
  auto all = reinterpret_cast<uintptr_t>(gradient);
  for (int i = 0; i <= Step::kStates; ++i) {
    data[i] = call.outputs[i].as<W>();
    all |= reinterpret_cast<uintptr_t>(data[i]);
  }
  const W* const numbers = call.inputs[1].present ? call.inputs[1].as<const W>() : nullptr;
  if (all % 16 == 0) {
    Launch(Update<kWidth, Step>, queue.Blocks(count / kWidth + 1, kThreads), kThreads, 0,
           queue.stream, step, count, gradient, data[0], data[1], data[2], numbers);
  } else {
    Launch(Update<1, Step>, queue.Blocks(count, kThreads), kThreads, 0, queue.stream, step, count,
           gradient, data[0], data[1], data[2], numbers);
  }
}

template <typename W, typename Attributes>
Terms<W> TermsOf(const Attributes& a) {
  const auto terms = GradientTerms<W>::Of(a, 1);
  return {terms.scale, terms.l2, terms.l1, terms.clip};
}

template <typename W>
void RunSgd(const KernelCall& call) {
  const auto& a = call.attrs<SgdAttributes>();
  Run(call, SgdStep<W>{TermsOf<W>(a), static_cast<W>(a.learning_rate)});
}

template <typename W>
void RunNesterovs(const KernelCall& call) {
  const auto& a = call.attrs<NesterovsAttributes>();
  Run(call,
      NesterovsStep<W>{TermsOf<W>(a), static_cast<W>(a.learning_rate), static_cast<W>(a.momentum)});
}

template <typename W>
void RunAdaGrad(const KernelCall& call) {
  const auto& a = call.attrs<AdaGradAttributes>();
  Run(call, ByRootStep<W>{TermsOf<W>(a), static_cast<W>(a.learning_rate), static_cast<W>(a.epsilon),
                          1, 1});
}

template <typename W>
void RunRmsProp(const KernelCall& call) {
  const auto& a = call.attrs<RmsPropAttributes>();
  Run(call, ByRootStep<W>{TermsOf<W>(a), static_cast<W>(a.learning_rate), static_cast<W>(a.epsilon),
                          static_cast<W>(a.decay), static_cast<W>(1 - a.decay)});
}

template <typename W>
void RunAdam(const KernelCall& call) {
  const auto& a = call.attrs<AdamAttributes>();
  const UpdateNumbers numbers = NumbersOf(a);
  Run(call, AdamStep<W>{TermsOf<W>(a), static_cast<W>(a.beta1), static_cast<W>(a.beta2),
                        static_cast<W>(1 - a.beta1), static_cast<W>(1 - a.beta2),
                        static_cast<W>(numbers.rate), static_cast<W>(numbers.epsilon),
                        static_cast<W>(numbers.keep)});
}

const bool registered = [] {
  AddKernel(OpCode::kSgdUpdate, DType::kFloat32, &RunSgd<float>);
  AddKernel(OpCode::kSgdUpdate, DType::kFloat64, &RunSgd<double>);
  AddKernel(OpCode::kNesterovsUpdate, DType::kFloat32, &RunNesterovs<float>);
  AddKernel(OpCode::kNesterovsUpdate, DType::kFloat64, &RunNesterovs<double>);
  AddKernel(OpCode::kAdaGradUpdate, DType::kFloat32, &RunAdaGrad<float>);
  AddKernel(OpCode::kAdaGradUpdate, DType::kFloat64, &RunAdaGrad<double>);
  AddKernel(OpCode::kRmsPropUpdate, DType::kFloat32, &RunRmsProp<float>);
  AddKernel(OpCode::kRmsPropUpdate, DType::kFloat64, &RunRmsProp<double>);
  AddKernel(OpCode::kAdamUpdate, DType::kFloat32, &RunAdam<float>);
  AddKernel(OpCode::kAdamUpdate, DType::kFloat64, &RunAdam<double>);
  return true;
}();

}  // namespace
}  // namespace tidepool::cuda
