// Frozen graphs run as XNNPACK subgraphs (subgraph_builder.h).
//
// What the interface of 2022 makes of it: the batch is fixed when a runtime is made; every runtime
// packs the weights for itself; memory that a runtime fails to get for its activations is reported
// as success without a runtime.
#include <cpuinfo.h>
#include <xnnpack.h>

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
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
  if (op.kind == FrozenOp::Kind::kDense && op.is_quantised()) {
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

struct DeleteRuntime {
  void operator()(xnn_runtime_t runtime) const { xnn_delete_runtime(runtime); }
};
using Runtime = std::unique_ptr<std::remove_pointer_t<xnn_runtime_t>, DeleteRuntime>;

class SubgraphRuntime final : public FrozenRuntime {
 public:
  SubgraphRuntime(const FrozenGraph& graph, int64_t batch, const float* x, float* z) {
    const TakingXnnpackMemory taking;
    size_t values = 4;
    for (int i = 0; i < static_cast<int>(graph.ops.size()); ++i)
      values += 8 + 2 * graph.InputsOf(i).size();
    // The planner takes three arrays of one entry of at most 64 bytes for each value.
    XnnpackReserve reserve(4096 + 3 * 64 * values);
    xnn_runtime_t made = nullptr;
    xnn_status status = xnn_status_success;
    bool has_workspace = false;
    {
      const SubgraphBuilder builder(graph, batch);
      has_workspace = builder.has_internal_values();
      status = xnn_create_runtime_v2(builder.subgraph(), /*threadpool=*/nullptr,
                                     builder.runtime_flags(), &made);
    }
    runtime_.reset(made);
    if (status == xnn_status_success && made == nullptr) status = xnn_status_out_of_memory;
    if (status == xnn_status_success) shared_bytes_ = reserve.SharePacked(has_workspace);
    // Memory that depends on shapes is taken here, not by the first call.
    if (status == xnn_status_success) status = SetUp(x, z);
    if (reserve.was_needed()) {
      runtime_.reset();
      status = xnn_status_out_of_memory;
    }
    CheckXnnpack(status, kName);
    bytes_ = reserve.taken_bytes();
  }

  int64_t bytes() const override { return bytes_; }
  int64_t shared_bytes() const override { return shared_bytes_; }

  void Run(const float* x, float* z) override {
    if (x != x_ || z != z_) CheckXnnpack(SetUp(x, z), kName);
    CheckXnnpack(xnn_invoke_runtime(runtime_.get()), kName);
  }

 private:
  xnn_status SetUp(const float* x, float* z) {
    x_ = nullptr;  // until it has succeeded
    const xnn_external_value values[] = {{kSubgraphInput, const_cast<float*>(x)},
                                         {kSubgraphOutput, z}};
    const xnn_status status = xnn_setup_runtime(runtime_.get(), 2, values);
    if (status == xnn_status_success) x_ = x, z_ = z;
    return status;
  }

  Runtime runtime_;
  int64_t bytes_ = 0, shared_bytes_ = 0;
  const float* x_ = nullptr;
  float* z_ = nullptr;
};

class SubgraphEngine final : public FrozenEngine {
 public:
  const char* name() const override { return "xnnpack"; }
  std::string WhyNotHere() const override { return XnnpackIsUsable() ? "" : XnnpackDescription(); }

  std::string WhyNot(const FrozenOp& op, bool is_half) const override {
    if (is_half && !HasHalf())
      return "16-bit floats, which XNNPACK has no instructions for on this processor";
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
    return std::make_unique<SubgraphRuntime>(graph, batch, x, z);
  }

  int64_t Reclaim(absl::FunctionRef<void()> drop) override {
    return IsTakingXnnpackMemory() ? 0 : ReclaimXnnpackMemory(drop);
  }
};

// Needs no XNNPACK before it is used.
const FrozenEngineRegistrar registrar(new SubgraphEngine);

}  // namespace
}  // namespace tidepool::cpu
