// Gradients of activations against central differences of the activations.
#include <functional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/gradient_check.h"

namespace tidepool {
namespace {

struct GradientCase {
  const char* name;
  std::function<NDArray(const NDArray&)> forward;
  std::function<NDArray(const NDArray& x, const NDArray& dz)> backward;
};

TEST(ActivationGradients, AgreeWithDifferences) {
  const std::vector<GradientCase> cases = {
      {"relu", &Relu, [](auto& x, auto& dz) { return ReluGrad(Relu(x), dz); }},
      {"sigmoid", &Sigmoid, [](auto& x, auto& dz) { return SigmoidGrad(Sigmoid(x), dz); }},
      {"tanh", &Tanh, [](auto& x, auto& dz) { return TanhGrad(Tanh(x), dz); }},
      {"leaky_relu", [](auto& x) { return LeakyRelu(x, 0.1); },
       [](auto& x, auto& dz) { return LeakyReluGrad(x, dz, 0.1); }},
      {"elu", [](auto& x) { return Elu(x, 0.7); },
       [](auto& x, auto& dz) { return EluGrad(x, dz, 0.7); }},
      {"gelu", [](auto& x) { return Gelu(x); }, [](auto& x, auto& dz) { return GeluGrad(x, dz); }},
      {"gelu by tanh", [](auto& x) { return Gelu(x, GeluForm::kTanh); },
       [](auto& x, auto& dz) { return GeluGrad(x, dz, GeluForm::kTanh); }},
      {"swish", &Swish, &SwishGrad},
      {"softplus", &Softplus, &SoftplusGrad},
      // These compose.
      {"exp", &Exp, [](auto& x, auto& dz) { return dz * Exp(x); }},
      {"square", &Square, [](auto& x, auto& dz) { return dz * x * 2.0; }},
  };
  // Values up to 4 in size, none within 1/32 of the kink at 0.
  const int64_t count = 96;
  NDArray x = ScaleShift(Arange(0, count), 1.0 / 12, -4 + 1.0 / 24);
  const NDArray weights = RandomUniform({count}, -1, 1, /*seed=*/3);
  for (const GradientCase& c : cases) {
    auto loss = [&] { return WeightedSum(c.forward(x), weights); };
    EXPECT_EQ(GradientProblem(loss, x, c.backward(x, weights)), "") << c.name;
  }
}

}  // namespace
}  // namespace tidepool
