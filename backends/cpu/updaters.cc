// Parameter updates of f32 and f64: one pass over flat arrays.
#include <cstdint>

#include "tidepool/backends/cpu/vector_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel/update_numbers.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;

template <typename T, typename Attributes>
UpdateTerms<T> TermsOf(const Attributes& a, const UpdateNumbers& numbers) {
  const auto terms = GradientTerms<T>::Of(a, numbers.scale);
  return {terms.scale, terms.l2, terms.l1, terms.clip};
}

// run(begin, end) on as many threads as the call has; `work`: operations, relative to one a
// element.
template <typename Run>
void ForEachRange(const KernelCall& call, int64_t work, Run run) {
  const int64_t n = call.outputs[0].NumElements();
  ParallelFor(call.threads, n, kGrain, n * work,
              [&](int64_t begin, int64_t end) { run(begin, end - begin); });
}

template <typename T>
void RunSgd(const KernelCall& call) {
  const auto& a = call.attrs<SgdAttributes>();
  const UpdateNumbers numbers = NumbersOf<SgdAttributes, T>(call);
  if (numbers.is_skipped()) return;
  const auto terms = TermsOf<T>(a, numbers);
  const T* g = call.inputs[0].as<T>();
  T* p = call.outputs[0].as<T>();
  ForEachRange(call, 1, [&](int64_t i, int64_t n) {
    UpdateLoopsOf<T>().sgd(g + i, p + i, static_cast<T>(numbers.rate), terms, n);
  });
}

template <typename T>
void RunNesterovs(const KernelCall& call) {
  const auto& a = call.attrs<NesterovsAttributes>();
  const UpdateNumbers numbers = NumbersOf<NesterovsAttributes, T>(call);
  if (numbers.is_skipped()) return;
  const auto terms = TermsOf<T>(a, numbers);
  const T* g = call.inputs[0].as<T>();
  T *p = call.outputs[0].as<T>(), *v = call.outputs[1].as<T>();
  ForEachRange(call, 1, [&](int64_t i, int64_t n) {
    UpdateLoopsOf<T>().nesterovs(g + i, p + i, v + i, static_cast<T>(numbers.rate),
                                 static_cast<T>(a.momentum), terms, n);
  });
}

template <typename T, typename Attributes>
void RunByRoot(const KernelCall& call, double keep, double rest) {
  const UpdateNumbers numbers = NumbersOf<Attributes, T>(call);
  if (numbers.is_skipped()) return;
  const auto terms = TermsOf<T>(call.attrs<Attributes>(), numbers);
  const T* g = call.inputs[0].as<T>();
  T *p = call.outputs[0].as<T>(), *s = call.outputs[1].as<T>();
  ForEachRange(call, 4, [&](int64_t i, int64_t n) {
    UpdateLoopsOf<T>().by_root(g + i, p + i, s + i, static_cast<T>(numbers.rate),
                               static_cast<T>(numbers.epsilon), static_cast<T>(keep),
                               static_cast<T>(rest), terms, n);
  });
}

template <typename T>
void RunAdaGrad(const KernelCall& call) {
  RunByRoot<T, AdaGradAttributes>(call, 1, 1);
}

template <typename T>
void RunRmsProp(const KernelCall& call) {
  const double decay = call.attrs<RmsPropAttributes>().decay;
  RunByRoot<T, RmsPropAttributes>(call, decay, 1 - decay);
}

template <typename T>
void RunAdam(const KernelCall& call) {
  const auto& a = call.attrs<AdamAttributes>();
  const UpdateNumbers numbers = NumbersOf<AdamAttributes, T>(call);
  if (numbers.is_skipped()) return;
  const auto terms = TermsOf<T>(a, numbers);
  const AdamStep<T> step{static_cast<T>(a.beta1),      static_cast<T>(a.beta2),
                         static_cast<T>(1 - a.beta1),  static_cast<T>(1 - a.beta2),
                         static_cast<T>(numbers.rate), static_cast<T>(numbers.epsilon),
                         static_cast<T>(numbers.keep)};
  const T* g = call.inputs[0].as<T>();
  T *p = call.outputs[0].as<T>(), *m = call.outputs[1].as<T>(), *v = call.outputs[2].as<T>();
  ForEachRange(call, 4, [&](int64_t i, int64_t n) {
    UpdateLoopsOf<T>().adam(g + i, p + i, m + i, v + i, step, terms, n);
  });
}

template <typename T>
KernelRegistrar Register() {
  constexpr DType kType = DTypeOf<T>::value;
  return {{OpCode::kSgdUpdate, DeviceType::kHost, kType, "cpu", 10, &RunSgd<T>},
          {OpCode::kNesterovsUpdate, DeviceType::kHost, kType, "cpu", 10, &RunNesterovs<T>},
          {OpCode::kAdaGradUpdate, DeviceType::kHost, kType, "cpu", 10, &RunAdaGrad<T>},
          {OpCode::kRmsPropUpdate, DeviceType::kHost, kType, "cpu", 10, &RunRmsProp<T>},
          {OpCode::kAdamUpdate, DeviceType::kHost, kType, "cpu", 10, &RunAdam<T>}};
}
const KernelRegistrar of_f32 = Register<float>(), of_f64 = Register<double>();

}  // namespace
}  // namespace tidepool::cpu
