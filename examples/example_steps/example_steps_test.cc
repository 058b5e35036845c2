// Steps of the networks that the programs of examples train: the same bits in every mode, nothing asked of the C++ heap or the
// system, memory as reported before, and any request of memory refused.
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/examples/autoencoder/digit_network.h"
#include "tidepool/examples/language_model/letter_network.h"
#include "tidepool/examples/names/names_network.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/nn/memory_report.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::examples {
namespace {

using nn::Batch;
using nn::kModes;
using nn::Network;
using nn::NetworkOptions;
using nn::Options;
using nn::UpdaterConfig;
using nn::UpdaterKind;

// As the programs have them, or of few numbers.
struct Example {
  const char* name;
  std::function<Network(const NetworkOptions& options, bool small)> make;
  std::function<Batch(int64_t size, int64_t step, bool small)> batch;
  std::vector<nn::InputConfig> labels;  // of the whole network
  UpdaterConfig updater;
};

const Names& SomeNames() {
  static const Names* const names = [] {
    auto* const made = new Names();
    for (int64_t i = 0; i < 64; ++i) {
      const int64_t length = 1 + i % kLength;
      for (int64_t at = 0; at < kLength; ++at) {
        made->letters.push_back(at < length ? 1 + (i * 7 + at * 5) % (kLetters - 1) : 0);
      }
      made->labels.push_back(i % 2);
    }
    return made;
  }();
  return *names;
}

std::vector<int64_t> Numbers(int64_t size, int64_t step) {
  std::vector<int64_t> numbers;
  for (int64_t i = 0; i < size; ++i) numbers.push_back((step * 3 + i * 5) % SomeNames().size());
  return numbers;
}

int64_t SideOf(bool small) { return small ? 8 : 28; }
NDArray Images(int64_t size, int64_t step, bool small) {
  return RandomUniform({size, SideOf(small), SideOf(small), 1}, 0, 1, static_cast<uint64_t>(step));
}

UpdaterConfig Updater(UpdaterKind kind, bool clips) {
  UpdaterConfig updater = UpdaterConfig::Of(kind);
  updater.schedule = nn::Schedule::Cosine(400);
  if (clips) updater.clipping = {nn::ClippingKind::kGlobalNorm, 1};
  return updater;
}

const std::vector<Example>& Examples() {
  static const auto* const examples = new std::vector<Example>{
      {"names",
       [](const NetworkOptions& options, bool small) {
         return Network(small ? NamesNetwork(4, 3) : NamesNetwork(24, 48), options);
       },
       [](int64_t size, int64_t step, bool) { return BatchOf(SomeNames(), Numbers(size, step)); },
       {{"label", {}, DType::kInt64}},
       Updater(UpdaterKind::kAdam, true)},
      {"language model",
       [](const NetworkOptions& options, bool small) {
         Network network(LetterNetwork(small ? 8 : 64, 0.2), options);
         network.set_loss([](absl::Span<const NDArray> outputs, const nn::NetworkInputs& given) {
           return Sum(Losses(outputs[0], given.labels[0]), 1) * (1 / 6.5);
         });
         return network;
       },
       [](int64_t size, int64_t step, bool) { return LettersOf(SomeNames(), Numbers(size, step)); },
       {{"label", {kPlaces}, DType::kInt64}},
       Updater(UpdaterKind::kAdamW, true)},
      {"residual",
       [](const NetworkOptions& options, bool small) {
         return Network(nn::ResidualConfig({SideOf(small), SideOf(small), 1}, 10,
                                           small ? std::vector<int64_t>{4, 8, 16}
                                                 : std::vector<int64_t>{16, 32, 64}),
                        options);
       },
       [](int64_t size, int64_t step, bool small) {
         return Batch(Images(size, step, small),
                      RandomIntegers({size}, 0, 10, static_cast<uint64_t>(step)));
       },
       {{"label", {}, DType::kInt64}},
       Updater(UpdaterKind::kAdamW, false)},
      {"autoencoder",
       [](const NetworkOptions& options, bool small) {
         Network network(DigitNetwork(SideOf(small), SideOf(small), small ? 2 : 16, small ? 3 : 16),
                         options);
         network.set_loss(nn::Loss(nn::LossKind::kBinaryCrossEntropy));
         return network;
       },
       [](int64_t size, int64_t step, bool small) {
         const NDArray images = Images(size, step, small);
         return Batch(images, images.Dup());  // as the report counts them
       },
       {{"label", {28, 28, 1}, DType::kFloat32}},
       Updater(UpdaterKind::kAdam, false)}};
  return *examples;
}

std::string Where(const Example& example, WorkspaceMode mode) {
  return std::string(example.name) + ", mode " + std::to_string(static_cast<int>(mode));
}

TEST(ExampleSteps, TwoHundredStepsGiveTheSameBitsInEveryMode) {
  for (const Example& example : Examples()) {
    std::vector<float> expected;
    std::vector<double> expected_losses;
    for (size_t i = 0; i < std::size(kModes); ++i) {
      Network network = example.make(Options(kModes[i], kModes[(i + 1) % std::size(kModes)]), true);
      nn::Trainer trainer(network, example.updater);
      std::vector<double> losses;
      std::vector<float> values;
      for (int64_t step = 0; step < 200; ++step) {
        losses.push_back(
            trainer.Step([&] { return example.batch(step % 7 == 3 ? 3 : 4, step, true); }));
        if (step % 50 != 49) continue;
        const std::vector<float> output =
            network.Output(example.batch(4, step, true).features).ToVector<float>();
        values.insert(values.end(), output.begin(), output.end());
      }
      const std::vector<float> arrays = network.arrays().ToVector<float>();
      values.insert(values.end(), arrays.begin(), arrays.end());
      if (i == 0) {
        expected = values;
        expected_losses = losses;
        EXPECT_TRUE(std::isfinite(losses.back())) << example.name;
      }
      EXPECT_EQ(values, expected) << Where(example, kModes[i]);
      EXPECT_EQ(losses, expected_losses) << Where(example, kModes[i]);
    }
  }
}

TEST(ExampleSteps, OutOfMemoryInAnyRequestLeavesTheNetworkAsOneThatNeverFailed) {
  for (const Example& example : Examples()) {
    for (const WorkspaceMode mode : kModes) {
      const nn::RefusedRuns runs =
          nn::RefuseEachRequest([&] { return example.make(Options(mode), true); }, example.updater,
                                [&](int64_t step) { return example.batch(3, step, true); });
      EXPECT_EQ(runs.others, 0) << Where(example, mode);
      EXPECT_GE(runs.refused, mode == WorkspaceMode::kNone ? runs.requests * 9 / 10 : 1)
          << Where(example, mode);
      std::printf("%s: each of %lld requests refused, %lld steps\n", Where(example, mode).c_str(),
                  static_cast<long long>(runs.requests), static_cast<long long>(runs.refused));
    }
  }
}

TEST(ExampleSteps, ASteadyStepAndRequestAllocateNothing) {
  for (const Example& example : Examples()) {
    for (size_t i = 1; i < std::size(kModes); ++i) {
      Network network = example.make(Options(kModes[i]), true);
      nn::Trainer trainer(network, example.updater);
      const Batch given = example.batch(4, 1, true);
      NDArray output = network.Output(given.features);
      const auto once = [&] {
        trainer.Step([&]() -> Batch { return {given.features.Dup(), given.labels.Dup()}; });
        network.OutputInto(given.features, output);
      };
      for (int step = 0; step < 5; ++step) once();
      network.training_workspace().FinishPlanSearch();
      network.inference_workspace().FinishPlanSearch();
      once();
      const int64_t before = AllocationCount(),
                    system = MemoryTracker::Global().system_allocations();
      for (int step = 0; step < 5; ++step) once();
      // Three stages of convolutions have more shapes than there are prepared operators of the engine kept: some are made anew.
      if (std::string(example.name) != "residual") {
        EXPECT_EQ(AllocationCount() - before, 0) << Where(example, kModes[i]);
      }
      EXPECT_EQ(MemoryTracker::Global().system_allocations() - system, 0)
          << Where(example, kModes[i]);
    }
  }
}

// Of the programs' own sizes.
TEST(ExampleSteps, TheReportIsWhatTheLedgerMeasures) {
  for (const Example& example : Examples()) {
    for (const WorkspaceMode mode : kModes) {
      constexpr int64_t kBatch = 64;
      Network reported = example.make(Options(mode), false);
      const nn::MemoryReport report = nn::ReportMemory(
          reported, {.batch = kBatch, .updater_arrays = 2, .labels = example.labels});
      const int64_t measured = nn::MeasuredTrainingBytes(
          [&] { return example.make(Options(mode), false); }, example.updater,
          [&] { return example.batch(kBatch, 1, false); });
      std::printf("%s: reported %lld, measured %lld\n", Where(example, mode).c_str(),
                  static_cast<long long>(report.training_bytes()),
                  static_cast<long long>(measured));
      EXPECT_NEAR(static_cast<double>(report.training_bytes()), static_cast<double>(measured),
                  0.02 * static_cast<double>(measured))
          << Where(example, mode);
    }
  }
}

}  // namespace
}  // namespace tidepool::examples
