// Networks of an emulated device, as the tests of their budgets train them.
#ifndef TIDEPOOL_BACKENDS_CUDA_STEP_BUDGET_RUNS_H_
#define TIDEPOOL_BACKENDS_CUDA_STEP_BUDGET_RUNS_H_

#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

inline constexpr Device kDevice{DeviceType::kCuda, 0};
inline constexpr int64_t kBatch = 64;

inline NetworkOptions OnDevice() {
  NetworkOptions options;
  options.seed = 5;
  options.device = kDevice;
  return options;
}
inline NetworkConfig Images() { return ResidualConfig({6, 6, 1}, 3, {2, 4}); }
inline NetworkConfig Rows() {
  std::vector<AnyLayer> layers;
  for (int i = 0; i < 8; ++i) layers.push_back(Dense(128, Activation::kTanh));
  layers.push_back(LayerNormalization());
  layers.push_back(Dense(3));
  return NetworkConfig::Sequential({16}, layers);
}

inline NDArray Features(const Network& network, int64_t i, int64_t batch = kBatch) {
  std::vector<int64_t> dims = {batch};
  for (const int64_t d : network.inputs()[0].shape.span()) dims.push_back(d);
  return RandomUniform(Shape(dims), 0, 1, DType::kFloat32, static_cast<uint64_t>(i));
}
inline NDArray Labels(int64_t i, int64_t batch = kBatch) {
  return RandomIntegers({batch}, 0, 3, static_cast<uint64_t>(i));
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> arrays;
};

inline Outcome Train(Network& network, int steps, int64_t batch = kBatch) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  Outcome run;
  for (int i = 0; i < steps; ++i) {
    run.losses.push_back(
        trainer.Step([&] { return Batch(Features(network, i, batch), Labels(i, batch)); }));
  }
  run.arrays = network.arrays().ToVector<float>();
  return run;
}

// What pools keep is given back, so that what is used can be compared.
inline int64_t UsedOfDevice() {
  EmulatedCuda::Get().Finish();
  Reclaimer::Global().RunNow();
  return static_cast<int64_t>(EmulatedCuda::Get().used_bytes());
}

class StepBudgetsOnCuda : public testing::Test {
 protected:
  ~StepBudgetsOnCuda() override { EmulatedCuda::Get().set_capacity(size_t{1} << 30); }
  // The device has so many bytes beside those that are in use.
  static void Leave(int64_t bytes) {
    EmulatedCuda::Get().set_capacity(static_cast<size_t>(UsedOfDevice() + bytes));
  }
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_BACKENDS_CUDA_STEP_BUDGET_RUNS_H_
