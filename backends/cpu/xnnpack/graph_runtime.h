// The runtime of a frozen graph: stages, one behind the other, each a part of the graph as an XNNPACK subgraph or a dense layer of
// dynamic ranges by our own loops (int8/int8_dense.h), which XNNPACK of 2022 has not. A graph without such layers is one stage.
//
// What the interface of 2022 makes of it: the batch is fixed when a runtime is made; every runtime
// packs the weights for itself; memory that a runtime fails to get for its activations is reported
// as success without a runtime. What is handed from stage to stage lies in one block, planned by the stages in which it is needed.
#ifndef TIDEPOOL_BACKENDS_CPU_XNNPACK_GRAPH_RUNTIME_H_
#define TIDEPOOL_BACKENDS_CPU_XNNPACK_GRAPH_RUNTIME_H_

#include <cstdint>
#include <memory>

#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"

namespace tidepool::cpu {

// As FrozenEngine::Make.
std::unique_ptr<FrozenRuntime> MakeGraphRuntime(const FrozenGraph& graph, int64_t batch,
                                                const float* x, float* z);

}  // namespace tidepool::cpu

#endif  // TIDEPOOL_BACKENDS_CPU_XNNPACK_GRAPH_RUNTIME_H_
