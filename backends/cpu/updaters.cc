// Parameter updates: one pass over flat arrays.
#include <cstdint>

#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/backends/cpu/vector_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/update_numbers.h"

namespace tidepool::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;

void RunSgd(const KernelCall& call) {
  const auto& a = call.attrs<SgdAttributes>();
  const auto rate = static_cast<float>(NumbersOf<SgdAttributes>(call).rate);
  const float* g = call.inputs[0].as<float>();
  float* p = call.outputs[0].as<float>();
  const int64_t n = call.outputs[0].NumElements();
  ParallelFor(call.threads, n, kGrain, n, [&](int64_t begin, int64_t end) {
    Loops().sgd(g + begin, p + begin, rate, static_cast<float>(a.l2), end - begin);
  });
}

void RunNesterovs(const KernelCall& call) {
  const auto& a = call.attrs<NesterovsAttributes>();
  const float* g = call.inputs[0].as<float>();
  float* p = call.outputs[0].as<float>();
  float* v = call.outputs[1].as<float>();
  const auto rate = static_cast<float>(NumbersOf<NesterovsAttributes>(call).rate);
  const int64_t n = call.outputs[0].NumElements();
  ParallelFor(call.threads, n, kGrain, n, [&](int64_t begin, int64_t end) {
    Loops().nesterovs(g + begin, p + begin, v + begin, rate,
                      static_cast<float>(a.momentum), static_cast<float>(a.l2), end - begin);
  });
}

void RunAdam(const KernelCall& call) {
  const auto& a = call.attrs<AdamAttributes>();
  const UpdateNumbers numbers = NumbersOf<AdamAttributes>(call);
  const AdamStep step{static_cast<float>(a.beta1), static_cast<float>(a.beta2),
                      static_cast<float>(1 - a.beta1), static_cast<float>(1 - a.beta2),
                      static_cast<float>(numbers.rate), static_cast<float>(numbers.epsilon),
                      static_cast<float>(numbers.keep), static_cast<float>(a.l2)};
  const float* g = call.inputs[0].as<float>();
  float* p = call.outputs[0].as<float>();
  float* m = call.outputs[1].as<float>();
  float* v = call.outputs[2].as<float>();
  const int64_t n = call.outputs[0].NumElements();
  ParallelFor(call.threads, n, kGrain, n * 4, [&](int64_t begin, int64_t end) {
    Loops().adam(g + begin, p + begin, m + begin, v + begin, step, end - begin);
  });
}

const KernelRegistrar registrar({
    {OpCode::kSgdUpdate, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunSgd},
    {OpCode::kNesterovsUpdate, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunNesterovs},
    {OpCode::kAdamUpdate, DeviceType::kHost, DType::kFloat32, "cpu", 10, &RunAdam},
});

}  // namespace
}  // namespace tidepool::cpu
