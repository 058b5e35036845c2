// Requests whose network runs as a captured graph: the bits of those that do not.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

constexpr Device kDevice{DeviceType::kCuda, 0};

NDArray Images(int64_t count, int seed) {
  return RandomUniform({count, 28, 28, 1}, 0, 1, static_cast<uint64_t>(seed), 0, Place::Heap());
}

class GraphInference : public testing::Test {
 protected:
  void SetUp() override {
    if (FindDeviceProvider(kDevice) == nullptr) GTEST_SKIP() << "no CUDA device";
  }
};

TEST_F(GraphInference, RequestsGiveTheBitsOfEagerOnes) {
  for (const char* name : {"mlp", "lenet"}) {
    Model model = MakeModel(name, {28, 28, 1}, 10, 3, WorkspaceMode::kEnabled, kDevice);
    NoopTranslator translator;
    Predictor<NDList, NDList> eager(model, translator), graphs(model, translator);
    graphs.set_graphs(true);
    std::vector<NDList> kept;
    std::vector<std::vector<float>> expected;
    for (int64_t count : {4, 4, 4, 4, 4, 2, 2, 2, 2, 4, 4, 4, 4}) {
      const NDArray images = Images(count, static_cast<int>(kept.size()));
      expected.push_back(eager.Predict({images}).Single().ToVector<float>());
      kept.push_back(graphs.Predict({images}));
    }
    // Results are the caller's: later requests do not write over them.
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_EQ(kept[i].Single().ToVector<float>(), expected[i]) << name << ", request " << i;
    }
    const ReplayedStep::Stats& stats = *graphs.graph_stats();
    EXPECT_EQ(stats.failures, 0) << stats.last_failure;
    EXPECT_GE(stats.captures, 3);
    EXPECT_GE(stats.launches, 5);
    EXPECT_EQ(stats.launches + stats.done_as_it_is, 13);
    EXPECT_EQ(eager.graph_stats(), nullptr);
  }
}

TEST_F(GraphInference, NewWeightsAndTheEndAreSeen) {
  Model model = MakeModel("mlp", {28, 28, 1}, 10, 3, WorkspaceMode::kEnabled, kDevice);
  NoopTranslator translator;
  Predictor<NDList, NDList> predictor(model, translator);
  predictor.set_graphs(true);
  const NDArray images = Images(2, 1);
  for (int i = 0; i < 4; ++i) predictor.Predict({images});
  EXPECT_GE(predictor.graph_stats()->launches, 1);
  NDArray& parameters = model.network->parameters();
  std::fill_n(parameters.mutable_data<float>(), parameters.NumElements(), 0.0f);
  const NDList zeros = predictor.Predict({images});
  EXPECT_EQ(zeros.Single().ToVector<float>(), std::vector<float>(20, 0.0f));
  EXPECT_THROW(predictor.Predict({Ones({2, 27, 28, 1})}), Error);
  predictor.Predict({images});
  predictor.Close();
  EXPECT_THROW(predictor.Predict({images}), Error);
}

// The model is the host's: the graph works on the copy of its parameters, and on the next one after they
// were written to.
TEST_F(GraphInference, AModelOfTheHostToo) {
  Model model = MakeModel("mlp", {28, 28, 1}, 10, 3, WorkspaceMode::kEnabled);
  NoopTranslator translator;
  Predictor<NDList, NDList> eager(model, translator, kDevice), graphs(model, translator, kDevice);
  graphs.set_graphs(true);
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 5; ++i) {
      const NDArray images = Images(2, 10 * round + i);
      const std::vector<float> expected = eager.Predict({images}).Single().ToVector<float>();
      EXPECT_EQ(graphs.Predict({images}).Single().ToVector<float>(), expected)
          << "round " << round << ", request " << i;
    }
    NDArray& parameters = model.network->parameters();
    ScaleShiftInto(parameters, -0.5, 0, parameters);
  }
  const ReplayedStep::Stats& stats = *graphs.graph_stats();
  EXPECT_EQ(stats.failures, 0) << stats.last_failure;
  EXPECT_GE(stats.captures, 3);
  EXPECT_GE(stats.launches, 6);
}

}  // namespace
}  // namespace tidepool::nn
