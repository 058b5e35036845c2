// The engine's runtimes under refused memory; what they compute: nn/inference/frozen_network_test.cc.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"

namespace tidepool::cpu {
namespace {

FrozenGraph GraphOfOneOfEach() {
  FrozenGraph graph;
  graph.input_shape = {8, 8, 3};
  FrozenOp conv{.kind = FrozenOp::Kind::kConv2d, .name = "conv", .relu = true};
  conv.weight_shape = {5, 3, 3, 3};
  conv.weight.assign(135, 0.5f);
  conv.bias.assign(5, 1.0f);
  conv.input_shape = graph.input_shape;
  conv.output_shape = {6, 6, 5};
  FrozenOp pool{.kind = FrozenOp::Kind::kMaxPool2d, .name = "pool"};
  pool.input_shape = conv.output_shape;
  pool.output_shape = {3, 3, 5};
  FrozenOp dense{.kind = FrozenOp::Kind::kDense, .name = "dense"};
  dense.weight_shape = {4, 45};
  dense.weight.assign(180, 1.0f);
  dense.bias.assign(4, 0.25f);
  dense.input_shape = pool.output_shape;
  dense.output_shape = {4};
  graph.ops = {conv, pool, dense};
  return graph;
}

int64_t Used() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kExternal); }

TEST(SubgraphEngine, EveryRefusedRequestForMemoryIsAnErrorThatLeavesNothing) {
  if (!XnnpackIsUsable()) GTEST_SKIP() << XnnpackDescription();
  const FrozenGraph graph = GraphOfOneOfEach();
  std::vector<float> x(2 * 192 + 64, 1.0f), z(8);
  const int64_t before = Used();
  int64_t requests = 0;
  std::unique_ptr<FrozenRuntime> runtime;
  for (; runtime == nullptr && requests < 1000; ++requests) {
    RefuseXnnpackMemoryForTesting(requests);
    try {
      runtime = LinkedFrozenEngine()->Make(graph, 2, x.data(), z.data());
    } catch (const OutOfMemoryError&) {
      EXPECT_EQ(Used(), before) << "after " << requests << " requests";
    }
  }
  // As many at least as a subgraph, a runtime, two packed weights and the planner take.
  EXPECT_GT(requests, 10);
  EXPECT_EQ(runtime->bytes(), Used() - before);
  RefuseXnnpackMemoryForTesting(0);
  runtime->Run(x.data(), z.data());  // takes none
  RefuseXnnpackMemoryForTesting(-1);
  for (const float value : z) EXPECT_EQ(value, 45 * 14.5f + 0.25f);
  runtime.reset();
  EXPECT_EQ(Used(), before);
}

TEST(SubgraphEngine, BatchesBeyondAnyMemoryAreRefusedBeforeTheyOverflow) {
  if (!XnnpackIsUsable()) GTEST_SKIP() << XnnpackDescription();
  const FrozenGraph graph = GraphOfOneOfEach();
  std::vector<float> x(2 * 192 + 64, 1.0f), z(8);
  EXPECT_THROW(LinkedFrozenEngine()->Make(graph, int64_t{1} << 40, x.data(), z.data()), Error);
}

}  // namespace
}  // namespace tidepool::cpu
