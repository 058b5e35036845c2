// A kernel of one's own for an operator of Tidepool's, on the host. It takes what it is good at,
// runs of whole blocks, and leaves the rest to the provider that is next in the order. Its loop
// runs on the threads of the call.
#include <cstdint>

#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"

namespace {

using tidepool::ClipBound;
using tidepool::DeviceType;
using tidepool::DType;
using tidepool::KernelCall;
using tidepool::OpCode;

constexpr int64_t kBlock = 8;
constexpr int64_t kBlocksOfATask = 4096;

// Operands are dense: `strided` is not set.
void RunClip(const KernelCall& call) {
  const auto& a = call.attrs<tidepool::ClipAttributes>();
  const float low = ClipBound<float>(a.low), high = ClipBound<float>(a.high);
  const float* const x = call.inputs[0].as<float>();
  float* const z = call.outputs[0].as<float>();
  const int64_t count = call.outputs[0].NumElements();
  // A comparison with each bound: what is small stays on the calling thread.
  tidepool::ParallelFor(call.threads, count / kBlock, kBlocksOfATask, 2 * count,
                        [&](int64_t first, int64_t last) {
                          for (int64_t i = first * kBlock; i < last * kBlock; ++i)
                            z[i] = x[i] < low ? low : x[i] > high ? high : x[i];
                        });
}

bool SupportsClip(const KernelCall& call) { return call.outputs[0].NumElements() % kBlock == 0; }

// Above the CPU backend's 10 and XNNPACK's 20.
const tidepool::KernelRegistrar registrar({
    {OpCode::kClip, DeviceType::kHost, DType::kFloat32, "quick_clip", 30, &RunClip, nullptr,
     &SupportsClip},
});

}  // namespace
