#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"
using namespace tidepool;
using namespace tidepool::nn;

void Managers() {
  NDManager model = NDManager::NewBaseManager(Host(), "model");
  const NDArray weights = model.RandomNormal({4, 2}, 0, 1, 1);
  model.Cap();
  NDArray kept, dropped;
  {
    NDManager request = model.NewSubManager("request");
    ManagerScope scope(request);  // results are the request's, although `weights` are the model's
    const NDArray y = MatMul(Ones({3, 4}), weights);
    kept = y.Detach();
    dropped = y;
  }
  std::printf("kept %d, dropped %d\n", kept.IsInScope(), dropped.is_closed());
  try {
    const NDArray stray = weights * 2;  // in DJL this stays in the model until the process ends
  } catch (const Error& error) {
    std::printf("%.88s...\n", error.message().c_str());
  }
}

class SideTranslator final : public Translator<std::pair<float, float>, std::string> {
 public:
  NDList ProcessInput(PredictorContext&, const std::pair<float, float>& point) override {
    return {FromValues({point.first, point.second}, {2})};
  }
  std::string ProcessOutput(PredictorContext&, NDList outputs) override {
    return ArgMax(outputs[0], 0).Item<int64_t>() == 1 ? "above" : "below";
  }
};

int main() {
  Managers();

  const std::string path = std::filesystem::temp_directory_path() / "sides_of_djl.safetensors";
  {
    Model model("sides", 2,
                std::make_unique<Network>(
                    NetworkConfig::Sequential({2}, {Dense(16, Activation::kTanh), Dense(2)})));
    UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
    adam.learning_rate = 0.01;
    Trainer trainer(model, adam);
    for (uint64_t i = 0; i < 480; ++i) {
      Batch batch = trainer.NewBatch([&] {
        const NDArray x = RandomUniform({32, 2}, -1, 1, i);
        return Batch(x, Cast(x.Index(1, 1) > x.Index(1, 0), DType::kInt64));
      });
      trainer.ComputeGradients(batch);
      trainer.Update();
    }  // the batch closes, and with it all that the step made
    SaveModel(model, path);
  }
  Model model = LoadModel(path);
  SideTranslator translator;
  Predictor<std::pair<float, float>, std::string> predictor(model, translator);
  std::printf("%s %s\n", predictor.Predict({-0.5f, 0.5f}).c_str(),
              predictor.Predict({0.5f, -0.5f}).c_str());
  std::filesystem::remove(path);
}
