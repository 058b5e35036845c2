// Frozen graphs as XNNPACK subgraphs. Written to the functions that the interfaces of 2022 and of 2024 have in common.
//
// What the interface of 2022 makes of it: the batch is fixed when a runtime is made; every runtime packs the weights for
// itself; memory that a runtime fails to get for its activations is reported as success without a runtime.
#include <xnnpack.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"

namespace tidepool::cpu {
namespace {

static_assert(XNN_EXTRA_BYTES <= kReadableTailBytes);

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kInput = 0, kOutput = 1;
constexpr const char* kName = "frozen network";
// Sizes of which XNNPACK computes products without looking.
constexpr int64_t kLargestSize = int64_t{1} << 30, kMostElements = int64_t{1} << 40;

struct DeleteSubgraph {
  void operator()(xnn_subgraph_t subgraph) const { xnn_delete_subgraph(subgraph); }
};
struct DeleteRuntime {
  void operator()(xnn_runtime_t runtime) const { xnn_delete_runtime(runtime); }
};
using Subgraph = std::unique_ptr<std::remove_pointer_t<xnn_subgraph_t>, DeleteSubgraph>;
using Runtime = std::unique_ptr<std::remove_pointer_t<xnn_runtime_t>, DeleteRuntime>;

// Defines a graph's values and nodes.
class SubgraphBuilder {
 public:
  SubgraphBuilder(const FrozenGraph& graph, int64_t batch) : batch_(batch) {
    xnn_subgraph_t subgraph = nullptr;
    CheckXnnpack(xnn_create_subgraph(/*external_value_ids=*/2, /*flags=*/0, &subgraph), kName);
    subgraph_.reset(subgraph);
    at_ = Define(graph.input_shape, {}, kInput, XNN_VALUE_FLAG_EXTERNAL_INPUT);
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const FrozenOp& op = graph.ops[i];
      if (op.is_quantised() != (quantisation_.scale > 0)) Convert(op.input_shape, op.is_quantised() ? op.input : Quantisation());
      const bool is_last = i + 1 == graph.ops.size();
      const uint32_t output = is_last && !op.is_quantised()
                                  ? Define(op.output_shape, {}, kOutput, XNN_VALUE_FLAG_EXTERNAL_OUTPUT)
                                  : Define(op.output_shape, op.output, XNN_INVALID_VALUE_ID, 0);
      CheckXnnpack(DefineNode(op, output), op.name.c_str());
      at_ = output;
      quantisation_ = op.output;
    }
    if (quantisation_.scale > 0) {
      const uint32_t output = Define(graph.output_shape(), {}, kOutput, XNN_VALUE_FLAG_EXTERNAL_OUTPUT);
      CheckXnnpack(xnn_define_convert(subgraph_.get(), at_, output, /*flags=*/0), kName);
    }
  }

  xnn_subgraph_t subgraph() const { return subgraph_.get(); }

 private:
  // What is no image has rows, which dense layers take.
  std::vector<size_t> DimsOf(const Shape& shape) const {
    std::vector<size_t> dims = {static_cast<size_t>(batch_)};
    if (shape.rank() == 3) {
      dims.insert(dims.end(), shape.span().begin(), shape.span().end());
    } else {
      dims.push_back(static_cast<size_t>(shape.NumElements()));
    }
    return dims;
  }

  uint32_t Define(const Shape& shape, const Quantisation& q, uint32_t external, uint32_t flags) {
    const std::vector<size_t> dims = DimsOf(shape);
    uint32_t id = XNN_INVALID_VALUE_ID;
    CheckXnnpack(q.scale > 0 ? xnn_define_quantized_tensor_value(subgraph_.get(), xnn_datatype_qint8, q.zero_point, q.scale,
                                                                 dims.size(), dims.data(), nullptr, external, flags, &id)
                             : xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp32, dims.size(), dims.data(), nullptr,
                                                       external, flags, &id),
                 kName);
    return id;
  }

  void Convert(const Shape& shape, const Quantisation& to) {
    const uint32_t converted = Define(shape, to, XNN_INVALID_VALUE_ID, 0);
    CheckXnnpack(xnn_define_convert(subgraph_.get(), at_, converted, /*flags=*/0), kName);
    at_ = converted;
    quantisation_ = to;
  }

  // Weights and bias.
  std::pair<uint32_t, uint32_t> DefineConstants(const FrozenOp& op) {
    std::vector<size_t> weight(op.weight_shape.span().begin(), op.weight_shape.span().end());
    const size_t filters = weight[0];
    uint32_t weight_id = XNN_INVALID_VALUE_ID, bias_id = XNN_INVALID_VALUE_ID;
    const auto define = [&](bool is_bias, uint32_t* id) {
      const size_t rank = is_bias ? 1 : weight.size();
      const size_t* const dims = is_bias ? &filters : weight.data();
      constexpr uint32_t kInternal = XNN_INVALID_VALUE_ID;
      if (!op.is_quantised()) {
        return xnn_define_tensor_value(subgraph_.get(), xnn_datatype_fp32, rank, dims,
                                       is_bias ? op.bias.data() : op.weight.data(), kInternal, 0, id);
      }
      const void* const data = is_bias ? static_cast<const void*>(op.quantised_bias.data()) : op.quantised_weight.data();
      if (op.weight_scales.size() == 1) {
        return xnn_define_quantized_tensor_value(subgraph_.get(), is_bias ? xnn_datatype_qint32 : xnn_datatype_qint8, 0,
                                                 op.weight_scales[0] * (is_bias ? op.input.scale : 1), rank, dims, data,
                                                 kInternal, 0, id);
      }
      const float* scales = op.weight_scales.data();
      if (is_bias) {
        bias_scales_.emplace_back(filters + XNN_EXTRA_BYTES, 1.0f);
        for (size_t i = 0; i < filters; ++i) bias_scales_.back()[i] = op.weight_scales[i] * op.input.scale;
        scales = bias_scales_.back().data();
      }
      return xnn_define_channelwise_quantized_tensor_value(
          subgraph_.get(), is_bias ? xnn_datatype_qcint32 : xnn_datatype_qcint8, scales, rank, /*channel_dim=*/0, dims, data,
          kInternal, 0, id);
    };
    CheckXnnpack(define(false, &weight_id), op.name.c_str());
    CheckXnnpack(define(true, &bias_id), op.name.c_str());
    return {weight_id, bias_id};
  }

  xnn_status DefineNode(const FrozenOp& op, uint32_t output) {
    const float lowest = op.relu ? 0.0f : -kInfinity;
    const auto u32 = [](int64_t value) { return static_cast<uint32_t>(value); };
    switch (op.kind) {
      case FrozenOp::Kind::kDense: {
        const auto [weight, bias] = DefineConstants(op);
        return xnn_define_fully_connected(subgraph_.get(), lowest, kInfinity, at_, weight, bias, output,
                                          XNN_FLAG_TENSORFLOW_RESHAPE_2D);
      }
      case FrozenOp::Kind::kConv2d: {
        const auto [weight, bias] = DefineConstants(op);
        const Conv2dAttributes& a = op.convolution;
        const auto groups = static_cast<size_t>(a.groups);
        return xnn_define_convolution_2d(
            subgraph_.get(), u32(a.pad_top), u32(a.pad_right), u32(a.pad_bottom), u32(a.pad_left), u32(op.weight_shape[1]),
            u32(op.weight_shape[2]), u32(a.stride_height), u32(a.stride_width), u32(a.dilation_height),
            u32(a.dilation_width), u32(a.groups), static_cast<size_t>(op.weight_shape[3]),
            static_cast<size_t>(op.weight_shape[0]) / groups, lowest, kInfinity, at_, weight, bias, output, /*flags=*/0);
      }
      case FrozenOp::Kind::kMaxPool2d: {
        const Pool2dAttributes& a = op.pooling;
        return xnn_define_max_pooling_2d(subgraph_.get(), u32(a.pad_top), u32(a.pad_right), u32(a.pad_bottom),
                                         u32(a.pad_left), u32(a.kernel_height), u32(a.kernel_width), u32(a.stride_height),
                                         u32(a.stride_width), /*dilation_height=*/1, /*dilation_width=*/1, -kInfinity,
                                         kInfinity, at_, output, /*flags=*/0);
      }
      case FrozenOp::Kind::kSoftmax:
        return xnn_define_softmax(subgraph_.get(), at_, output, /*flags=*/0);
    }
    return xnn_status_unsupported_parameter;
  }

  const int64_t batch_;
  Subgraph subgraph_;
  uint32_t at_ = kInput;       // the value reached so far
  Quantisation quantisation_;  // its
  std::vector<std::vector<float>> bias_scales_;
};

class SubgraphRuntime final : public FrozenRuntime {
 public:
  SubgraphRuntime(const FrozenGraph& graph, int64_t batch, const float* x, float* z) {
    const TakingXnnpackMemory taking;
    size_t values = 2;
    for (const FrozenOp& op : graph.ops) values += op.weight_shape.rank() > 0 ? 4 : 2;
    // The planner takes three arrays of one entry of at most 64 bytes for each value.
    XnnpackReserve reserve(4096 + 3 * 64 * values);
    xnn_runtime_t made = nullptr;
    xnn_status status = xnn_status_success;
    {
      const SubgraphBuilder builder(graph, batch);
      status = xnn_create_runtime_v2(builder.subgraph(), /*threadpool=*/nullptr, /*flags=*/0, &made);
    }
    runtime_.reset(made);
    if (status == xnn_status_success && made == nullptr) status = xnn_status_out_of_memory;
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

  void Run(const float* x, float* z) override {
    if (x != x_ || z != z_) CheckXnnpack(SetUp(x, z), kName);
    CheckXnnpack(xnn_invoke_runtime(runtime_.get()), kName);
  }

 private:
  xnn_status SetUp(const float* x, float* z) {
    x_ = nullptr;  // until it has succeeded
    const xnn_external_value values[] = {{kInput, const_cast<float*>(x)}, {kOutput, z}};
    const xnn_status status = xnn_setup_runtime(runtime_.get(), 2, values);
    if (status == xnn_status_success) x_ = x, z_ = z;
    return status;
  }

  Runtime runtime_;
  int64_t bytes_ = 0;
  const float* x_ = nullptr;
  float* z_ = nullptr;
};

class SubgraphEngine final : public FrozenEngine {
 public:
  const char* name() const override { return "xnnpack"; }
  std::string WhyNotHere() const override { return XnnpackIsUsable() ? "" : XnnpackDescription(); }

  std::string WhyNot(const FrozenOp& op) const override {
    if (op.kind == FrozenOp::Kind::kMaxPool2d) {
      const Pool2dAttributes& a = op.pooling;
      if (a.kernel_height * a.kernel_width == 1) return "XNNPACK has no pooling of 1x1";
    }
    const Conv2dAttributes& c = op.convolution;
    const Pool2dAttributes& p = op.pooling;
    for (const int64_t size :
         {c.stride_height, c.stride_width, c.pad_top, c.pad_bottom, c.pad_left, c.pad_right, c.dilation_height,
          c.dilation_width, c.groups, p.kernel_height, p.kernel_width, p.stride_height, p.stride_width, p.pad_top,
          p.pad_bottom, p.pad_left, p.pad_right, op.input_shape.NumElements(), op.output_shape.NumElements(),
          op.weight_shape.NumElements()}) {
      if (size > kLargestSize) return absl::StrCat("a size of ", size, ", expected at most ", kLargestSize);
    }
    return "";
  }

  std::unique_ptr<FrozenRuntime> Make(const FrozenGraph& graph, int64_t batch, const float* x, float* z) override {
    int64_t largest = graph.input_shape.NumElements();
    for (const FrozenOp& op : graph.ops) largest = std::max(largest, op.output_shape.NumElements());
    if (batch > kMostElements / std::max<int64_t>(1, largest)) {
      ThrowInvalidArgument(absl::StrCat(kName, ": a batch of ", batch, " with ", largest,
                                        " elements an example in its largest array, expected at most ", kMostElements,
                                        " in all"));
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
