// Frozen graphs run as XNNPACK subgraphs, and by our own dense layers where ranges are dynamic (graph_runtime.h).
#include <cpuinfo.h>
#include <xnnpack.h>

#include <algorithm>
#include <memory>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/backends/cpu/xnnpack/graph_runtime.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"
#include "tidepool/backends/cpu/xnnpack/subgraph_builder.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"

namespace tidepool::cpu {
namespace {

static_assert(XNN_EXTRA_BYTES <= kReadableTailBytes);

constexpr const char* kName = "frozen network";
// Sizes of which XNNPACK computes products without looking.
constexpr int64_t kMostElements = int64_t{1} << 40;

// Estimates, measured with AVX-512 (docs/performance_kernels.md, "Frozen networks"). What a call of
// a kernel costs beside its work; products that take a nanosecond; weights of dense layers that a
// nanosecond less is taken for in 8 bits.
constexpr double kGainOfOp = 1500, kProductsOfNanosecond = 200, kSmallerWeightsOfNanosecond = 26;

// Products of zeros: XNNPACK fills the channels of a convolution's images up to four, in 8 bits to
// eight.
int64_t PaddedProducts(const FrozenOp& op) {
  if (op.kind != FrozenOp::Kind::kConv2d) return 0;
  const int64_t channels = op.weight_shape[3], multiple = op.is_quantised() ? 8 : 4;
  if (op.convolution.groups > 1 && channels == 1) return 0;
  return op.output_shape.NumElements() * op.weight_shape[1] * op.weight_shape[2] *
         ((channels + multiple - 1) / multiple * multiple - channels);
}

// LeNet gains 3 us for one example and loses 122 for 32; in 8 bits it gains 12 and loses 377.
double GainOfOp(const FrozenOp& op, int64_t batch) {
  double gain = kGainOfOp;
  if (op.kind == FrozenOp::Kind::kDense && (op.is_quantised() || op.has_dynamic_range)) {
    gain += static_cast<double>(op.weight_shape.NumElements()) / kSmallerWeightsOfNanosecond;
  }
  return gain - static_cast<double>(PaddedProducts(op)) / kProductsOfNanosecond *
                    static_cast<double>(batch);
}

#if defined(__x86_64__)
constexpr bool kEmulatesHalf = true;
#else
constexpr bool kEmulatesHalf = false;
#endif

bool HasHalf() {
#if defined(__x86_64__)
  return cpuinfo_has_x86_avx2() && cpuinfo_has_x86_f16c();
#elif defined(__aarch64__)
  return cpuinfo_has_arm_neon_fp16_arith();
#else
  return false;
#endif
}

class SubgraphEngine final : public FrozenEngine {
 public:
  const char* name() const override { return "xnnpack"; }
  std::string WhyNotHere() const override { return XnnpackIsUsable() ? "" : XnnpackDescription(); }

  std::string WhyNot(const FrozenOp& op, bool is_half) const override {
    if (is_half && !HasHalf())
      return "16-bit floats, which XNNPACK has no instructions for on this processor";
    if (op.has_dynamic_range) {
      if (op.kind != FrozenOp::Kind::kDense) return "dynamic ranges are those of dense layers";
      if (is_half) return "dynamic ranges beside 16-bit floats";
    }
    return WhyNoSubgraphHas(op, is_half);
  }

  double GainOf(const FrozenGraph& graph, int64_t batch) const override {
    if (graph.is_half && kEmulatesHalf) return -1;  // several times slower
    double gain = 0;
    for (const FrozenOp& op : graph.ops) gain += GainOfOp(op, batch);
    return gain;
  }

  std::unique_ptr<FrozenRuntime> Make(const FrozenGraph& graph, int64_t batch, const float* x,
                                      float* z) override {
    int64_t largest = graph.input_shape.NumElements();
    for (const FrozenOp& op : graph.ops) largest = std::max(largest, op.output_shape.NumElements());
    if (batch > kMostElements / std::max<int64_t>(1, largest)) {
      ThrowInvalidArgument(
          absl::StrCat(kName, ": a batch of ", batch, " with ", largest,
                       " elements an example in its largest array, expected at most ",
                       kMostElements, " in all"));
    }
    return MakeGraphRuntime(graph, batch, x, z);
  }

  int64_t Reclaim(absl::FunctionRef<void()> drop) override {
    return IsTakingXnnpackMemory() ? 0 : ReclaimXnnpackMemory(drop);
  }
};

// Needs no XNNPACK before it is used.
const FrozenEngineRegistrar registrar(new SubgraphEngine);

}  // namespace
}  // namespace tidepool::cpu
