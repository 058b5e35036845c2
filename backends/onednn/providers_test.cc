// Two providers of the CPU linked into one program.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/onednn/convolution_cache.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/updaters.h"

namespace tidepool {
namespace {

class ProvidersTest : public testing::Test {
 protected:
  ProvidersTest() { SetThreadCount(1); }

  NDArray Random(const Shape& shape, double scale = 1) {
    NDArray array(shape, DType::kFloat32);
    std::uniform_real_distribution<float> uniform(-scale, scale);
    float* data = array.mutable_data<float>();
    for (int64_t i = 0; i < array.NumElements(); ++i) data[i] = uniform(random_);
    return array;
  }

  std::mt19937_64 random_{17};
};

std::vector<float> Product(const char* provider, const NDArray& x, const NDArray& y,
                           const MatMulAttributes& attributes) {
  const ScopedProvider scoped(provider);
  return MatMul(x, y, attributes).ToVector<float>();
}

TEST_F(ProvidersTest, TheRegistryShowsBoth) {
  const std::vector<std::string> providers = KernelRegistry::Global().Providers();
  for (const char* name : {"cpu", "onednn", "xnnpack", "reference"}) {
    EXPECT_TRUE(std::count(providers.begin(), providers.end(), name)) << name;
  }
  const std::string table = KernelRegistry::Global().Table();
  const size_t begin = table.find("matmul");
  const std::string line = table.substr(begin, table.find('\n', begin) - begin);
  EXPECT_LT(line.find("onednn"), line.find("cpu")) << line;
}

// Providers round differently: the bits tell who ran.
TEST_F(ProvidersTest, TheDefaultIsTheMeasuredOne) {
  struct Case {
    int64_t m, k, n;
    MatMulAttributes attributes;
    const char* expected;
  };
  MatMulAttributes forward, none;
  forward.transpose_y = true;
  for (const Case& c : {Case{1, 784, 1000, forward, "onednn"}, Case{32, 1000, 784, none, "onednn"},
                        Case{32, 784, 1000, forward, "cpu"}, Case{64, 1000, 512, none, "cpu"}}) {
    const NDArray x = Random({c.m, c.k});
    const NDArray y = Random(c.attributes.transpose_y ? Shape{c.n, c.k} : Shape{c.k, c.n});
    const std::vector<float> chosen = Product(nullptr, x, y, c.attributes);
    const std::vector<float> onednn = Product("onednn", x, y, c.attributes);
    const std::vector<float> cpu = Product("cpu", x, y, c.attributes);
    ASSERT_NE(onednn, cpu) << c.m << " " << c.k << " " << c.n;
    EXPECT_EQ(chosen, std::string(c.expected) == "cpu" ? cpu : onednn)
        << c.m << " " << c.k << " " << c.n;
    for (size_t i = 0; i < cpu.size(); ++i) {
      ASSERT_NEAR(onednn[i], cpu[i], 1e-6 * static_cast<double>(c.k));
    }
  }
}

TEST_F(ProvidersTest, TheChoiceDoesNotDependOnThreads) {
  MatMulAttributes forward;
  forward.transpose_y = true;
  const NDArray x = Random({1, 784}), y = Random({1000, 784});
  const std::vector<float> one = Product(nullptr, x, y, forward);
  for (int threads = 2; threads <= 3; ++threads) {
    SetThreadCount(threads);
    EXPECT_EQ(Product(nullptr, x, y, forward), one) << threads << " threads";
  }
}

TEST_F(ProvidersTest, AForcedProviderRuns) {
  onednn::ConvolutionCache& cache = onednn::ConvolutionCache::Global();
  const NDArray image = Random({2, 9, 9, 5}), filter = Random({7, 3, 3, 5});
  const size_t before = cache.size();
  std::vector<float> results[2];
  {
    const ScopedProvider scoped("cpu");
    results[0] = Conv2d(image, filter, nullptr, {}).ToVector<float>();
  }
  EXPECT_EQ(cache.size(), before);
  {
    const ScopedProvider scoped("onednn");
    results[1] = Conv2d(image, filter, nullptr, {}).ToVector<float>();
  }
  EXPECT_EQ(cache.size(), before + 1);
  for (size_t i = 0; i < results[0].size(); ++i) {
    ASSERT_NEAR(results[0][i], results[1][i], 5e-5);
  }
}

// A convolution, a dense layer and cross-entropy, products and convolutions by `provider`.
std::vector<double> Train(const char* provider, const NDArray& image, const NDArray& labels,
                          NDArray filter, NDArray weights, int steps) {
  std::vector<double> losses;
  const int64_t batch = image.dim(0);
  SgdAttributes sgd;
  sgd.learning_rate = 0.05;
  Conv2dAttributes with_relu;
  with_relu.relu = true;
  MatMulAttributes forward, grad_weights;
  forward.transpose_y = true;
  grad_weights.transpose_x = true;
  for (int step = 0; step < steps; ++step) {
    NDArray hidden, logits;
    {
      const ScopedProvider scoped(provider);
      hidden = Conv2d(image, filter, nullptr, with_relu);
      logits = MatMul(hidden.Reshape({batch, weights.dim(1)}), weights, forward);
    }
    const CrossEntropy result = SoftmaxCrossEntropy(logits, labels);
    double loss = 0;
    for (const float value : result.loss.ToVector<float>()) loss += value;
    losses.push_back(loss / static_cast<double>(batch));
    NDArray logits_gradient(logits.shape(), DType::kFloat32);
    SoftmaxCrossEntropyGradInto(result.probabilities, labels, 1.0 / static_cast<double>(batch),
                                logits_gradient);
    NDArray weights_gradient(weights.shape(), DType::kFloat32), hidden_gradient;
    NDArray filter_gradient(filter.shape(), DType::kFloat32);
    {
      const ScopedProvider scoped(provider);
      MatMulInto(logits_gradient, hidden.Reshape({batch, weights.dim(1)}), weights_gradient,
                 grad_weights);
      hidden_gradient = MatMul(logits_gradient, weights).Reshape(hidden.shape());
    }
    ReluGradInto(hidden, hidden_gradient, hidden_gradient);
    {
      const ScopedProvider scoped(provider);
      Conv2dGradFilterInto(image, hidden_gradient, filter_gradient, {});
    }
    SgdUpdate(filter_gradient, filter, sgd);
    SgdUpdate(weights_gradient, weights, sgd);
  }
  return losses;
}

TEST_F(ProvidersTest, TrainingGivesTheSameLosses) {
  const NDArray image = Random({8, 10, 10, 3});
  NDArray labels({8}, DType::kInt64);
  for (int64_t i = 0; i < 8; ++i) labels.mutable_data<int64_t>()[i] = i % 5;
  const NDArray filter = Random({6, 3, 3, 3}, 0.3), weights = Random({5, 8 * 8 * 6}, 0.1);
  const auto cpu = Train("cpu", image, labels, filter.Dup(), weights.Dup(), 10);
  const auto onednn = Train("onednn", image, labels, filter.Dup(), weights.Dup(), 10);
  const auto chosen = Train(nullptr, image, labels, filter.Dup(), weights.Dup(), 10);
  EXPECT_LT(cpu.back(), 0.8 * cpu.front());
  for (size_t i = 0; i < cpu.size(); ++i) {
    EXPECT_NEAR(onednn[i], cpu[i], 1e-5 * (1 + cpu[i])) << "step " << i;
    EXPECT_NEAR(chosen[i], cpu[i], 1e-5 * (1 + cpu[i])) << "step " << i;
  }
}

}  // namespace
}  // namespace tidepool
