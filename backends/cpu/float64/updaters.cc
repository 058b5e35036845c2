// Parameter updates of f64: one pass over flat arrays.
#include <cmath>
#include <cstdint>

#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/kernel/update_numbers.h"

namespace tidepool::cpu {
namespace {

// update(i) for each element.
template <typename Update>
void ForEachParameter(const KernelCall& call, Update update) {
  const int64_t n = call.outputs[0].NumElements();
  ParallelFor(call.threads, n, 1 << 14, n * 4, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) update(i);
  });
}

template <typename Attributes>
struct Of {
  explicit Of(const KernelCall& call)
      : a(call.attrs<Attributes>()),
        numbers(NumbersOf<Attributes, double>(call)),
        terms(GradientTerms<double>::Of(a, numbers.scale)),
        g(call.inputs[0].as<double>()),
        p(call.outputs[0].as<double>()) {}
  double Gradient(int64_t i) const { return terms.Gradient(g[i], p[i]); }

  const Attributes a;
  const UpdateNumbers numbers;
  const GradientTerms<double> terms;
  const double* const g;
  double* const p;
};

void RunSgd(const KernelCall& call) {
  const Of<SgdAttributes> of(call);
  if (of.numbers.is_skipped()) return;
  ForEachParameter(call, [&](int64_t i) { of.p[i] -= of.numbers.rate * of.Gradient(i); });
}

void RunNesterovs(const KernelCall& call) {
  const Of<NesterovsAttributes> of(call);
  if (of.numbers.is_skipped()) return;
  double* v = call.outputs[1].as<double>();
  ForEachParameter(call, [&](int64_t i) {
    const double step = of.numbers.rate * of.Gradient(i);
    v[i] = of.a.momentum * v[i] - step;
    of.p[i] += of.a.momentum * v[i] - step;
  });
}

template <typename Attributes>
void RunByRoot(const KernelCall& call, double keep, double rest) {
  const Of<Attributes> of(call);
  if (of.numbers.is_skipped()) return;
  double* s = call.outputs[1].as<double>();
  ForEachParameter(call, [&](int64_t i) {
    const double g = of.Gradient(i);
    s[i] = keep * s[i] + rest * g * g;
    of.p[i] -= of.numbers.rate * g / (std::sqrt(s[i]) + of.numbers.epsilon);
  });
}

void RunAdaGrad(const KernelCall& call) { RunByRoot<AdaGradAttributes>(call, 1, 1); }

void RunRmsProp(const KernelCall& call) {
  const double decay = call.attrs<RmsPropAttributes>().decay;
  RunByRoot<RmsPropAttributes>(call, decay, 1 - decay);
}

void RunAdam(const KernelCall& call) {
  const Of<AdamAttributes> of(call);
  if (of.numbers.is_skipped()) return;
  double *m = call.outputs[1].as<double>(), *v = call.outputs[2].as<double>();
  ForEachParameter(call, [&](int64_t i) {
    const double gradient = of.Gradient(i);
    m[i] = of.a.beta1 * m[i] + (1 - of.a.beta1) * gradient;
    v[i] = of.a.beta2 * v[i] + (1 - of.a.beta2) * gradient * gradient;
    of.p[i] =
        of.numbers.keep * of.p[i] - of.numbers.rate * m[i] / (std::sqrt(v[i]) + of.numbers.epsilon);
  });
}

const KernelRegistrar registrar({
    {OpCode::kSgdUpdate, DeviceType::kHost, DType::kFloat64, "cpu", 10, &RunSgd},
    {OpCode::kNesterovsUpdate, DeviceType::kHost, DType::kFloat64, "cpu", 10, &RunNesterovs},
    {OpCode::kAdaGradUpdate, DeviceType::kHost, DType::kFloat64, "cpu", 10, &RunAdaGrad},
    {OpCode::kRmsPropUpdate, DeviceType::kHost, DType::kFloat64, "cpu", 10, &RunRmsProp},
    {OpCode::kAdamUpdate, DeviceType::kHost, DType::kFloat64, "cpu", 10, &RunAdam},
});

}  // namespace
}  // namespace tidepool::cpu
