#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/block.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network_json.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/trainer.h"
using namespace tidepool;
using namespace tidepool::nn;

// A layer of one's own: x at a scale that is learned, for each element.
class Scaled final : public Layer {
 public:
  std::string Kind() const override { return "scaled"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  std::vector<ParameterSpec> Parameters(const Shape& input) const override {
    return {{.name = "scale", .shape = input, .initializer = Initializer::Ones()}};
  }
  NDArray Forward(LayerContext& context, const NDArray& x) const override {
    return x * context.parameters[0];
  }
};

struct Residual : Block {
  using Block::Block;
  Part first{*this, "first", Dense(32, Activation::kTanh)};
  Part second{*this, "second", Dense(32)};
  Part scale{*this, "scale", Scaled()};
  NDArray operator()(const NDArray& x) const { return Tanh(scale(second(first(x))) + x); }
};

struct Spirals : Block {
  Part stem{*this, "stem", Dense(32, Activation::kTanh)};
  Residual a{*this, "a"}, b{*this, "b"};
  Part side{*this, "side", Dense(1)};
  NDArray Forward(const NDArray& x) const override { return side(b(a(stem(x)))); }
};

int main() {
  // Two spirals, one turned by half a circle; which one a point is of is 1 or -1.
  const int64_t count = 400;
  std::vector<float> points, sides;
  for (int64_t i = 0; i < count; ++i) {
    const double side = i % 2 == 0 ? 1 : -1,
                 turn = 1 + 5 * M_PI * static_cast<double>(i / 2) / count;
    points.push_back(static_cast<float>(side * turn / 10 * std::cos(turn)));
    points.push_back(static_cast<float>(side * turn / 10 * std::sin(turn)));
    sides.push_back(static_cast<float>(side));
  }
  const NDArray x = FromValues(points, {count, 2}), y = FromValues(sides, {count, 1});

  Network network({{"point", {2}}}, std::make_unique<Spirals>(), {.seed = 1});
  for (int i : {0, 1, 6}) std::printf("%s\n", network.named_parameters()[i].name.c_str());
  // A loss of one's own, for each example: the squared hinge.
  network.set_loss([](absl::Span<const NDArray> outputs, const NetworkInputs& given) {
    return Sum(Square(Relu(1 - outputs[0] * given.labels[0])), 1);
  });
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  double loss = 0;
  for (int step = 0; step < 2500; ++step) loss = trainer.Step([&] { return Batch{x, y}; });
  const NDArray right = network.Output(x) * y;
  std::printf(
      "loss below 0.01: %s, %.0f of %lld on the right side, %lld requests beside the plan in the "
      "last step\n",
      loss < 0.01 ? "yes" : "no", Sum(Cast(right > 0, DType::kFloat32)).Item<float>(),
      static_cast<long long>(count),
      static_cast<long long>(network.training_workspace().stats().misses));

  SaveParameters(network, "spirals.safetensors");
  Network again({{"point", {2}}}, std::make_unique<Spirals>());
  LoadParameters("spirals.safetensors", again);
  std::printf(
      "the same again: %s\n",
      again.Output(x).ToVector<float>() == network.Output(x).ToVector<float>() ? "yes" : "no");

  try {
    NetworkFromJson(R"({"inputs": [{"name": "x", "shape": [2]}],
                        "layers": [{"kind": "dense", "units": 32, "activation": "tan"}]})");
  } catch (const Error& error) {
    std::printf("%.80s...\n", error.message().c_str());
  }
}
