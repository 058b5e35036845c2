// Connectionist temporal classification: examples shared out to threads, in double.
#include "tidepool/ndarray/kernel/ctc_paths.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace tidepool::cpu {
namespace {

// About what a state of a frame costs: three exponentials and a logarithm.
constexpr int64_t kStateWork = 64;

int SlotsOf(const KernelCall& call) {
  const int64_t examples = call.inputs[0].dims[0];
  const int64_t work = examples * call.inputs[0].dims[1] * CtcStates(call) * kStateWork;
  if (work < kMinParallelWork) return 1;
  return static_cast<int>(std::clamp<int64_t>(examples, 1, call.threads.count));
}

template <int64_t (*kNumbers)(const KernelCall&)>
size_t ScratchBytes(const KernelCall& call) {
  return static_cast<size_t>(SlotsOf(call)) * static_cast<size_t>(kNumbers(call)) * sizeof(double);
}

template <int64_t (*kNumbers)(const KernelCall&),
          void (*kExamples)(const KernelCall&, int64_t, int64_t, double*)>
void Run(const KernelCall& call) {
  const int64_t examples = call.inputs[0].dims[0];
  auto* const scratch = static_cast<double*>(call.scratch);
  const std::shared_ptr<ThreadPool> pool = SlotsOf(call) > 1 ? PoolOf(call.threads) : nullptr;
  if (pool == nullptr) return kExamples(call, 0, examples, scratch);
  const int64_t numbers = kNumbers(call);
  pool->Run(examples, [&](int64_t example, int slot) {
    kExamples(call, example, example + 1, scratch + slot * numbers);
  });
}

template <typename T>
constexpr Kernel Loss() {
  return {OpCode::kCtcLoss,
          DeviceType::kHost,
          DTypeOf<T>::value,
          "cpu",
          10,
          &Run<&CtcScratch, &CtcOfExamples<T, double>>,
          &ScratchBytes<&CtcScratch>};
}
template <typename T>
constexpr Kernel Grad() {
  return {OpCode::kCtcLossGrad,
          DeviceType::kHost,
          DTypeOf<T>::value,
          "cpu",
          10,
          &Run<&CtcGradScratch, &CtcGradOfExamples<T, double>>,
          &ScratchBytes<&CtcGradScratch>};
}

const KernelRegistrar registrar({Loss<float>(), Loss<double>(), Grad<float>(), Grad<double>()});

}  // namespace
}  // namespace tidepool::cpu
