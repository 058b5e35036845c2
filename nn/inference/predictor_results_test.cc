// What results of a predictor may be made of.
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/model_file.h"

namespace tidepool {
namespace {

struct Class {
  int64_t number = 0;
};
using Results = std::pair<std::vector<Class>, std::vector<std::pair<NDArray, float>>>;

class Nested final : public nn::Translator<float, Results> {
 public:
  NDList ProcessInput(nn::PredictorContext&, const float& input) override {
    return {Full({2, 2, 1}, input)};
  }
  Results ProcessOutput(nn::PredictorContext&, NDList outputs) override {
    return {{{1}, {2}}, {{outputs.Single(), 3.f}, {outputs.Single(), 4.f}}};
  }
};

TEST(PredictorResults, VectorsOfStructsAndOfPairsComeWithTheirArraysMovedOut) {
  nn::Model model = nn::MakeModel("mlp", {2, 2, 1}, 3, 1, WorkspaceMode::kEnabled);
  Nested translator;
  nn::Predictor<float, Results> predictor(model, translator);
  for (int i = 0; i < 3; ++i) {  // from the second on in the predictor's pages
    const Results results = predictor.Predict(1);
    predictor.Predict(2);  // has the pages now
    ASSERT_EQ(results.first.size(), 2u);
    EXPECT_EQ(results.first[1].number, 2);
    EXPECT_EQ(results.second[1].second, 4.f);
    const Results again = predictor.Predict(1);
    EXPECT_EQ(results.second[0].first.ToVector<float>(), again.second[1].first.ToVector<float>());
  }
}

}  // namespace
}  // namespace tidepool
