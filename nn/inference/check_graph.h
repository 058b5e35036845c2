// Whether a frozen graph is one: made by hand, or by layers of one's own.
#ifndef TIDEPOOL_NN_INFERENCE_CHECK_GRAPH_H_
#define TIDEPOOL_NN_INFERENCE_CHECK_GRAPH_H_

#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/frozen/frozen_graph.h"

namespace tidepool::nn {

// What engines rely on: inputs, shapes, and constants as many as those want. Throws
// kInvalidArgument naming the operator, what it has and what was expected, and kUnimplemented for
// what `engine` cannot run.
void CheckGraph(const FrozenGraph& graph, const FrozenEngine& engine);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_CHECK_GRAPH_H_
