// Predictors on another device than their model.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/layers/dense.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

Model SmallModel() {
  std::vector<AnyLayer> layers;
  layers.push_back(std::make_unique<Dense>(24, Activation::kRelu));
  layers.push_back(std::make_unique<Dense>(5));
  return {"small", 5, std::make_unique<Network>(Shape{16}, std::move(layers), 3)};
}

class Probabilities final : public Translator<float, NDArray> {
 public:
  NDList ProcessInput(PredictorContext&, const float& input) override {
    return {Full({16}, input)};  // where the request's workspace is
  }
  NDArray ProcessOutput(PredictorContext&, NDList outputs) override {
    EXPECT_EQ(outputs.Single().device(), expected);
    return Softmax(outputs.Single());
  }
  Device expected = kDevice;
};

int64_t OnDevice() {
  return MemoryTracker::Global().Snapshot()[kDevice][MemoryKind::kAllocated].current_bytes;
}

class PredictorDeviceTest : public testing::Test {
 protected:
  void SetUp() override { SimulatedDevice::Get().Reset(); }
  void TearDown() override { SimulatedDevice::Get().Reset(); }  // which finds what is left
};

TEST_F(PredictorDeviceTest, DjlCase109ResultsAreOnItsDeviceAndParametersAreCopiedOnce) {
  Model model = SmallModel();
  Probabilities on_host, on_device;
  on_host.expected = Host();
  Predictor<float, NDArray> near(model, on_host);
  Predictor<float, NDArray> far(model, on_device, kDevice, "far");
  Predictor<float, NDArray> other(model, on_device, kDevice, "other");

  const NDArray result = far.Predict(0.5f);
  EXPECT_EQ(result.device(), kDevice);
  EXPECT_FALSE(NDManager::ManagerOf(result));  // the caller's
  EXPECT_EQ(result.ToVector<float>(), near.Predict(0.5f).ToVector<float>());

  const auto parameter_bytes = static_cast<int64_t>(model.network->parameters().buffer()->bytes);
  const auto result_bytes = static_cast<int64_t>(result.buffer()->bytes);
  EXPECT_EQ(OnDevice(), parameter_bytes + result_bytes);
  const auto replica = model.ReplicaOn(kDevice);
  EXPECT_TRUE(replica->manager.Manages(replica->parameters.flat));
  EXPECT_EQ(replica->parameters.views.size(), model.network->named_parameters().size());
  for (int i = 0; i < 20; ++i) {
    (i % 2 == 0 ? far : other).Predict(1);
    EXPECT_EQ(OnDevice(), parameter_bytes + result_bytes) << i;
  }
  EXPECT_EQ(model.ReplicaOn(kDevice), replica);
  EXPECT_EQ(model.ReplicaOn(Host()), nullptr);
}

TEST_F(PredictorDeviceTest, ParametersThatWereWrittenToAreCopiedAgain) {
  Model model = SmallModel();
  Probabilities on_host, on_device;
  on_host.expected = Host();
  Predictor<float, NDArray> near(model, on_host);
  Predictor<float, NDArray> far(model, on_device, kDevice);
  const std::vector<float> before = far.Predict(1).ToVector<float>();
  const int64_t bytes = OnDevice();
  MultiplyInto(model.network->parameters(), Full({1}, -2), model.network->parameters());
  const std::vector<float> after = far.Predict(1).ToVector<float>();
  EXPECT_NE(after, before);
  EXPECT_EQ(after, near.Predict(1).ToVector<float>());
  EXPECT_EQ(OnDevice(), bytes);  // the older copy is gone
}

TEST_F(PredictorDeviceTest, ParametersThatAnotherLibraryMayWriteToAreCopiedForEachRequest) {
  Model model = SmallModel();
  Probabilities on_host, on_device;
  on_host.expected = Host();
  Predictor<float, NDArray> near(model, on_host);
  Predictor<float, NDArray> far(model, on_device, kDevice);
  std::vector<float> last = far.Predict(1).ToVector<float>();
  const int64_t bytes = OnDevice();
  DLManagedTensor* tensor = ToDLPack(model.network->parameters());
  auto* weights = static_cast<float*>(tensor->dl_tensor.data);
  for (int i = 0; i < 3; ++i) {
    for (int64_t k = 0; k < tensor->dl_tensor.shape[0]; ++k) weights[k] *= -1.5f;
    if (i == 2) tensor->deleter(tensor);
    const std::vector<float> now = far.Predict(1).ToVector<float>();
    EXPECT_NE(now, last);
    const std::vector<float> expected = near.Predict(1).ToVector<float>();
    for (size_t k = 0; k < expected.size(); ++k) EXPECT_NEAR(now[k], expected[k], 1e-6);
    last = now;
  }
  EXPECT_EQ(OnDevice(), bytes);
  const auto replica = model.ReplicaOn(kDevice);
  far.Predict(1);
  EXPECT_EQ(model.ReplicaOn(kDevice), replica);  // known again
}

TEST_F(PredictorDeviceTest, ResultsGoWhereTheCallerIs) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> far(model, translator, kDevice);
  NDManager mine = NDManager::NewBaseManager();
  {
    const ManagerScope scope(mine);
    const NDArray result = far.Predict(1);
    EXPECT_TRUE(mine.Manages(result));
    EXPECT_EQ(result.device(), kDevice);
  }
  Workspace here("here", WorkspaceConfig::Inference()),
      there("there", WorkspaceConfig::Inference(), kDevice);
  {
    const WorkspaceScope scope(here);  // the host's: not for an array of the device
    const NDArray result = far.Predict(1);
    EXPECT_EQ(result.device(), kDevice);
    EXPECT_FALSE(result.IsAttached());
  }
  const WorkspaceScope scope(there);
  EXPECT_TRUE(far.Predict(1).IsAttached());
}

TEST_F(PredictorDeviceTest, ManyThreadsShareOneCopy) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> first(model, translator, kDevice);
  const std::vector<float> expected = first.Predict(1).ToVector<float>();
  const auto replica = model.ReplicaOn(kDevice);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&] {
      Probabilities mine;
      Predictor<float, NDArray> predictor(model, mine, kDevice);
      for (int i = 0; i < 50; ++i) EXPECT_EQ(predictor.Predict(1).ToVector<float>(), expected);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(model.ReplicaOn(kDevice), replica);
}

TEST_F(PredictorDeviceTest, AClosedModelTakesItsCopiesAlong) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> far(model, translator, kDevice);
  far.Predict(1);
  EXPECT_GT(OnDevice(), 0);
  model.Close();
  EXPECT_EQ(OnDevice(), 0);
  try {
    far.Predict(1);
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("model \"small\" is closed"));
  }
}

TEST_F(PredictorDeviceTest, ACopyThatFailsLeavesEverythingAsItWas) {
  SimulatedDevice& device = SimulatedDevice::Get();
  int refused = 0;
  bool more = true;
  for (int64_t n = 0; more; ++n) {
    device.Reset();
    Model model = SmallModel();
    Probabilities translator;
    Predictor<float, NDArray> far(model, translator, kDevice);
    device.faults().FailRequest(n);
    try {
      far.Predict(1);
    } catch (const Error&) {
      ++refused;
    }
    more = device.faults().failed() > 0;  // also those that the workspace makes up for
    device.faults().Clear();
    const NDArray result = far.Predict(1);
    EXPECT_EQ(result.device(), kDevice);
    EXPECT_EQ(result.ToVector<float>(),
              Softmax(model.network->Output(Full({1, 16}, 1))).ToVector<float>());
  }
  EXPECT_GE(refused, 2);
  std::printf("%d calls refused\n", refused);
}

TEST_F(PredictorDeviceTest, ParametersOfAnotherShapeAreRefused) {
  Model model = SmallModel();
  try {
    model.network->ParametersIn(Zeros({3}));
    ADD_FAILURE() << "expected an error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("parameters are f32 [3], expected f32 ["));
  }
}

}  // namespace
}  // namespace tidepool::nn
