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

void RunSgd(const KernelCall& call) {
  const double l2 = call.attrs<SgdAttributes>().l2, rate = NumbersOf<SgdAttributes, double>(call).rate;
  const double* g = call.inputs[0].as<double>();
  double* p = call.outputs[0].as<double>();
  ForEachParameter(call, [=](int64_t i) { p[i] -= rate * (g[i] + l2 * p[i]); });
}

void RunNesterovs(const KernelCall& call) {
  const auto a = call.attrs<NesterovsAttributes>();
  const double rate = NumbersOf<NesterovsAttributes, double>(call).rate;
  const double* g = call.inputs[0].as<double>();
  double *p = call.outputs[0].as<double>(), *v = call.outputs[1].as<double>();
  ForEachParameter(call, [=](int64_t i) {
    const double step = rate * (g[i] + a.l2 * p[i]);
    v[i] = a.momentum * v[i] - step;
    p[i] += a.momentum * v[i] - step;
  });
}

void RunAdam(const KernelCall& call) {
  const auto a = call.attrs<AdamAttributes>();
  const UpdateNumbers numbers = NumbersOf<AdamAttributes, double>(call);
  const double* g = call.inputs[0].as<double>();
  double *p = call.outputs[0].as<double>(), *m = call.outputs[1].as<double>(), *v = call.outputs[2].as<double>();
  ForEachParameter(call, [=](int64_t i) {
    const double gradient = g[i] + a.l2 * p[i];
    m[i] = a.beta1 * m[i] + (1 - a.beta1) * gradient;
    v[i] = a.beta2 * v[i] + (1 - a.beta2) * gradient * gradient;
    p[i] = numbers.keep * p[i] - numbers.rate * m[i] / (std::sqrt(v[i]) + numbers.epsilon);
  });
}

const KernelRegistrar registrar({
    {OpCode::kSgdUpdate, DeviceType::kHost, DType::kFloat64, "cpu", 10, &RunSgd},
    {OpCode::kNesterovsUpdate, DeviceType::kHost, DType::kFloat64, "cpu", 10, &RunNesterovs},
    {OpCode::kAdamUpdate, DeviceType::kHost, DType::kFloat64, "cpu", 10, &RunAdam},
});

}  // namespace
}  // namespace tidepool::cpu
