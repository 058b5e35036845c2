// The code of docs/inference.md: each part between two lines "// [name]" stands there.
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/inference/quantisation_report.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

class Inference : public testing::Test {
 protected:
  void SetUp() override {
    if (LinkedFrozenEngine() == nullptr || !LinkedFrozenEngine()->WhyNotHere().empty())
      GTEST_SKIP() << "no engine";
  }
};

// [frozen]
TEST_F(Inference, Frozen) {
  const Network network({28, 28, 1}, LeNetLayers(10));
  const FrozenNetwork frozen(network, {.batches = {8, 1}});  // pieces of 8 examples and of 1
  const NDArray x = RandomUniform({11, 28, 28, 1}, 0, 1, 1);
  NDArray y = frozen.Run(x);  // 8 + 1 + 1 + 1
  EXPECT_EQ(y.shape(), Shape({11, 10}));
  EXPECT_EQ(frozen.stats().runtimes, 2);
}
// [frozen]

// [predictor]
TEST_F(Inference, ByPredictor) {
  Model model = MakeModel("mlp", {28, 28, 1}, 10, 1, WorkspaceMode::kEnabled);
  NoopTranslator translator;
  Predictor<NDList, NDList> predictor(model, translator);
  predictor.set_engine(EngineUse::kWhereAhead, {.batches = {1, 8}});
  const NDArray x = RandomUniform({8, 28, 28, 1}, 0, 1, 1);
  predictor.Predict({x});
  EXPECT_EQ(predictor.why_not_engine(), "");  // by the engine
  predictor.Predict({x.Slice(0, 0, 3)});
  EXPECT_EQ(predictor.why_not_engine(), "a batch of 3, and the engine is asked for those of 8, 1");
  model.network->parameters() *= 0.5;  // seen: the next request freezes again
  predictor.Predict({x});
}
// [predictor]

// [int8]
TEST_F(Inference, EightBits) {
  const Network network({28, 28, 1}, LeNetLayers(10));
  FrozenOptions options{.type = FrozenType::kInt8, .batches = {8}};
  options.calibration = RandomUniform({100, 28, 28, 1}, 0, 1, 1);  // examples like those to come
  const NDArray held_out = RandomUniform({50, 28, 28, 1}, 0, 1, 2);
  const QuantisationReport report = ReportQuantisation(network, options, held_out);
  EXPECT_LT(report.error, 0.05) << report.ToString();
  options.float_layers = {report.worst_layer};  // that one stays f32
  const FrozenNetwork frozen(network, options);
  EXPECT_LT(frozen.stats().weight_bytes, report.float_weight_bytes);
}
// [int8]

// [int8_dynamic]
TEST_F(Inference, EightBitsWithoutSamples) {
  const Network network({28, 28, 1}, LeNetLayers(10));
  const FrozenOptions options{
      .type = FrozenType::kInt8, .batches = {8}, .ranges = QuantisedRanges::kDynamic};
  const QuantisationReport report =
      ReportQuantisation(network, options, RandomUniform({50, 28, 28, 1}, 0, 1, 2));
  EXPECT_LT(report.error, 0.02) << report.ToString();
}
// [int8_dynamic]

}  // namespace
}  // namespace tidepool::nn
