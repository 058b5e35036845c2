// A layer and a loss of one's own, in a network that tells how it trains and is saved: handwritten digits by units that answer to
// what is near a centre, held apart by a squared hinge. What is behind the flags is 40 lines.
//
//   bazel run //examples/own_layer -- --data=$PWD/examples/data/mnist --save=/tmp/own_layer.safetensors
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "tidepool/examples/training_run/digits.h"
#include "tidepool/examples/training_run/training_run.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/network.h"

ABSL_FLAG(std::string, data, "examples/data/mnist", "folder with the four IDX files of MNIST");
ABSL_FLAG(std::string, save, "", "where to save the model; empty: nowhere");
ABSL_FLAG(int, epochs, 3, "passes over the images");

namespace tidepool::examples {

struct Nearness : nn::Layer {  // of each element to a centre: both, and how sharp, are learned
  std::string Kind() const override { return "nearness"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  std::vector<nn::ParameterSpec> Parameters(const Shape& input) const override {
    return {{"centre", input, nn::Initializer::Zeros()}, {"sharp", input, nn::Initializer::Ones()}};
  }
  NDArray Forward(nn::LayerContext& context, const NDArray& x) const override {
    return 1.0 / (Square((x - context.parameters[0]) * context.parameters[1]) + 1.0);
  }
};

NDArray SquaredHinge(absl::Span<const NDArray> outputs, const nn::NetworkInputs& given) {
  const NDArray sides = OneHot(given.labels[0], 10, DType::kFloat32, 1, -1);
  return Sum(Square(Relu(1.0 - outputs[0] * sides)), 1);
}

void Run() {
  nn::RegisterLayer<Nearness>("nearness");  // for files: models with it are loaded again
  const ImageFolder data = LoadImageFolder(absl::GetFlag(FLAGS_data));
  const auto batch = [](const LabelledImages& of, absl::Span<const int64_t> which) {
    nn::Batch made(PixelsOf(of, which), Empty({static_cast<int64_t>(which.size())}, DType::kInt64));
    int64_t* label = made.labels.mutable_data<int64_t>();
    for (const int64_t i : which) *label++ = of.labels[static_cast<size_t>(i)];
    return made;
  };
  auto network = std::make_unique<nn::Network>(
      nn::NetworkConfig::Sequential({28, 28, 1}, {nn::Dense(64), Nearness(), nn::Dense(10)}),
      nn::NetworkOptions{.seed = 1});
  network->set_loss(&SquaredHinge);
  nn::Model model("own_layer", 10, std::move(network));
  const NDArray all = Arange(0, static_cast<double>(data.test.count), 1, DType::kInt64);
  const nn::Batch asked = batch(data.test, all.ToVector<int64_t>());
  const auto accuracy = [&] {
    const NDArray right = Equal(ArgMax(model.network->Output(asked.features), 1), asked.labels);
    return Mean(Cast(right, DType::kFloat64)).Item<double>();
  };
  Train(
      model, nn::UpdaterConfig::Of(nn::UpdaterKind::kAdam),
      {.epochs = absl::GetFlag(FLAGS_epochs), .batch = 32, .save = absl::GetFlag(FLAGS_save)},
      data.train.count, [&](auto which, int64_t) { return batch(data.train, which); }, accuracy);
  std::printf("test accuracy %.4f\n", accuracy());
}

}  // namespace tidepool::examples

int main(int argc, char** argv) {
  return tidepool::examples::RunProgram("own_layer", argc, argv, tidepool::examples::Run);
}
