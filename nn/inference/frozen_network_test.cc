// A frozen network computes what its network computes, whoever calls, and says what it cannot do.
#include "tidepool/nn/inference/frozen_network.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/inference/testing/frozen_testing.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;

using Layers = std::vector<AnyLayer>;

std::string ErrorOf(const std::function<void()>& call, absl::StatusCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

using FrozenNetworkTest = FrozenTest;

Network LeNet(int64_t classes = 10) { return Network({28, 28, 1}, LeNetLayers(classes), 3); }

// Biases are zeros at first, which would hide that one is lost.
void RandomiseParameters(Network& network, uint64_t seed) {
  for (const NamedParameter& parameter : network.named_parameters()) {
    NDArray value = parameter.value;
    if (value.rank() == 1)
      CopyInto(RandomUniform(value.shape(), -0.5, 0.5, seed, 7, Place::Heap()), value);
  }
}

// Layers as they fit, on an input of up to 14 x 14 x 12, or rows.
Network RandomNetwork(std::mt19937& random) {
  const auto pick = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  const auto activation = [&] { return pick(0, 1) ? Activation::kRelu : Activation::kIdentity; };
  const bool is_image = pick(0, 4) > 0;
  const Shape input = is_image ? Shape{pick(3, 14), pick(3, 14), pick(1, 12)} : Shape{pick(1, 70)};
  Shape shape = input;
  Layers layers;
  for (int64_t left = is_image ? pick(0, 4) : 0; left > 0; --left) {
    AnyLayer layer;
    if (pick(0, 3) == 0) {
      Pool2dAttributes a;
      a.kernel_height = pick(1, 3), a.kernel_width = pick(2, 3);
      a.stride_height = pick(1, 3), a.stride_width = pick(1, 4);
      a.pad_top = pick(0, a.kernel_height - 1), a.pad_bottom = pick(0, a.kernel_height - 1);
      a.pad_left = pick(0, a.kernel_width - 1), a.pad_right = pick(0, a.kernel_width - 1);
      layer = std::make_unique<MaxPool2D>(a);
    } else {
      Conv2dAttributes a;
      a.stride_height = pick(1, 3), a.stride_width = pick(1, 2);
      a.pad_top = pick(0, 2), a.pad_bottom = pick(0, 2), a.pad_left = pick(0, 3),
      a.pad_right = pick(0, 1);
      a.dilation_height = pick(1, 2), a.dilation_width = pick(1, 3);
      int64_t filters = pick(1, 20);
      if (const int64_t kind = pick(0, 3); kind == 0) {  // depthwise, at times with a multiplier
        a.groups = shape[2];
        filters = shape[2] * pick(1, 2);
      } else if (kind == 1 && shape[2] % 2 == 0) {
        a.groups = 2;
        filters = 2 * pick(1, 9);
      }
      layer = std::make_unique<Conv2D>(filters, pick(1, 5), pick(1, 3), activation(), a);
    }
    try {
      const Shape output = layer->OutputShape(shape);
      if (output.NumElements() == 0) continue;
      shape = output;
    } catch (const Error&) {
      continue;  // the image is too small for it
    }
    layers.push_back(std::move(layer));
  }
  const int64_t dense = pick(layers.empty() ? 1 : 0, 2);
  for (int64_t i = 0; i < dense; ++i)
    layers.push_back(std::make_unique<Dense>(pick(1, 80), activation()));
  Network network(input, std::move(layers), random());
  RandomiseParameters(network, random());
  return network;
}

void ExpectNear(const NDArray& found, const NDArray& expected, double tolerance,
                const std::string& what) {
  ASSERT_EQ(found.shape(), expected.shape()) << what;
  EXPECT_LE(RelativeError(found.ToVector<float>(), expected.ToVector<float>()), tolerance) << what;
}

TEST_F(FrozenNetworkTest, RandomNetworksComputeWhatForwardDoes) {
  std::mt19937 random(5);
  int refused = 0;
  for (int i = 0; i < 150; ++i) {
    Network network = RandomNetwork(random);
    FrozenOptions options;
    options.batches.clear();
    for (int sizes = 1 + static_cast<int>(random() % 3); sizes > 0; --sizes) {
      options.batches.push_back(1 + static_cast<int64_t>(random() % 9));
    }
    std::unique_ptr<FrozenNetwork> frozen;
    try {
      frozen = std::make_unique<FrozenNetwork>(network, options);
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("pooling of 1x1"));
      ++refused;
      continue;
    }
    for (int call = 0; call < 3; ++call) {
      const NDArray x =
          RandomBatch(1 + static_cast<int64_t>(random() % 20), network.input_shape(), random());
      ExpectNear(frozen->Run(x), network.Forward(x), 1e-5, network.Describe());
    }
  }
  EXPECT_LT(refused, 20);
}

TEST_F(FrozenNetworkTest, SoftmaxIsAppended) {
  Network network = LeNet();
  const FrozenNetwork frozen(network, {.softmax = true});
  const NDArray x = RandomBatch(5, network.input_shape(), 1);
  ExpectNear(frozen.Run(x), Softmax(network.Forward(x)), 1e-5, "softmax");
  const Network image({6, 6, 1}, [] {
    Layers layers;
    layers.push_back(std::make_unique<Conv2D>(2, 3, 3));
    return layers;
  }());
  EXPECT_THAT(
      ErrorOf([&] { FrozenNetwork(image, {.softmax = true}); }, absl::StatusCode::kInvalidArgument),
      AllOf(HasSubstr("softmax"), HasSubstr("[4, 4, 2]")));
}

TEST_F(FrozenNetworkTest, ViewsAndForeignMemoryAreInputs) {
  Network network({5, 7, 3}, [] {
    Layers layers;
    layers.push_back(std::make_unique<Conv2D>(4, 3, 3, Activation::kRelu));
    layers.push_back(std::make_unique<Dense>(6));
    return layers;
  }());
  const FrozenNetwork frozen(network, {.batches = {2}});
  const NDArray x = RandomBatch(9, network.input_shape(), 1);
  const NDArray rows = x.Slice(0, 3, 7);
  ExpectNear(frozen.Run(rows), network.Forward(rows), 1e-5, "rows");
  const NDArray gaps = x.Slice(0, 0, 8, 2);
  ExpectNear(frozen.Run(gaps), network.Forward(gaps), 1e-5, "every other row");
  // Behind these nothing may be read.
  std::vector<float> values = x.Slice(0, 0, 4).ToVector<float>();
  const NDArray foreign(BufferHandle(NewImportedBuffer(
                            values.data(), values.size() * 4, [](void*) {}, nullptr)),
                        {4, 5, 7, 3}, DType::kFloat32);
  ExpectNear(frozen.Run(foreign), network.Forward(x.Slice(0, 0, 4)), 1e-5, "foreign");
  // Into a part of an array.
  NDArray all = Full({6, 6}, 7.0f, DType::kFloat32, Place::Heap());
  NDArray part = all.Slice(0, 1, 5);
  frozen.RunInto(rows, part);
  ExpectNear(part, network.Forward(rows), 1e-5, "part");
  EXPECT_EQ(all.At<float>({0, 5}), 7.0f);
  EXPECT_EQ(all.At<float>({5, 0}), 7.0f);
}

class Doubling final : public Layer {
 public:
  std::string Describe() const override { return "doubling of mine"; }
  std::string Kind() const override { return "doubling"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext&, const NDArray& input) const override { return input; }
};

TEST_F(FrozenNetworkTest, WhatItCannotDoIsRefusedByName) {
  const auto network_of = [](AnyLayer layer) {
    Layers layers;
    layers.push_back(std::make_unique<Conv2D>(2, 3, 3));
    layers.push_back(std::move(layer));
    return Network({8, 8, 1}, std::move(layers));
  };
  EXPECT_THAT(ErrorOf([&] { FrozenNetwork(network_of(std::make_unique<Doubling>())); },
                      absl::StatusCode::kUnimplemented),
              AllOf(HasSubstr("layer 1 [doubling of mine]"), HasSubstr("kind [doubling]")));
  Pool2dAttributes one;
  one.kernel_height = one.kernel_width = 1;
  EXPECT_THAT(ErrorOf([&] { FrozenNetwork(network_of(std::make_unique<MaxPool2D>(one))); },
                      absl::StatusCode::kUnimplemented),
              AllOf(HasSubstr("layer 1 [max_pool2d 1x1"), HasSubstr("no pooling of 1x1")));
  Network lenet = LeNet();
  for (const auto& [options, message] : std::vector<std::pair<FrozenOptions, std::string>>{
           {{.batches = {}}, "batches is empty"},
           {{.batches = {4, 0}}, "a batch of 0, expected at least 1"},
           {{.threads = 0}, "threads is 0, expected 1 to 1024"},
           {{.threads = 1025}, "threads is 1025"},
           {{.batches = {int64_t{1} << 50}}, ""}}) {
    EXPECT_THAT(ErrorOf([&, &options = options] { FrozenNetwork(lenet, options); },
                        absl::StatusCode::kInvalidArgument),
                HasSubstr(message));
  }
}

TEST_F(FrozenNetworkTest, InputsAndWeightsThatDoNotFitAreRefused) {
  Network network = LeNet();
  FrozenNetwork frozen(network);
  const auto refused = [&](const std::function<void()>& call) {
    return ErrorOf(call, absl::StatusCode::kInvalidArgument);
  };
  EXPECT_THAT(refused([&] {
                frozen.Run(RandomBatch(2, {28, 27, 1}, 1));
              }),
              AllOf(HasSubstr("[2, 28, 27, 1]"), HasSubstr("[batch] + [28, 28, 1]")));
  EXPECT_THAT(refused([&] {
                frozen.Run(Zeros({0, 28, 28, 1}));
              }),
              HasSubstr("at least one example"));
  EXPECT_THAT(refused([&] {
                frozen.Run(Zeros({2, 28, 28, 1}, DType::kFloat64));
              }),
              HasSubstr("f64"));
  NDArray x = RandomBatch(3, network.input_shape(), 1);
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    x.mutable_data<float>()[2 * 784 + 783] = bad;
    EXPECT_THAT(refused([&] { frozen.Run(x); }),
                HasSubstr("at element 783 of example 2, expected finite"));
  }
  x = RandomBatch(3, network.input_shape(), 1);
  NDArray wrong = Zeros({3, 9});
  EXPECT_THAT(refused([&] { frozen.RunInto(x, wrong); }),
              AllOf(HasSubstr("[3, 9]"), HasSubstr("[3, 10]")));
  NDArray gaps = Zeros({10, 3}).Transpose();
  EXPECT_THAT(refused([&] { frozen.RunInto(x, gaps); }), HasSubstr("with gaps"));
  EXPECT_THAT(refused([&] { frozen.Prepare(0); }), HasSubstr("a batch of 0"));
  EXPECT_THAT(refused([&] { frozen.Prepare(1, 0); }), HasSubstr("prepare 0 runtimes"));
  network.named_parameters()[2].value.Slice(0, 1, 2) =
      Scalar(std::numeric_limits<float>::infinity());
  EXPECT_THAT(refused([&] { FrozenNetwork{network}; }),
              AllOf(HasSubstr("[2.conv2d.filter]"), HasSubstr("500")));
  EXPECT_EQ(frozen.Run(x).dim(0), 3);
}

TEST_F(FrozenNetworkTest, GraphsThatDoNotFitTogetherAreRefused) {
  const Network network = LeNet();
  const FrozenNetwork frozen(network);
  const auto refused = [&](const std::function<void(FrozenGraph&)>& change) {
    FrozenGraph graph = frozen.graph();
    change(graph);
    return ErrorOf([&] { FrozenNetwork{graph}; }, absl::StatusCode::kInvalidArgument);
  };
  EXPECT_THAT(refused([](FrozenGraph& graph) { graph.ops.clear(); }), HasSubstr("no operators"));
  EXPECT_THAT(refused([](FrozenGraph& graph) { graph.ops.erase(graph.ops.begin() + 1); }),
              AllOf(HasSubstr("layer 2"), HasSubstr("takes [12, 12, 20], expected [24, 24, 20]")));
  EXPECT_THAT(refused([](FrozenGraph& graph) { graph.ops[4].bias.pop_back(); }),
              HasSubstr("499 biases"));
  EXPECT_THAT(refused([](FrozenGraph& graph) { graph.ops[0].output.scale = 1; }),
              HasSubstr("0 weights and 0 biases"));
}

TEST_F(FrozenNetworkTest, WhatIsWrittenLaterChangesNothingAndTheNetworkMayGo) {
  auto network = std::make_unique<Network>(LeNet());
  const NDArray x = RandomBatch(4, network->input_shape(), 1);
  FrozenNetwork frozen(*network, {.batches = {4}});
  const std::vector<float> before = frozen.Run(x).ToVector<float>();
  network->parameters() *= 2;
  EXPECT_EQ(frozen.Run(x).ToVector<float>(), before);
  // A runtime that is made later, too.
  frozen.Trim();
  EXPECT_EQ(frozen.Run(x).ToVector<float>(), before);
  ExpectNear(FrozenNetwork(*network).Run(x), network->Forward(x), 1e-5, "frozen again");
  network.reset();
  EXPECT_EQ(frozen.Run(x).ToVector<float>(), before);
}

TEST_F(FrozenNetworkTest, BatchesAreCutIntoPiecesOfPreparedSizes) {
  Network network = LeNet();
  FrozenNetwork frozen(network, {.batches = {4}});
  EXPECT_EQ(frozen.stats().made_runtimes, 1);
  const NDArray x = RandomBatch(7, network.input_shape(), 1);
  ExpectNear(frozen.Run(x), network.Forward(x), 1e-5, "4 and 3 filled up");
  EXPECT_EQ(frozen.stats().made_runtimes, 1);
  frozen.Prepare(1);
  frozen.Prepare(16, 2);
  frozen.Prepare(16, 2);
  EXPECT_THAT(frozen.batches(), testing::ElementsAre(16, 4, 1));
  EXPECT_EQ(frozen.stats().made_runtimes, 4);
  for (const int64_t batch : {1, 2, 7, 16, 39}) {
    const NDArray more = RandomBatch(batch, network.input_shape(), static_cast<uint64_t>(batch));
    ExpectNear(frozen.Run(more), network.Forward(more), 1e-5, "pieces");
  }
  EXPECT_EQ(frozen.stats().made_runtimes, 4);
  EXPECT_EQ(frozen.stats().idle_runtimes, 4);
}

TEST_F(FrozenNetworkTest, ThreadsOfACallChangeNoBit) {
  Network network = LeNet();
  const NDArray x = RandomBatch(45, network.input_shape(), 1);
  const FrozenNetwork one(network, {.batches = {8, 1}});
  const std::vector<float> expected = one.Run(x).ToVector<float>();
  SetThreadCount(4);
  for (const int threads : {2, 3, 4}) {
    const FrozenNetwork frozen(network, {.batches = {8, 1}, .threads = threads});
    for (int i = 0; i < 10; ++i) EXPECT_EQ(frozen.Run(x).ToVector<float>(), expected);
    EXPECT_LE(frozen.stats().runtimes, 2 * threads);
  }
}

TEST_F(FrozenNetworkTest, CallsAtTheSameTimeHaveARuntimeEach) {
  constexpr int kThreads = 4;
  Network network = LeNet();
  FrozenNetwork frozen(network, {.batches = {4, 1}});
  std::vector<NDArray> inputs;
  std::vector<std::vector<float>> expected;
  for (int i = 0; i < 5; ++i) {
    inputs.push_back(RandomBatch(1 + 2 * i, network.input_shape(), static_cast<uint64_t>(i)));
    expected.push_back(frozen.Run(inputs.back()).ToVector<float>());
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 100; ++i) {
        const auto which = static_cast<size_t>((i + t) % 5);
        wrong += frozen.Run(inputs[which]).ToVector<float>() != expected[which];
        if (i % 20 == 7 && t == 0) frozen.Trim();
        if (i % 20 == 13 && t == 1) Reclaimer::Global().RunNow();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  const FrozenNetwork::Stats stats = frozen.stats();
  EXPECT_LE(stats.runtimes, 2 * kThreads);
  EXPECT_EQ(stats.idle_runtimes, stats.runtimes);
}

int64_t TotalBytes() { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; }

TEST_F(FrozenNetworkTest, ItsBytesAreOnTheLedgerAndGoBack) {
  Network network = LeNet();
  const NDArray x = RandomBatch(4, network.input_shape(), 1);
  { FrozenNetwork warm(network); }
  Reclaimer::Global().RunNow();
  const int64_t before = TotalBytes();
  {
    FrozenNetwork frozen(network, {.batches = {4, 1}});
    const FrozenNetwork::Stats stats = frozen.stats();
    EXPECT_EQ(stats.weight_bytes, 4 * network.NumParameters());
    EXPECT_EQ(stats.runtimes, 2);
    // Both have one copy of the large weights.
    EXPECT_GT(stats.shared_bytes, stats.weight_bytes * 9 / 10);
    EXPECT_LT(stats.shared_bytes, stats.weight_bytes * 5 / 4);
    EXPECT_LT(stats.runtime_bytes, stats.weight_bytes);
    EXPECT_EQ(stats.staging_bytes, 4 * 5 * (784 + 10));
    const int64_t all =
        stats.weight_bytes + stats.runtime_bytes + stats.shared_bytes + stats.staging_bytes;
    EXPECT_GE(TotalBytes() - before, all);
    EXPECT_LT(TotalBytes() - before, all + (2 << 20));  // of the pool that small blocks are from
    const int64_t made = TotalBytes();
    frozen.Run(x);
    EXPECT_EQ(frozen.stats().runtime_bytes, stats.runtime_bytes);
    EXPECT_EQ(TotalBytes(), made);
    Reclaimer::Global().RunNow();  // takes what is at rest
    EXPECT_EQ(frozen.stats().runtimes, 0);
    EXPECT_EQ(frozen.stats().runtime_bytes, 0);
    EXPECT_EQ(frozen.stats().shared_bytes, 0);
    EXPECT_LT(TotalBytes(), before + stats.weight_bytes + (1 << 16));
    EXPECT_EQ(frozen.Run(x).dim(0), 4);
  }
  EXPECT_LT(TotalBytes(), before + (1 << 12));
}

}  // namespace
}  // namespace tidepool::nn
