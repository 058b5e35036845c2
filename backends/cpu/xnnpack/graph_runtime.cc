#include "tidepool/backends/cpu/xnnpack/graph_runtime.h"

#include <xnnpack.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "tidepool/backends/cpu/int8/int8_dense.h"
#include "tidepool/backends/cpu/int8/int8_loops.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"
#include "tidepool/backends/cpu/xnnpack/subgraph_builder.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool::cpu {
namespace {

constexpr const char* kName = "frozen network";
constexpr int64_t kAlignment = 64;

// Where values lie, by operator or kGraphInput.
using Places = std::map<int, float*>;

struct DeleteRuntime {
  void operator()(xnn_runtime_t runtime) const { xnn_delete_runtime(runtime); }
};

using Runtime = std::unique_ptr<std::remove_pointer_t<xnn_runtime_t>, DeleteRuntime>;

class Stage {
 public:
  virtual ~Stage() = default;
  virtual void Run(const Places& places) = 0;
  virtual int64_t bytes() const = 0;
  virtual int64_t shared_bytes() const { return 0; }
};

class SubgraphStage final : public Stage {
 public:
  SubgraphStage(const FrozenGraph& graph, GraphPart part, int64_t batch, const Places& places)
      : part_(std::move(part)) {
    size_t values = 4;
    for (int i = part_.begin; i < part_.end; ++i) values += 8 + 2 * graph.InputsOf(i).size();
    externals_.resize(part_.inputs.size() + part_.outputs.size());
    // The planner takes three arrays of one entry of at most 64 bytes for each value.
    XnnpackReserve reserve(4096 + 3 * 64 * values);
    Runtime runtime;  // goes before the reserve, of which it may have blocks, whatever throws
    xnn_runtime_t made = nullptr;
    xnn_status status = xnn_status_success;
    bool has_workspace = false;
    {
      const SubgraphBuilder builder(graph, part_, batch);
      has_workspace = builder.has_internal_values();
      status = xnn_create_runtime_v2(builder.subgraph(), /*threadpool=*/nullptr,
                                     builder.runtime_flags(), &made);
    }
    runtime.reset(made);
    if (status == xnn_status_success && made == nullptr) status = xnn_status_out_of_memory;
    if (status == xnn_status_success) shared_bytes_ = reserve.SharePacked(has_workspace);
    // Memory that depends on shapes is taken here, not by the first call.
    if (status == xnn_status_success) status = SetUp(runtime.get(), places);
    if (reserve.was_needed()) {
      runtime.reset();
      status = xnn_status_out_of_memory;
    }
    CheckXnnpack(status, kName);
    bytes_ = reserve.taken_bytes();
    runtime_ = std::move(runtime);
  }

  int64_t bytes() const override { return bytes_; }
  int64_t shared_bytes() const override { return shared_bytes_; }

  void Run(const Places& places) override {
    if (!is_set_up_ || !LieThere(places)) CheckXnnpack(SetUp(runtime_.get(), places), kName);
    CheckXnnpack(xnn_invoke_runtime(runtime_.get()), kName);
  }

 private:
  int ValueOf(size_t id) const {
    const size_t inputs = part_.inputs.size();
    return id < inputs ? part_.inputs[id] : part_.outputs[id - inputs];
  }
  bool LieThere(const Places& places) const {
    for (size_t i = 0; i < externals_.size(); ++i) {
      if (externals_[i].data != places.at(ValueOf(i))) return false;
    }
    return true;
  }
  xnn_status SetUp(xnn_runtime_t runtime, const Places& places) {
    is_set_up_ = false;  // until it has succeeded
    for (size_t i = 0; i < externals_.size(); ++i)
      externals_[i] = {static_cast<uint32_t>(i), places.at(ValueOf(i))};
    const xnn_status status = xnn_setup_runtime(runtime, externals_.size(), externals_.data());
    is_set_up_ = status == xnn_status_success;
    return status;
  }

  const GraphPart part_;
  std::vector<xnn_external_value> externals_;
  bool is_set_up_ = false;
  Runtime runtime_;
  int64_t bytes_ = 0, shared_bytes_ = 0;
};

// A block on XNNPACK's account, whose first address is a multiple of kAlignment. Throws OutOfMemoryError.
class Block {
 public:
  explicit Block(int64_t bytes) : block_(static_cast<size_t>(bytes + kAlignment)) {
    if (block_.data() == nullptr) CheckXnnpack(xnn_status_out_of_memory, kName);
  }
  std::byte* data() const {
    const auto address = reinterpret_cast<uintptr_t>(block_.data());
    return static_cast<std::byte*>(block_.data()) +
           (kAlignment - address % kAlignment) % kAlignment;
  }
  int64_t bytes() const { return block_.bytes(); }

 private:
  const XnnpackBlock block_;
};

class DynamicStage final : public Stage {
 public:
  DynamicStage(const FrozenOp& op, int input, int output, int64_t batch)
      : input_(input),
        output_(output),
        batch_(batch),
        sums_(Int8WeightSums(op.weight_shape[0], op.weight_shape[1]) *
              static_cast<int64_t>(sizeof(int32_t))),
        scratch_(static_cast<int64_t>(Int8ScratchBytes(op.weight_shape[1]))) {
    auto* const sums = reinterpret_cast<int32_t*>(sums_.data());
    dense_ = {op.weight_shape[0],
              op.weight_shape[1],
              op.quantised_weight.data(),
              op.weight_scales.data(),
              op.bias.data(),
              op.relu,
              sums};
    SumInt8Weights(dense_.weight, dense_.units, dense_.inputs, sums);
  }

  int64_t bytes() const override { return sums_.bytes() + scratch_.bytes(); }
  void Run(const Places& places) override {
    RunInt8Dense(dense_, SelectedInt8Loops(), batch_, places.at(input_), places.at(output_),
                 scratch_.data());
  }

 private:
  const int input_, output_;
  const int64_t batch_;
  const Block sums_, scratch_;
  Int8Dense dense_;
};

class GraphRuntime final : public FrozenRuntime {
 public:
  GraphRuntime(const FrozenGraph& graph, int64_t batch, const float* x, float* z)
      : last_(static_cast<int>(graph.ops.size()) - 1) {
    const TakingXnnpackMemory taking;
    const std::vector<GraphPart> parts = PartsOf(graph);
    PlaceValues(graph, parts, batch);
    SetEnds(x, z);
    for (const GraphPart& part : parts) {
      const FrozenOp& first = graph.ops[static_cast<size_t>(part.begin)];
      if (first.has_dynamic_range) {
        stages_.push_back(std::make_unique<DynamicStage>(first, part.inputs[0], part.begin, batch));
      } else {
        stages_.push_back(std::make_unique<SubgraphStage>(graph, part, batch, places_));
      }
      bytes_ += stages_.back()->bytes();
      shared_bytes_ += stages_.back()->shared_bytes();
    }
  }

  int64_t bytes() const override { return bytes_; }
  int64_t shared_bytes() const override { return shared_bytes_; }

  void Run(const float* x, float* z) override {
    SetEnds(x, z);
    for (const std::unique_ptr<Stage>& stage : stages_) stage->Run(places_);
  }

 private:
  static std::vector<GraphPart> PartsOf(const FrozenGraph& graph) {
    std::vector<GraphPart> parts;
    const int count = static_cast<int>(graph.ops.size());
    for (int begin = 0; begin < count;) {
      int end = begin + 1;
      if (!graph.ops[static_cast<size_t>(begin)].has_dynamic_range) {
        while (end < count && !graph.ops[static_cast<size_t>(end)].has_dynamic_range) ++end;
      }
      parts.push_back(PartOf(graph, begin, end));
      begin = end;
    }
    return parts;
  }

  void SetEnds(const float* x, float* z) {
    places_[FrozenOp::kGraphInput] = const_cast<float*>(x);
    places_[last_] = z;
  }

  // Values that one part makes and others take.
  void PlaceValues(const FrozenGraph& graph, const std::vector<GraphPart>& parts, int64_t batch) {
    std::vector<int> values;
    std::vector<LifetimeBuffer> buffers;
    for (size_t at = 0; at < parts.size(); ++at) {
      for (const int value : parts[at].outputs) {
        if (value == last_) continue;
        size_t until = at;
        for (size_t later = at + 1; later < parts.size(); ++later) {
          const std::vector<int>& inputs = parts[later].inputs;
          if (std::find(inputs.begin(), inputs.end(), value) != inputs.end()) until = later;
        }
        values.push_back(value);
        buffers.push_back(
            {static_cast<int64_t>(at), static_cast<int64_t>(until) + 1,
             batch * graph.ShapeOf(value).NumElements() * static_cast<int64_t>(sizeof(float))});
      }
    }
    if (values.empty()) return;
    const Placement placement = PlanGreedy(buffers, kAlignment);
    handed_ = std::make_unique<Block>(placement.peak + static_cast<int64_t>(kReadableTailBytes));
    bytes_ += handed_->bytes();
    for (size_t i = 0; i < values.size(); ++i)
      places_[values[i]] = reinterpret_cast<float*>(handed_->data() + placement.offsets[i]);
  }

  const int last_;
  Places places_;
  std::unique_ptr<Block> handed_;
  std::vector<std::unique_ptr<Stage>> stages_;
  int64_t bytes_ = 0, shared_bytes_ = 0;
};

}  // namespace

std::unique_ptr<FrozenRuntime> MakeGraphRuntime(const FrozenGraph& graph, int64_t batch,
                                                const float* x, float* z) {
  return std::make_unique<GraphRuntime>(graph, batch, x, z);
}

}  // namespace tidepool::cpu
