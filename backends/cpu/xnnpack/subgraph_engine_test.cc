// The engine's runtimes under refused memory; what they compute: nn/inference/frozen_network_test.cc.
#include <algorithm>
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

// A runtime for `batch`. Before it each request for memory is refused in turn: how many tries that took, none of which leaves anything.
std::unique_ptr<FrozenRuntime> MakeUnderRefusals(const FrozenGraph& graph, int64_t batch,
                                                 std::vector<float>& x, std::vector<float>& z,
                                                 int64_t* tries) {
  const int64_t before = Used();
  std::unique_ptr<FrozenRuntime> runtime;
  for (*tries = 0; runtime == nullptr && *tries < 1000; ++*tries) {
    RefuseXnnpackMemoryForTesting(*tries);
    try {
      runtime = LinkedFrozenEngine()->Make(graph, batch, x.data(), z.data());
    } catch (const OutOfMemoryError&) {
      EXPECT_EQ(Used(), before) << "after " << *tries << " requests";
    }
  }
  return runtime;
}

TEST(SubgraphEngine, EveryRefusedRequestForMemoryIsAnErrorThatLeavesNothing) {
  if (!XnnpackIsUsable()) GTEST_SKIP() << XnnpackDescription();
  const FrozenGraph graph = GraphOfOneOfEach();
  std::vector<float> x(2 * 192 + 64, 1.0f), z(8);
  const int64_t before = Used();
  int64_t tries = 0;
  std::unique_ptr<FrozenRuntime> runtime = MakeUnderRefusals(graph, 2, x, z, &tries);
  // As many at least as a subgraph, a runtime, two packed weights and the planner take.
  EXPECT_GT(tries, 10);
  EXPECT_EQ(runtime->bytes(), Used() - before);
  RefuseXnnpackMemoryForTesting(0);
  runtime->Run(x.data(), z.data());  // takes none
  RefuseXnnpackMemoryForTesting(-1);
  for (const float value : z) EXPECT_EQ(value, 45 * 14.5f + 0.25f);
  runtime.reset();
  EXPECT_EQ(Used(), before);
}

// With a layer whose weights are large enough for pages of their own.
FrozenGraph LargeGraph() {
  FrozenGraph graph = GraphOfOneOfEach();
  FrozenOp wide{.kind = FrozenOp::Kind::kDense, .name = "wide", .relu = true};
  wide.weight_shape = {500, 45};
  for (int i = 0; i < 22500; ++i) wide.weight.push_back(static_cast<float>(i % 7) - 3);
  wide.bias.assign(500, 0.5f);
  wide.input_shape = graph.ops[1].output_shape;
  wide.output_shape = {500};
  graph.ops[2].weight_shape = {4, 500};
  graph.ops[2].weight.assign(2000, 1.0f);
  graph.ops[2].input_shape = {500};
  graph.ops.insert(graph.ops.begin() + 2, wide);
  return graph;
}

TEST(SubgraphEngine, RuntimesOfEqualWeightsHaveThemOnce) {
  if (!XnnpackIsUsable()) GTEST_SKIP() << XnnpackDescription();
  constexpr int64_t kBatch = 300;  // whose activations are large blocks, too
  std::vector<float> x(kBatch * 192 + 64, 1.0f), one(4), other(kBatch * 4);
  const int64_t before = Used();
  auto first = LinkedFrozenEngine()->Make(LargeGraph(), 1, x.data(), one.data());
  ASSERT_GT(first->shared_bytes(), 22500 * 4);
  EXPECT_EQ(Used() - before, first->bytes() + first->shared_bytes());
  // Another graph, made from other arrays, for another batch.
  auto second = LinkedFrozenEngine()->Make(LargeGraph(), kBatch, x.data(), other.data());
  EXPECT_EQ(second->shared_bytes(), first->shared_bytes());
  EXPECT_GT(second->bytes(), 500'000);
  EXPECT_EQ(Used() - before, first->bytes() + second->bytes() + first->shared_bytes());
  first->Run(x.data(), one.data());
  second->Run(x.data(), other.data());
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(one[static_cast<size_t>(i)], other[static_cast<size_t>(1196 + i)]);
  first.reset();
  std::fill(other.begin(), other.end(), 0.0f);
  second->Run(x.data(), other.data());
  for (int i = 0; i < 4; ++i)
    EXPECT_EQ(one[static_cast<size_t>(i)], other[static_cast<size_t>(1196 + i)]);
  // One weight is another one: nothing in common.
  FrozenGraph changed = LargeGraph();
  changed.ops[2].weight[22499] += 1;
  auto third = LinkedFrozenEngine()->Make(changed, kBatch, x.data(), other.data());
  EXPECT_EQ(Used() - before,
            second->bytes() + third->bytes() + second->shared_bytes() + third->shared_bytes());
  third.reset();
  EXPECT_EQ(Used() - before, second->bytes() + second->shared_bytes());
  second.reset();
  EXPECT_EQ(Used(), before);
}

TEST(SubgraphEngine, LargeBlocksAreRefusedAsSmallOnes) {
  if (!XnnpackIsUsable()) GTEST_SKIP() << XnnpackDescription();
  const FrozenGraph graph = LargeGraph();
  std::vector<float> x(192 + 64, 1.0f), z(4);
  int64_t tries = 0;
  std::unique_ptr<FrozenRuntime> runtime = MakeUnderRefusals(graph, 1, x, z, &tries);
  RefuseXnnpackMemoryForTesting(-1);
  EXPECT_NE(runtime, nullptr);
}

// The last of three layers, and another of its kind before it, with dynamic ranges: stages with memory of their own between them.
FrozenGraph DynamicGraph() {
  FrozenGraph graph = LargeGraph();
  for (size_t i = 2; i < 4; ++i) {
    FrozenOp& op = graph.ops[i];
    op.has_dynamic_range = true;
    for (const float weight : op.weight) op.quantised_weight.push_back(static_cast<int8_t>(weight));
    op.weight.clear();
    op.weight_scales.assign(op.bias.size(), 1.0f);
  }
  return graph;
}

TEST(SubgraphEngine, StagesOfDynamicRangesAreCountedAndRefusedMemoryLeavesNothing) {
  if (!XnnpackIsUsable()) GTEST_SKIP() << XnnpackDescription();
  const FrozenGraph exact = LargeGraph(), graph = DynamicGraph();
  std::vector<float> x(2 * 192 + 64, 1.0f), z(8), expected(8);
  LinkedFrozenEngine()->Make(exact, 2, x.data(), expected.data())->Run(x.data(), expected.data());
  const int64_t before = Used();
  int64_t tries = 0;
  std::unique_ptr<FrozenRuntime> runtime = MakeUnderRefusals(graph, 2, x, z, &tries);
  EXPECT_GT(tries, 10);
  EXPECT_EQ(runtime->bytes() + runtime->shared_bytes(), Used() - before);
  RefuseXnnpackMemoryForTesting(0);
  runtime->Run(x.data(), z.data());  // takes none
  std::vector<float> moved(2 * 192 + 64, 1.0f), there(8);
  runtime->Run(moved.data(), there.data());
  RefuseXnnpackMemoryForTesting(-1);
  // Inputs of a layer here are all alike, or near it.
  for (size_t i = 0; i < 8; ++i) EXPECT_NEAR(z[i], expected[i], 5e-3 * expected[i]) << i;
  EXPECT_EQ(there, z);
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
