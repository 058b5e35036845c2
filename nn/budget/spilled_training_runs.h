// Runs of a SpilledTrainer beside those of a Trainer, for tests.
#ifndef TIDEPOOL_NN_BUDGET_SPILLED_TRAINING_RUNS_H_
#define TIDEPOOL_NN_BUDGET_SPILLED_TRAINING_RUNS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/budget/spilled_trainer.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/network_config.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {

inline std::shared_ptr<SpillFile> SmallBlocks() {
  return std::make_shared<SpillFile>(SpillFileOptions{.block_bytes = 16384});
}

inline std::string BitsOf(const NDArray& array) {
  const NDArray dense = array.is_dense() ? array : array.Dup();
  return std::string(reinterpret_cast<const char*>(dense.raw_data()),
                     static_cast<size_t>(dense.NumElements()) * DTypeBytes(dense.dtype()));
}

// Of widths that no vector has, in `dtype`: the last bits of doubles tell in which order sums were taken.
inline Network NetworkOf(DType dtype) {
  NetworkOptions options = Options(WorkspaceMode::kEnabled);
  options.dtype = dtype;
  NetworkConfig config;
  config.AddInput("image", {28, 28, 1}, DType::kFloat32);
  config.Add(ReshapeLayer({784}), {"image"}, "flat");
  config.Add(Dense(21, Activation::kTanh), {"flat"}, "hidden");
  config.Add(Dense(19, Activation::kTanh), {"hidden"}, "next");
  config.Add(Dense(10), {"next"}, "out");
  config.outputs = {"out"};
  return Network(config, options);
}

// The loss of its i-th step.
template <typename AnyTrainer>
double StepIn(DType dtype, AnyTrainer& trainer, int i) {
  return trainer.Step([&] {
    const Batch batch = SomeBatch(4, static_cast<uint64_t>(i));
    return Batch(Cast(batch.features, dtype), batch.labels);
  });
}

// Losses of the steps, then the bits of all trained parameters.
struct Trained {
  std::vector<double> losses;
  std::vector<std::string> parameters;
  bool operator==(const Trained&) const = default;
};

template <typename AnyTrainer>
void Train(AnyTrainer& trainer, int begin, int end, Trained* trained) {
  for (int i = begin; i < end; ++i) {
    trained->losses.push_back(
        trainer.Step([&] { return SomeBatch(4 + i % 3, static_cast<uint64_t>(i)); }));
  }
}

inline Trained InMemory(Network network, const UpdaterConfig& updater, int steps) {
  Trained trained;
  Trainer trainer(network, updater);
  Train(trainer, 0, steps, &trained);
  for (const NamedParameter& parameter : network.named_parameters()) {
    if (parameter.is_trained) trained.parameters.push_back(BitsOf(parameter.value));
  }
  return trained;
}

inline void AddParameters(const SpilledTrainer& trainer, const Network& network, Trained* trained) {
  for (size_t k = 0;
       k < network.named_parameters().size() && network.named_parameters()[k].is_trained; ++k) {
    trained->parameters.push_back(BitsOf(trainer.Value(static_cast<int>(k))));
  }
}

inline Trained InAFile(Network network, const UpdaterConfig& updater, int steps, int ahead) {
  Trained trained;
  SpilledTrainer trainer(network, updater, {.file = SmallBlocks(), .ahead = ahead});
  EXPECT_EQ(trainer.stats().ahead, ahead);
  Train(trainer, 0, steps, &trained);
  EXPECT_EQ(trainer.steps(), steps);
  AddParameters(trainer, network, &trained);
  return trained;
}

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BUDGET_SPILLED_TRAINING_RUNS_H_
