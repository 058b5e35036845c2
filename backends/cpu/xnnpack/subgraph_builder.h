// A frozen graph, or a part of it, as an XNNPACK subgraph. Written to the functions that the interfaces of 2022 and
// of 2024 have in common.
//
// What the interface of 2022 lacks, and what stands for it:
//   - dense layers in 16-bit floats: they are convolutions of 1x1;
//   - 8 bits of ELU and the like with any scale, averages of windows in 8 bits: they are f32, and
//   are refused in 16-bit floats;
//   - swish: a sigmoid and a product.
#ifndef TIDEPOOL_BACKENDS_CPU_XNNPACK_SUBGRAPH_BUILDER_H_
#define TIDEPOOL_BACKENDS_CPU_XNNPACK_SUBGRAPH_BUILDER_H_

#include <xnnpack.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tidepool/ndarray/frozen/frozen_graph.h"

namespace tidepool::cpu {

// Operators [begin, end) of a graph and the values, operators by number or kGraphInput, that they take from before and that
// are taken behind them or are the graph's output. External ids of the subgraph are the places in `inputs` and, behind them,
// in `outputs`. All of them are f32.
struct GraphPart {
  int begin = 0, end = 0;
  std::vector<int> inputs, outputs;
};
GraphPart PartOf(const FrozenGraph& graph, int begin, int end);

// Why no subgraph can have the operator; empty: it can.
std::string WhyNoSubgraphHas(const FrozenOp& op, bool is_half);

class SubgraphBuilder {
 public:
  // Throws kInternal and OutOfMemoryError naming the operator. The subgraph refers to the graph's
  // constants, to the part and to this.
  SubgraphBuilder(const FrozenGraph& graph, const GraphPart& part, int64_t batch);

  xnn_subgraph_t subgraph() const { return subgraph_.get(); }
  // Whether the runtime has memory for activations, of which it asks for last.
  bool has_internal_values() const { return has_internal_values_; }
  // For xnn_create_runtime_v2().
  uint32_t runtime_flags() const { return graph_.is_half ? XNN_FLAG_FORCE_FP16_INFERENCE : 0; }

 private:
  struct Delete {
    void operator()(xnn_subgraph_t subgraph) const { xnn_delete_subgraph(subgraph); }
  };
  using Dims = std::vector<size_t>;

  Dims DimsOf(const Shape& shape) const;
  uint32_t Define(const Dims& dims, const Quantisation& q, uint32_t external = XNN_INVALID_VALUE_ID,
                  uint32_t flags = 0);
  // The place among the outputs, as an external id, or XNN_INVALID_VALUE_ID.
  uint32_t OutputIdOf(int value) const;
  // The id of the value (an operator, or the graph's input) as numbers of `q`, converted where it
  // has others.
  uint32_t Take(int value, const Quantisation& q);
  std::pair<uint32_t, uint32_t> DefineConstants(const FrozenOp& op, const Dims& weight);
  void DefineOp(int number);
  xnn_status DefineNode(const FrozenOp& op, const std::vector<uint32_t>& inputs, uint32_t output);
  xnn_status DefineDense(const FrozenOp& op, uint32_t input, uint32_t output);
  xnn_status DefineConvolution(const FrozenOp& op, uint32_t input, uint32_t output);
  xnn_status DefineTransposed(const FrozenOp& op, uint32_t input, uint32_t output);
  xnn_status DefinePairs(const FrozenOp& op, const std::vector<uint32_t>& inputs, uint32_t output);
  xnn_status DefineFunction(const FrozenOp& op, uint32_t input, uint32_t output);
  xnn_status DefineReshape(const Dims& dims, uint32_t input, uint32_t output);

  struct Value {
    uint32_t id = XNN_INVALID_VALUE_ID;
    uint32_t as_float = XNN_INVALID_VALUE_ID, as_quantised = XNN_INVALID_VALUE_ID;
    Quantisation quantised;  // what as_quantised is of
  };

  const FrozenGraph& graph_;
  const GraphPart& part_;
  const size_t batch_;
  bool has_internal_values_ = false;
  std::unique_ptr<std::remove_pointer_t<xnn_subgraph_t>, Delete> subgraph_;
  std::map<int, Value> values_;  // by operator, or the graph's input
  std::vector<std::vector<float>> bias_scales_;
  std::vector<FrozenValues<float>> weights_;  // of 16-bit floats, as packing takes them
};

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_XNNPACK_SUBGRAPH_BUILDER_H_
