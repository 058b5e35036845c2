// One layer by our kernels and by XNNPACK, as a network that is frozen, on one thread: what the engine is ahead with. The names
// of rows are those of docs/performance_kernels.md, "Layers by the engine".
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/convolution.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/layers/merge.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {
namespace {

struct Row {
  const char* name;
  Shape image;
  int64_t batch;
  AnyLayer (*layer)();
};

Conv2dAttributes Depthwise(int64_t groups) {
  Conv2dAttributes a = Conv2D::SamePadding(3);
  a.groups = groups;
  return a;
}

const Row kRows[] = {
    {"transposed 4x4 stride 2, 8x14x14x64 to 32",
     {14, 14, 64},
     8,
     []() -> AnyLayer {
       return Conv2DTranspose(32, {4, 4}, Activation::kIdentity,
                              {.stride = {2, 2}, .before = {1, 1}, .behind = {1, 1}});
     }},
    {"transposed 2x2 stride 2, 1x28x28x32 to 16",
     {28, 28, 32},
     1,
     []() -> AnyLayer {
       return Conv2DTranspose(16, {2, 2}, Activation::kIdentity, {.stride = {2, 2}});
     }},
    {"max pool 2x2, 8x24x24x20", {24, 24, 20}, 8, []() -> AnyLayer { return MaxPool2D(); }},
    {"max pool 3x3 stride 2, 1x56x56x64",
     {56, 56, 64},
     1,
     []() -> AnyLayer {
       return MaxPool2D(
           {.kernel_height = 3, .kernel_width = 3, .stride_height = 2, .stride_width = 2});
     }},
    {"average pool 2x2, 8x28x28x64",
     {28, 28, 64},
     8,
     []() -> AnyLayer {
       return AveragePool2D({2, 2});
     }},
    {"global average, 8x7x7x512", {7, 7, 512}, 8, []() -> AnyLayer { return GlobalPooling(); }},
    {"resize to 56x56, 8x28x28x64",
     {28, 28, 64},
     8,
     []() -> AnyLayer {
       return Resize({56, 56});
     }},
    {"PReLU, 8x28x28x64", {28, 28, 64}, 8, []() -> AnyLayer { return PRelu(); }},
    {"ReLU, the same",
     {28, 28, 64},
     8,
     []() -> AnyLayer { return ActivationLayer(Activation::kRelu); }},
    {"sigmoid, the same",
     {28, 28, 64},
     8,
     []() -> AnyLayer { return ActivationLayer(Activation::kSigmoid); }},
    {"ELU, the same",
     {28, 28, 64},
     8,
     []() -> AnyLayer { return ActivationLayer(Activation::kElu); }},
    {"convolution 3x3, 1x28x28x64",
     {28, 28, 64},
     1,
     []() -> AnyLayer { return Conv2D(64, 3, 3, Activation::kRelu, Conv2D::SamePadding(3)); }},
    {"depthwise 3x3, 1x28x28x256",
     {28, 28, 256},
     1,
     []() -> AnyLayer { return Conv2D(256, 3, 3, Activation::kRelu, Depthwise(256)); }},
};

NDArray Images(const Row& row) {
  return RandomUniform({row.batch, row.image[0], row.image[1], row.image[2]}, -1, 1, 1, 1,
                       Place::Heap());
}

// Results lie in a learned workspace.
void ByKernels(benchmark::State& state, const Row& row) {
  SetThreadCount(1);
  std::vector<AnyLayer> layers;
  layers.push_back(row.layer());
  const Network network(row.image, std::move(layers), 3);
  const NDArray x = Images(row);
  Workspace workspace("benchmark", WorkspaceConfig::Training());
  const auto request = [&] {
    WorkspaceScope scope(workspace);
    network.Forward(x);
  };
  for (int i = 0; i < 5; ++i) request();
  for (auto _ : state) request();
}

void ByEngine(benchmark::State& state, const Row& row) {
  SetThreadCount(1);
  std::vector<AnyLayer> layers;
  layers.push_back(row.layer());
  const Network network(row.image, std::move(layers), 3);
  const FrozenNetwork frozen(network, {.batches = {row.batch}});
  const NDArray x = Images(row);
  NDArray y = frozen.Run(x);
  for (auto _ : state) frozen.RunInto(x, y);
}

const bool added = [] {
  for (const Row& row : kRows) {
    benchmark::RegisterBenchmark((std::string(row.name) + "/kernels").c_str(), &ByKernels, row)
        ->Unit(benchmark::kMicrosecond);
    benchmark::RegisterBenchmark((std::string(row.name) + "/xnnpack").c_str(), &ByEngine, row)
        ->Unit(benchmark::kMicrosecond);
  }
  return true;
}();

}  // namespace
}  // namespace tidepool::nn
