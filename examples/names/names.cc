// Learns from first names whether their bearers are called women or men: sequences of letters of
// different lengths, read by two LSTMs from both sides.
//
//   bazel run //examples/names -- --train=$PWD/examples/data/names/train.tsv
//   --test=$PWD/examples/data/names/test.tsv
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/types/span.h"
#include "tidepool/examples/names/names_data.h"
#include "tidepool/examples/names/names_network.h"
#include "tidepool/examples/training_run/training_run.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/reduction.h"
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
  nn::Model model("names", 2, std::make_unique<nn::Network>(NamesNetwork(24, 48), options));
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
