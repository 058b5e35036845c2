// The residual network of models.h, small, and as a program, for tests of networks.
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
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/pooling.h"
#include "tidepool/nn/models.h"
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

// Of one stage: small enough for differences of every fifth parameter.
inline NetworkConfig SmallResidualConfig() { return ResidualConfig({6, 6, 1}, 3, {4}); }

// The same as a program.
struct NormalizedConvolution : Block {
  using Block::Block;
  Part convolution{*this, "convolution",
                   Conv2D(4, 3, 3, Activation::kIdentity, Conv2D::SamePadding(3), {.bias = false})};
  Part norm{*this, "norm", BatchNormalization()};
  NDArray operator()(const NDArray& x) const { return norm(convolution(x)); }
};

struct ResidualStage : Block {
  using Block::Block;
  NormalizedConvolution first{*this, "first"}, second{*this, "second"};
  NDArray operator()(const NDArray& x) const { return Relu(second(Relu(first(x))) + x); }
};

struct ResidualProgram : Block {
  NormalizedConvolution stem{*this, "stem"};
  ResidualStage stage{*this, "stage"};
  Part mean{*this, "mean", GlobalPooling()};
  Part classes{*this, "classes", Dense(3)};
  NDArray Forward(const NDArray& x) const override { return classes(mean(stage(Relu(stem(x))))); }
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
