// The n-th request of a training loop to the memory provider is refused, for every n: the step
// throws OutOfMemoryError and changes nothing, and done again it gives the bits it would have given.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

constexpr int kSteps = 4;

const LabelledImages& Digits() {
  static const LabelledImages* const digits =
      new LabelledImages(LoadImageFolder("examples/data/mnist").train);
  return *digits;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<float> parameters;
  int refused = 0;
  int64_t requests = 0;
  int64_t failed = 0;
};

int64_t TotalBytes() { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; }

// Faults begin with the first step; a refused one is done again.
Outcome Train(FailingProvider& memory, const std::string& name, WorkspaceMode mode, int64_t n,
              int64_t count) {
  Model model = MakeModel(name, {28, 28, 1}, 10, 17, mode);
  Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
  const ImageBatches batches(Digits(), 8);
  Outcome run;
  memory.faults().FailRequest(n, count);
  while (trainer.steps() < kSteps) {
    const std::vector<float> before = model.network->parameters().ToVector<float>();
    const int64_t steps = trainer.steps();
    try {
      run.losses.push_back(trainer.Step([&] { return batches.Make(steps); }));
    } catch (const OutOfMemoryError&) {
      ++run.refused;
      EXPECT_EQ(trainer.steps(), steps);
      EXPECT_EQ(model.network->parameters().ToVector<float>(), before);
      EXPECT_FALSE(model.network->training_workspace().is_open());
      if (run.refused > 2 * count) break;
    }
  }
  run.requests = memory.faults().requests();
  run.failed = memory.faults().failed();
  memory.faults().Clear();
  run.parameters = model.network->parameters().ToVector<float>();
  return run;
}

TEST(TrainingFault, ARefusedStepChangesNothingAndIsDoneAgainWithTheSameBits) {
  FailingProvider memory{Host()};
  for (const char* name : {"mlp", "lenet"}) {
    for (WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kSingle,
                               WorkspaceMode::kSeparate, WorkspaceMode::kNone}) {
      const Outcome expected = Train(memory, name, mode, 0, 0);
      ASSERT_EQ(expected.refused, 0);
      const int64_t before = TotalBytes();
      int refused = 0, runs = 0;
      // Without a workspace every array is a request: some of them stand for all.
      const int64_t step = std::max<int64_t>(1, expected.requests / 40);
      for (int64_t count : {1, 3}) {
        for (int64_t n = 0; n < expected.requests; n += step) {
          SCOPED_TRACE(testing::Message()
                       << name << ", request " << n << ", " << count << " times");
          const Outcome run = Train(memory, name, mode, n, count);
          EXPECT_GT(run.failed, 0);
          EXPECT_EQ(run.losses, expected.losses);
          EXPECT_EQ(run.parameters, expected.parameters);
          EXPECT_EQ(TotalBytes(), before);
          refused += run.refused;
          ++runs;
          if (testing::Test::HasFailure()) return;
        }
      }
      std::printf("%s, mode %d: %lld requests in %d steps, %d runs, %d steps refused\n", name,
                  static_cast<int>(mode), static_cast<long long>(expected.requests), kSteps, runs,
                  refused);
      EXPECT_GT(refused, 0);
    }
  }
}

// Whatever memory is refused in a step that an update follows: the loss scale is where it was when the step is done again.
TEST(TrainingFault, AStepThatFailsLeavesTheLossScale) {
  Network network(NetworkConfig::Sequential({3}, {Dense(4), Dense(2)}),
                  {.mode = WorkspaceMode::kNone});
  UpdaterConfig config = UpdaterConfig::Of(UpdaterKind::kSgd);
  config.clipping = {ClippingKind::kGlobalNorm, 1};
  Trainer trainer(network, config);
  trainer.set_loss_scale({.first = 4, .growth_interval = 1});
  const auto step = [&trainer] {
    trainer.Step([] { return Batch(Ones({2, 3}), Zeros({2}, DType::kInt64)); });
  };
  step();
  FailingProvider host(Host());
  int failed = 0;
  for (int64_t request = 0;; ++request) {
    const LossScale before = *trainer.loss_scale();
    host.faults().FailRequest(request);
    bool fails = false;
    try {
      step();
    } catch (const Error&) {
      fails = true;
    }
    host.faults().Clear();
    if (!fails) break;
    ++failed;
    EXPECT_TRUE(before == *trainer.loss_scale()) << "request " << request;
    ASSERT_LT(request, 1000);
  }
  EXPECT_GT(failed, 3);
}

}  // namespace
}  // namespace tidepool::nn
