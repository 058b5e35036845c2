// Frozen networks at the edges of memory and of their lives.
#include <malloc.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/inference/testing/frozen_testing.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;
using FrozenEdgesTest = FrozenTest;

// Of the heap of malloc, which keeps what it once had.
TEST_F(FrozenEdgesTest, NothingStaysOfNetworksThatHaveGone) {
  const Network network({784}, {AnyLayer(std::make_unique<Dense>(500))}, 3);
  const auto make = [&] { return std::make_unique<FrozenNetwork>(network); };
  const auto heap = [] { return mallinfo2().arena + mallinfo2().hblkhd; };
  const auto copy = static_cast<size_t>(make()->stats().weight_bytes);
  const size_t before = heap();
  std::vector<std::unique_ptr<FrozenNetwork>> made;
  for (int i = 0; i < 10; ++i) made.push_back(make());
  made.clear();
  EXPECT_LT(heap(), before + copy);  // not one of ten
}

TEST_F(FrozenEdgesTest, FloatsOfWeightsInEightBitsHaveNoMemory) {
  const Network network({784}, {AnyLayer(std::make_unique<Dense>(500))}, 3);
  FrozenOptions options{.type = FrozenType::kInt8};
  options.calibration = RandomUniform({4, 784}, -1, 1, 1, 1, Place::Heap());
  const FrozenNetwork frozen(network, options);
  const FrozenOp& dense = frozen.graph().ops[0];
  EXPECT_EQ(dense.quantised_weight.size(), 784u * 500);
  EXPECT_EQ(dense.weight.capacity() + dense.bias.capacity(), 0u);
}

// Examples of a few floats each are less than what may be read behind a piece.
TEST_F(FrozenEdgesTest, InputsMayEndWithTheirPageWhateverThePieces) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const pages =
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<std::byte*>(pages) + page, page, PROT_NONE), 0);
  Pool2dAttributes pooling;
  pooling.kernel_height = 2, pooling.kernel_width = 1;
  const Network pool({2, 1, 1}, {AnyLayer(std::make_unique<MaxPool2D>(pooling))});
  const Network dense({3}, {AnyLayer(std::make_unique<Dense>(2))});
  for (const Network* network : {&pool, &dense}) {
    const FrozenNetwork frozen(*network, {.batches = {1}});
    for (const int64_t batch : {1, 2, 3, 5}) {
      std::vector<int64_t> dims = {batch};
      for (const int64_t size : network->input_shape().span()) dims.push_back(size);
      const NDArray drawn = RandomUniform(Shape(dims), -1, 1, 7, 1, Place::Heap());
      const auto bytes = static_cast<size_t>(drawn.NumElements()) * sizeof(float);
      auto* const at = static_cast<std::byte*>(pages) + page - bytes;
      std::copy_n(reinterpret_cast<const std::byte*>(drawn.data<float>()), bytes, at);
      const NDArray x(BufferHandle(NewImportedBuffer(
                          at, bytes, [](void*) {}, nullptr)),
                      Shape(dims), DType::kFloat32);
      EXPECT_EQ(frozen.Run(x).ToVector<float>(), frozen.Run(drawn).ToVector<float>()) << batch;
    }
  }
  munmap(pages, 2 * page);
}

TEST_F(FrozenEdgesTest, WhatWasMovedFromSaysSo) {
  const Network network({3}, {AnyLayer(std::make_unique<Dense>(2))});
  FrozenNetwork frozen(network), other = std::move(frozen);
  const NDArray x = Ones({1, 3}, DType::kFloat32, Place::Heap());
  const std::function<void()> calls[] = {[&] { frozen.Run(x); },        [&] { frozen.Prepare(2); },
                                         [&] { frozen.Trim(); },        [&] { frozen.stats(); },
                                         [&] { frozen.input_shape(); }, [&] { frozen.graph(); }};
  for (const auto& call : calls) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_STREQ(error.what(), "frozen network: it was moved from");
    }
  }
  frozen = std::move(other);
  EXPECT_EQ(frozen.Run(x).shape(), Shape({1, 2}));
}

TEST_F(FrozenEdgesTest, GraphsByHandAreChecked) {
  Network network(ResidualConfig({8, 8, 1}, 4, {4}));
  const FrozenNetwork frozen(network);
  const auto refused = [&](const std::function<void(FrozenGraph&)>& change) {
    FrozenGraph graph = frozen.graph();
    change(graph);
    try {
      FrozenNetwork{graph};
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(refused([](FrozenGraph& graph) { graph.ops[3].inputs.pop_back(); }),
              HasSubstr("takes 1 inputs, expected two or more"));
  EXPECT_THAT(refused([](FrozenGraph& graph) { graph.ops[3].inputs[1] = 3; }),
              HasSubstr("takes operator 3, expected -1 to 2"));
  EXPECT_THAT(refused([](FrozenGraph& graph) { graph.ops[3].inputs[1] = -1; }),
              HasSubstr("takes [8, 8, 4], expected [8, 8, 1]"));
  EXPECT_THAT(refused([](FrozenGraph& graph) {
                graph.ops[1].inputs = {0, 0};
              }),
              HasSubstr("takes 2 inputs, expected one"));
}

}  // namespace
}  // namespace tidepool::nn
