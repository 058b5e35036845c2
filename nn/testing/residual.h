// A residual network as a graph and as a program, for tests of networks.
#ifndef TIDEPOOL_NN_TESTING_RESIDUAL_H_
#define TIDEPOOL_NN_TESTING_RESIDUAL_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/layer_kinds.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

inline std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.message();
  }
  return "nothing was thrown";
}

// Adds what it is given.
class Sum final : public Layer {
 public:
  std::string Kind() const override { return "test_sum"; }
  Shape OutputShapeOf(absl::Span<const Shape> inputs) const override {
    for (const Shape& shape : inputs) {
      if (!(shape == inputs[0])) RefuseInput(shape, inputs[0].ToString());
    }
    return inputs[0];
  }
  NDArray ForwardOf(LayerContext&, absl::Span<const NDArray> inputs) const override {
    return inputs.size() == 1 ? inputs[0] : inputs[0] + inputs[1];
  }
};

inline const bool kSumIsRegistered = [] {
  RegisterLayer<Sum>("test_sum");
  return true;
}();

inline Conv2D Same(int64_t filters, Activation activation) {
  return Conv2D(filters, 3, 3, activation, Conv2D::SamePadding(3));
}

// A residual network, as a graph and as a program.
inline NetworkConfig ResidualConfig() {
  NetworkConfig config;
  const std::string x = config.AddInput("image", {6, 6, 1});
  const std::string stem = config.Add(Same(4, Activation::kRelu), {x}, "stem");
  const std::string first = config.Add(Same(4, Activation::kRelu), {stem}, "first");
  const std::string second = config.Add(Same(4, Activation::kIdentity), {first}, "second");
  const std::string sum = config.Add(Sum(), {second, stem}, "sum");
  const std::string relu = config.Add(ActivationLayer(), {sum});
  config.outputs = {config.Add(Dense(3), {relu}, "classes")};
  return config;
}

struct ResidualBlock : Block {
  using Block::Block;
  Part first{*this, "first", Same(4, Activation::kRelu)};
  Part second{*this, "second", Same(4, Activation::kIdentity)};
  NDArray operator()(const NDArray& x) const { return second(first(x)) + x; }
};

struct ResidualProgram : Block {
  Part stem{*this, "stem", Same(4, Activation::kRelu)};
  ResidualBlock block{*this, "block"};
  Part classes{*this, "classes", Dense(3)};
  NDArray Forward(const NDArray& x) const override { return classes(Relu(block(stem(x)))); }
};

inline std::vector<std::string> NamesOf(const Network& network) {
  std::vector<std::string> names;
  for (const NamedParameter& parameter : network.named_parameters())
    names.push_back(parameter.name);
  return names;
}

inline NetworkInputs Images(int64_t batch, DType dtype = DType::kFloat32) {
  return {{RandomUniform({batch, 6, 6, 1}, 0, 1, dtype, 5)},
          {RandomIntegers({batch}, 0, 3, 6)},
          {},
          {}};
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_TESTING_RESIDUAL_H_
