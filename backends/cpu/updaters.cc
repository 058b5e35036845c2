// Parameter updates: one pass over flat arrays.
#include <cstdint>

#include "tidepool/backends/cpu/vector_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel/update_numbers.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;

template <typename Attributes>
UpdateTerms TermsOf(const Attributes& a, const UpdateNumbers& numbers) {
  const auto terms = GradientTerms<float>::Of(a, numbers.scale);
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

void RunSgd(const KernelCall& call) {
  const auto& a = call.attrs<SgdAttributes>();
  const UpdateNumbers numbers = NumbersOf<SgdAttributes>(call);
  if (numbers.is_skipped()) return;
  const UpdateTerms terms = TermsOf(a, numbers);
  const float* g = call.inputs[0].as<float>();
  float* p = call.outputs[0].as<float>();
  ForEachRange(call, 1, [&](int64_t i, int64_t n) {
    Loops().sgd(g + i, p + i, static_cast<float>(numbers.rate), terms, n);
  });
}

void RunNesterovs(const KernelCall& call) {
  const auto& a = call.attrs<NesterovsAttributes>();
  const UpdateNumbers numbers = NumbersOf<NesterovsAttributes>(call);
  if (numbers.is_skipped()) return;
  const UpdateTerms terms = TermsOf(a, numbers);
  const float* g = call.inputs[0].as<float>();
  float *p = call.outputs[0].as<float>(), *v = call.outputs[1].as<float>();
  ForEachRange(call, 1, [&](int64_t i, int64_t n) {
    Loops().nesterovs(g + i, p + i, v + i, static_cast<float>(numbers.rate),
                      static_cast<float>(a.momentum), terms, n);
  });
}

template <typename Attributes>
void RunByRoot(const KernelCall& call, double keep, double rest) {
  const UpdateNumbers numbers = NumbersOf<Attributes>(call);
  if (numbers.is_skipped()) return;
  const UpdateTerms terms = TermsOf(call.attrs<Attributes>(), numbers);
  const float* g = call.inputs[0].as<float>();
  float *p = call.outputs[0].as<float>(), *s = call.outputs[1].as<float>();
  ForEachRange(call, 4, [&](int64_t i, int64_t n) {
    Loops().by_root(g + i, p + i, s + i, static_cast<float>(numbers.rate),
                    static_cast<float>(numbers.epsilon), static_cast<float>(keep),
                    static_cast<float>(rest), terms, n);
  });
}

void RunAdaGrad(const KernelCall& call) { RunByRoot<AdaGradAttributes>(call, 1, 1); }

void RunRmsProp(const KernelCall& call) {
  const double decay = call.attrs<RmsPropAttributes>().decay;
  RunByRoot<RmsPropAttributes>(call, decay, 1 - decay);
}

void RunAdam(const KernelCall& call) {
  const auto& a = call.attrs<AdamAttributes>();
  const UpdateNumbers numbers = NumbersOf<AdamAttributes>(call);
  if (numbers.is_skipped()) return;
  const UpdateTerms terms = TermsOf(a, numbers);
  const AdamStep step{static_cast<float>(a.beta1),      static_cast<float>(a.beta2),
                      static_cast<float>(1 - a.beta1),  static_cast<float>(1 - a.beta2),
                      static_cast<float>(numbers.rate), static_cast<float>(numbers.epsilon),
                      static_cast<float>(numbers.keep)};
  const float* g = call.inputs[0].as<float>();
  float *p = call.outputs[0].as<float>(), *m = call.outputs[1].as<float>(),
        *v = call.outputs[2].as<float>();
  ForEachRange(call, 4, [&](int64_t i, int64_t n) {
    Loops().adam(g + i, p + i, m + i, v + i, step, terms, n);
  });
}

const KernelRegistrar registrar({
    {OpCode::kSgdUpdate, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunSgd},
    {OpCode::kNesterovsUpdate, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunNesterovs},
    {OpCode::kAdaGradUpdate, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunAdaGrad},
    {OpCode::kRmsPropUpdate, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunRmsProp},
    {OpCode::kAdamUpdate, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunAdam},
});

}  // namespace
}  // namespace tidepool::cpu
