#include "tidepool/nn/network.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

// Every kind of layer, small enough to differentiate numerically.
std::vector<AnyLayer> SmallLayers() {
  std::vector<AnyLayer> layers;
  layers.push_back(std::make_unique<Conv2D>(3, 3, 3, Activation::kRelu));
  layers.push_back(std::make_unique<MaxPool2D>());
  Conv2dAttributes padded;
  padded.pad_top = padded.pad_left = padded.pad_right = padded.pad_bottom = 1;
  layers.push_back(std::make_unique<Conv2D>(4, 2, 3, Activation::kRelu, padded));
  layers.push_back(std::make_unique<Dense>(6, Activation::kRelu));
  layers.push_back(std::make_unique<Dense>(3));
  return layers;
}

TEST(Network, ItsOutputIsNeverItsInput) {
  for (const WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kNone}) {
    std::vector<AnyLayer> layers;
    layers.push_back(std::make_unique<DropoutLayer>(0.5));
    Network network({4}, std::move(layers), 1, mode);
    const NDArray x = Ones({2, 4});
    NDArray of_forward = network.Forward(x), of_output = network.Output(x);
    NDArray of_run = network.Run({x})[0];
    for (NDArray* const output : {&of_forward, &of_output, &of_run}) {
      EXPECT_EQ(output->ToVector<float>(), x.ToVector<float>());
      *output += 1;
      EXPECT_EQ(x.At<float>({1, 3}), 1);
    }
  }
}

TEST(Layers, DescribeWhatDecidesTheirResults) {
  Conv2dAttributes grouped;
  grouped.groups = 2;
  grouped.pad_top = 1;
  const Conv2D conv(4, 3, 3, Activation::kRelu, grouped);
  EXPECT_EQ(conv.Describe(), "conv2d 4 of 3x3 pad 1,0,0,0 groups 2 relu");
  EXPECT_EQ(conv.Parameters({8, 8, 6})[0].shape, (Shape{4, 3, 3, 3}));
  EXPECT_EQ(conv.OutputShape({8, 8, 6}), (Shape{7, 6, 4}));
  Pool2dAttributes padded;
  EXPECT_EQ(MaxPool2D(padded).Describe(), "max_pool2d 2x2 stride 2x2");
  padded.pad_left = 1;
  EXPECT_EQ(MaxPool2D(padded).Describe(), "max_pool2d 2x2 stride 2x2 pad 0,0,1,0");
}

double Loss(Network& network, const NDArray& features, const NDArray& labels) {
  WorkspaceScope scope(network.training_workspace());
  return network.ComputeGradients(features, labels);
}

TEST(Network, GradientsAgreeWithCentralDifferences) {
  Network network({8, 8, 1}, SmallLayers(), /*seed=*/5);
  const NDArray features = RandomUniform({4, 8, 8, 1}, -1, 1, 11);
  const NDArray labels = FromValues(std::vector<int64_t>{0, 2, 1, 1}, {4});
  Loss(network, features, labels);
  const std::vector<float> gradients = network.gradients().ToVector<float>();
  float* parameters = network.parameters().mutable_data<float>();
  const float step = 1e-2f;
  int checked = 0;
  double worst = 0;
  for (size_t i = 0; i < gradients.size(); i += 3) {
    const float value = parameters[i];
    parameters[i] = value + step;
    const double above = Loss(network, features, labels);
    parameters[i] = value - step;
    const double below = Loss(network, features, labels);
    parameters[i] = value;
    const double numeric = (above - below) / (2 * step);
    // A ReLU or a maximum that changes sides within the step makes single differences wrong, so a
    // few may stand out; the bound is on nearly all.
    if (std::abs(numeric - gradients[i]) > 2e-3 + 0.02 * std::abs(numeric)) ++worst;
    ++checked;
  }
  EXPECT_GT(checked, 100);
  EXPECT_LE(worst, 0.03 * checked);
}

TEST(Network, EqualSeedsGiveEqualParametersAndOthersDoNot) {
  Network a({28, 28, 1}, LeNetLayers(10), 3), b({28, 28, 1}, LeNetLayers(10), 3),
      c({28, 28, 1}, LeNetLayers(10), 4);
  EXPECT_EQ(a.parameters().ToVector<float>(), b.parameters().ToVector<float>());
  EXPECT_NE(a.parameters().ToVector<float>(), c.parameters().ToVector<float>());
  EXPECT_EQ(a.NumParameters(), 20 * 25 + 20 + 50 * 500 + 50 + 500 * 800 + 500 + 10 * 500 + 10);
  EXPECT_EQ(a.output_shape(), Shape({10}));
  EXPECT_EQ(a.named_parameters()[2].name, "2.conv2d.filter");
}

TEST(Network, LayersThatDoNotFitAreNamed) {
  std::vector<AnyLayer> layers;
  layers.push_back(std::make_unique<Conv2D>(3, 9, 9));
  EXPECT_THAT(MessageOf([&] {
                Network network({8, 8, 1}, std::move(layers));
              }),
              HasSubstr("the kernel covers 9 of an input of 8"));
  std::vector<AnyLayer> flat;
  flat.push_back(std::make_unique<MaxPool2D>());
  EXPECT_THAT(MessageOf([&] { Network network({64}, std::move(flat)); }),
              HasSubstr("layer [max_pool2d 2x2 stride 2x2]: input shape [64]"));
}

TEST(Network, WrongFeaturesLabelsAndModesAreErrorsAndTheNextStepWorks) {
  Network network({8, 8, 1}, SmallLayers());
  const NDArray features = RandomUniform({2, 8, 8, 1}, 0, 1, 1);
  const NDArray good = FromValues(std::vector<int64_t>{0, 1}, {2});
  EXPECT_THAT(MessageOf([&] {
                Loss(network, Zeros({2, 7, 8, 1}), good);
              }),
              HasSubstr("features have shape [2, 7, 8, 1], expected [batch] + [8, 8, 1]"));
  EXPECT_THAT(MessageOf([&] {
                Loss(network, features, FromValues(std::vector<int64_t>{0, 3}, {2}));
              }),
              HasSubstr("label 1 is 3, expected 0 to 2"));
  EXPECT_FALSE(network.training_workspace().is_open());
  EXPECT_EQ(network.training_workspace().stats().failed_cycles, 2);
  EXPECT_GT(Loss(network, features, good), 0);
  EXPECT_EQ(network.training_workspace().stats().leaked_arrays, 0);
}

TEST(Network, OutputsAreTheSameInEveryPlaceAndMode) {
  const NDArray features = RandomUniform({5, 8, 8, 1}, 0, 1, 2);
  std::vector<float> expected;
  for (WorkspaceMode mode :
       {WorkspaceMode::kEnabled, WorkspaceMode::kSingle, WorkspaceMode::kNone}) {
    Network network({8, 8, 1}, SmallLayers(), 9, mode);
    for (int cycle = 0; cycle < 3; ++cycle) {
      const NDArray output = network.Output(features);
      EXPECT_FALSE(output.IsAttached());
      if (expected.empty()) expected = output.ToVector<float>();
      EXPECT_EQ(output.ToVector<float>(), expected);
    }
    Workspace mine("mine", WorkspaceConfig::Inference());
    WorkspaceScope scope(mine);
    const NDArray output = network.Output(features);
    EXPECT_TRUE(output.IsAttached());
    EXPECT_EQ(output.buffer()->owner->WorkspaceId(), "mine");
    EXPECT_EQ(output.ToVector<float>(), expected);
  }
}

// Inference packs weights once; it must notice that training has changed them.
TEST(Network, InferenceSeesUpdatedParameters) {
  Network network({8, 8, 1}, SmallLayers(), 9);
  const NDArray features = RandomUniform({5, 8, 8, 1}, 0, 1, 2);
  const std::vector<float> before = network.Output(features).ToVector<float>();
  network.parameters() *= 2;
  const std::vector<float> after = network.Output(features).ToVector<float>();
  EXPECT_NE(before, after);
  Network fresh({8, 8, 1}, SmallLayers(), 9);
  fresh.parameters() *= 2;
  EXPECT_EQ(fresh.Output(features).ToVector<float>(), after);
}

// What `network` gives, by a network that never saw other parameters.
std::vector<float> FreshOutput(const Network& network, const NDArray& features) {
  Network fresh({8, 8, 1}, SmallLayers(), 1);
  CopyInto(network.parameters(), fresh.parameters());
  return fresh.Output(features).ToVector<float>();
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-4 * (1 + std::abs(expected[i]))) << i;
  }
}

// Another library writes while it has the tensor, and nobody is told.
TEST(Network, InferenceSeesWhatIsWrittenThroughAnExport) {
  Network network({8, 8, 1}, SmallLayers(), 9);
  const NDArray features = RandomUniform({5, 8, 8, 1}, 0, 1, 2);
  std::vector<float> last = network.Output(features).ToVector<float>();
  const auto expect_change = [&](const char* what) {
    SCOPED_TRACE(what);
    const std::vector<float> now = network.Output(features).ToVector<float>();
    EXPECT_NE(now, last);
    ExpectNear(now, FreshOutput(network, features));
    last = now;
  };
  const auto scale = [&](const DLManagedTensor* tensor, float by) {
    auto* values = static_cast<float*>(tensor->dl_tensor.data);
    for (int64_t i = 0; i < tensor->dl_tensor.shape[0]; ++i) values[i] *= by;
  };
  DLManagedTensor* all = ToDLPack(network.parameters());
  ExpectNear(network.Output(features).ToVector<float>(), last);
  scale(all, 2);
  expect_change("written once");
  scale(all, 0.75f);
  expect_change("written again");
  // Two exports: the bytes are foreign until the last one ends.
  DLManagedTensor* again = ToDLPack(network.parameters());
  all->deleter(all);
  scale(again, 2);
  expect_change("by the second export");
  scale(again, 0.5f);
  again->deleter(again);
  expect_change("just before the end");
  network.parameters() *= 2;
  expect_change("as ever afterwards");
}

TEST(Network, InferenceSeesWhatIsWrittenByAKeptPointerAndMarked) {
  Network network({8, 8, 1}, SmallLayers(), 9);
  const NDArray features = RandomUniform({5, 8, 8, 1}, 0, 1, 2);
  NDArray filter = network.named_parameters()[0].value;
  float* kept = filter.mutable_data<float>();
  for (int i = 0; i < 3; ++i) {
    const std::vector<float> before = network.Output(features).ToVector<float>();
    kept[0] += 1;
    filter.MarkWritten();  // a view's is the whole array's
    const std::vector<float> after = network.Output(features).ToVector<float>();
    EXPECT_NE(before, after);
    ExpectNear(after, FreshOutput(network, features));
  }
}

// Imported weights are its importer's, who writes as it likes.
TEST(Network, ConstantWeightsThatAreImportedMayBeWrittenAtAnyTime) {
  std::vector<float> weights(64), filter(64), bias(8, 1);
  const auto import = [](std::vector<float>& values, const Shape& shape) {
    return NDArray(BufferHandle(NewImportedBuffer(values.data(), values.size() * sizeof(float),
                                                  nullptr, nullptr)),
                   shape, DType::kFloat32);
  };
  const NDArray y = import(weights, {8, 8}), f = import(filter, {4, 2, 2, 4}),
                b = import(bias, {8});
  const NDArray own_y = Ones({8, 8}), x = Ones({3, 8}), image = Ones({1, 4, 4, 4});
  MatMulAttributes matmul;
  matmul.y_is_constant = true;
  Conv2dAttributes conv;
  conv.filter_is_constant = true;
  for (int i = 1; i < 4; ++i) {
    const auto value = static_cast<float>(i);
    std::fill(weights.begin(), weights.end(), value);
    std::fill(filter.begin(), filter.end(), value);
    EXPECT_EQ(MatMul(x, y, matmul).At<float>({2, 7}), 8 * value);
    EXPECT_EQ(Conv2d(image, f, nullptr, conv).At<float>({0, 2, 2, 3}), 16 * value);
    bias[7] = value;
    EXPECT_EQ(MatMul(x, own_y, matmul, &b).At<float>({2, 7}), 8 + value);
  }
}

TEST(Network, LayersThatAreNotThereAreNamed) {
  std::vector<AnyLayer> layers = SmallLayers();
  layers[2] = AnyLayer();
  EXPECT_THAT(MessageOf([&] {
                Network network({9, 9, 1}, std::move(layers));
              }),
              HasSubstr("network: layer 2 is null"));
}

TEST(Network, WhatWasMovedFromSaysSo) {
  Network network({8, 8, 1}, SmallLayers(), 9);
  const NDArray features = RandomUniform({2, 8, 8, 1}, 0, 1, 2);
  const NDArray labels = FromValues(std::vector<int64_t>{0, 1}, {2});
  const std::vector<float> expected = network.Output(features).ToVector<float>();
  const NetworkParameters parameters = network.ParametersIn(network.parameters().Dup());
  Network moved = std::move(network);
  const std::vector<std::function<void()>> uses = {
      [&] { network.parameters(); },
      [&] { std::as_const(network).parameters(); },
      [&] { network.gradients(); },
      [&] { network.named_parameters(); },
      [&] { network.training_workspace(); },
      [&] { network.inference_workspace(); },
      [&] { network.Output(features); },
      [&] { network.Forward(features); },
      [&] { network.Forward(features, parameters); },
      [&] { network.ParametersIn(parameters.flat); },
      [&] { network.ComputeGradients(features, labels); },
      [&] {
        network.QueueGradients({{features}, {labels}, {}, {}}, [](const NDArray&) {});
      },
      [&] { network.PrepareInputs(features, labels); },
      [&] { network.Infer([&] { return features; }, [](const NDArray&) {}); },
  };
  for (size_t i = 0; i < uses.size(); ++i) {
    EXPECT_THAT(MessageOf(uses[i]), HasSubstr("the network was moved from")) << i;
  }
  EXPECT_EQ(network.name(), "");
  network.Describe();
  EXPECT_EQ(moved.Output(features).ToVector<float>(), expected);
  network = std::move(moved);
  EXPECT_EQ(network.Output(features).ToVector<float>(), expected);
}

TEST(Network, MessagesTellNetworksApart) {
  const auto stale = [](Network& network, bool training) {
    Workspace& workspace = training ? network.training_workspace() : network.inference_workspace();
    NDArray x;
    {
      const WorkspaceScope scope(workspace);
      x = Ones({2});
    }
    return MessageOf([&] { x.Dup(); });
  };
  Network first({28, 28, 1}, MlpLayers(10)), second({28, 28, 1}, MlpLayers(10));
  EXPECT_NE(stale(first, true), stale(second, true));
  EXPECT_NE(stale(first, false), stale(second, false));
  EXPECT_NE(stale(first, true), stale(first, false));
  {
    Network named({4}, MlpLayers(2), 0, WorkspaceMode::kEnabled, Host(), "digits");
    EXPECT_THAT(stale(named, true), HasSubstr("from workspace [digits training]"));
    Network other({4}, MlpLayers(2), 0, WorkspaceMode::kEnabled, Host(), "digits");
    EXPECT_THAT(stale(other, false), HasSubstr("from workspace [digits 2 inference]"));
    Network moved = std::move(other);
    EXPECT_EQ(moved.name(), "digits 2");
  }
  EXPECT_EQ(Network({4}, MlpLayers(2), 0, WorkspaceMode::kEnabled, Host(), "digits").name(),
            "digits");
}

TEST(Network, NothingIsKeptOfItsWeightsBehindIt) {
  const auto external = [] {
    return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kExternal);
  };
  int64_t first = 0;
  for (int i = 0; i < 4; ++i) {
    {
      Network network({8, 8, 64}, {Conv2D(64, 3, 3), Dense(10)}, 7);
      network.Output(Ones({4, 8, 8, 64}));
      Network other = std::move(network);
      other.Output(Ones({4, 8, 8, 64}));
    }
    if (i == 0) first = external();
  }
  EXPECT_EQ(external(), first);
}

// With and without a library's kernel for constant weights, small and large.
TEST(Network, NotANumberStaysUnderAReLUThatIsDoneWithTheProduct) {
  for (const bool constant : {false, true}) {
    for (const int64_t size : {3, 40, 200}) {
      NDArray x = Ones({size, size}), image = Ones({1, 12, 12, 8});
      x.mutable_data<float>()[size + 1] = NAN;
      image.mutable_data<float>()[(5 * 12 + 5) * 8 + 3] = NAN;
      const NDArray z =
          MatMul(x, Full({size, size}, -1), {.relu = true, .y_is_constant = constant});
      EXPECT_EQ(IsNan(z).Slice(0, 1, 2).ToVector<bool>(),
                std::vector<bool>(static_cast<size_t>(size), true));
      EXPECT_EQ(z.At<float>({0, 0}), 0);
      Conv2dAttributes a;
      a.relu = true;
      a.filter_is_constant = constant;
      const NDArray y = Conv2d(image, Full({size, 3, 3, 8}, -1), nullptr, a);
      for (int64_t row = 0; row < 10; ++row) {
        for (int64_t column = 0; column < 10; ++column) {
          const bool sees = row >= 3 && row <= 5 && column >= 3 && column <= 5;
          EXPECT_EQ(std::isnan(y.At<float>({0, row, column, size - 1})), sees)
              << row << " " << column;
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
