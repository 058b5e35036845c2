// Learns from first names whether their bearers are called women or men: sequences of letters of
// different lengths, read by two LSTMs from both sides.
//
//   bazel run //examples/names -- --train=$PWD/examples/data/names/train.tsv
//   --test=$PWD/examples/data/names/test.tsv
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/types/span.h"
#include "tidepool/examples/names/names_data.h"
#include "tidepool/examples/training_run/training_run.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/tools/commands/output_paths.h"
#include "tidepool/tools/commands/workspace_mode.h"

ABSL_FLAG(std::string, train, "examples/data/names/train.tsv",
          "names to learn from: name, tab, f or m");
ABSL_FLAG(std::string, test, "examples/data/names/test.tsv", "names to be asked about afterwards");
ABSL_FLAG(std::string, save, "", "where to save the model; empty: nowhere");
ABSL_FLAG(int, epochs, 12, "passes over the names");
ABSL_FLAG(int, batch, 64, "names of a step");
ABSL_FLAG(uint64_t, seed, 1, "of initial parameters and the order of names");
ABSL_FLAG(std::string, workspace_mode, "enabled", "enabled, single, separate or none");

namespace tidepool::examples {
namespace {

// Those names in this order, in the current place.
nn::Batch BatchOf(const Names& names, absl::Span<const int64_t> order) {
  const auto count = static_cast<int64_t>(order.size());
  nn::Batch batch(Empty({count, kLength}, DType::kInt64), Empty({count}, DType::kInt64));
  int64_t *letters = batch.features.mutable_data<int64_t>(),
          *labels = batch.labels.mutable_data<int64_t>();
  for (size_t i = 0; i < order.size(); ++i) {
    letters = std::copy_n(names.letters.data() + order[i] * kLength, kLength, letters);
    labels[i] = names.labels[static_cast<size_t>(order[i])];
  }
  return batch;
}

double Accuracy(nn::Network& network, const Names& names) {
  int64_t right = 0;
  network.Infer(
      [&] {
        return FromValues(names.letters, {names.size(), kLength});
      },
      [&](const NDArray& output) {
        const std::vector<int64_t> found = ArgMax(output, 1).ToVector<int64_t>();
        for (size_t i = 0; i < found.size(); ++i) right += found[i] == names.labels[i];
      });
  return static_cast<double>(right) / static_cast<double>(names.size());
}

void Run() {
  tools::CheckOutputPaths(
      {{"save", absl::GetFlag(FLAGS_save)}},
      {{"train", absl::GetFlag(FLAGS_train)}, {"test", absl::GetFlag(FLAGS_test)}});
  const Names train = ReadNames(absl::GetFlag(FLAGS_train)),
              test = ReadNames(absl::GetFlag(FLAGS_test));
  const TrainingRun run{absl::GetFlag(FLAGS_epochs), absl::GetFlag(FLAGS_batch),
                        absl::GetFlag(FLAGS_seed), absl::GetFlag(FLAGS_save)};

  nn::NetworkOptions options{.seed = run.seed};
  options.name = "names";
  options.mode = tools::ParseWorkspaceMode(absl::GetFlag(FLAGS_workspace_mode));
  nn::Model model("names", 2,
                  std::make_unique<nn::Network>(
                      nn::NetworkConfig::Sequential(
                          nn::InputConfig{"letters", {kLength}, DType::kInt64},
                          // The index 0 is no step: what follows knows how long each name is.
                          {nn::Embedding(kLetters, 24, {.mask_index = 0}),
                           nn::Bidirectional(nn::Lstm(48)), nn::DropoutLayer(0.3),
                           nn::Bidirectional(nn::Lstm(48, {.output = nn::RecurrentOutput::kLast})),
                           nn::DropoutLayer(0.3), nn::Dense(2)}),
                      options));
  nn::UpdaterConfig updater = nn::UpdaterConfig::Of(nn::UpdaterKind::kAdam);
  updater.learning_rate = 3e-3;
  updater.schedule = nn::Schedule::Cosine(StepsOf(run, train.size()));
  updater.clipping = {nn::ClippingKind::kGlobalNorm, 1};
  Train(
      model, updater, run, train.size(),
      [&](absl::Span<const int64_t> which, int64_t) { return BatchOf(train, which); },
      [&] { return Accuracy(*model.network, test); });
  std::printf("test accuracy %.4f\n", Accuracy(*model.network, test));
}

}  // namespace
}  // namespace tidepool::examples

int main(int argc, char** argv) {
  return tidepool::examples::RunProgram("names", argc, argv, tidepool::examples::Run);
}
