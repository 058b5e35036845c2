// Names handwritten digits by a residual network with batch normalisation (nn/models.h), of images
// that are moved a little in each epoch.
//
//   bazel run //examples/residual -- --data=$PWD/examples/data/mnist
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "tidepool/examples/training_run/digits.h"
#include "tidepool/examples/training_run/training_run.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/models.h"
#include "tidepool/tools/commands/output_paths.h"
#include "tidepool/tools/commands/workspace_mode.h"

ABSL_FLAG(std::string, data, "examples/data/mnist",
          "folder with the four IDX files of MNIST's names");
ABSL_FLAG(std::string, save, "", "where to save the model; empty: nowhere");
ABSL_FLAG(int, epochs, 10, "passes over the images");
ABSL_FLAG(int, batch, 64, "images of a step");
ABSL_FLAG(int, channels, 16, "of the first of three stages; each next one has twice as many");
ABSL_FLAG(int, examples, 0, "at most so many images to learn and to be asked about; 0: all");
ABSL_FLAG(int, shift, 1, "by how many pixels images are moved at most, each way");
ABSL_FLAG(uint64_t, seed, 1, "of initial parameters, the order of images and how they are moved");
ABSL_FLAG(std::string, workspace_mode, "enabled", "enabled, single, separate or none");

namespace tidepool::examples {
namespace {

double Accuracy(nn::Network& network, const LabelledImages& images, int64_t count) {
  constexpr int64_t kAtOnce = 250;
  std::vector<int64_t> which(static_cast<size_t>(count));
  std::iota(which.begin(), which.end(), 0);
  int64_t right = 0;
  for (int64_t begin = 0; begin < count; begin += kAtOnce) {
    const auto part = absl::MakeConstSpan(which).subspan(static_cast<size_t>(begin), kAtOnce);
    network.Infer([&] { return PixelsOf(images, part); },
                  [&](const NDArray& output) {
                    const std::vector<int64_t> found = ArgMax(output, 1).ToVector<int64_t>();
                    for (size_t i = 0; i < part.size(); ++i) {
                      right += found[i] == images.labels[static_cast<size_t>(part[i])];
                    }
                  });
  }
  return static_cast<double>(right) / static_cast<double>(count);
}

void Run() {
  tools::CheckOutputPaths({{"save", absl::GetFlag(FLAGS_save)}},
                          tools::ImageFilesOf("data", absl::GetFlag(FLAGS_data)));
  const ImageFolder data = LoadImageFolder(absl::GetFlag(FLAGS_data));
  const int64_t examples = CountOf(data.train, absl::GetFlag(FLAGS_examples)),
                asked = CountOf(data.test, absl::GetFlag(FLAGS_examples));
  const TrainingRun run{absl::GetFlag(FLAGS_epochs), absl::GetFlag(FLAGS_batch),
                        absl::GetFlag(FLAGS_seed), absl::GetFlag(FLAGS_save)};
  const int64_t channels = absl::GetFlag(FLAGS_channels);
  const int64_t shift = absl::GetFlag(FLAGS_shift);
  const int64_t most = std::min(data.train.height, data.train.width) - 1;
  if (shift < 0 || shift > most) {
    ThrowInvalidArgument(absl::StrCat("flag --shift is ", shift, ", expected 0 to ", most));
  }

  nn::NetworkOptions options{.seed = run.seed};
  options.name = "residual";
  options.mode = tools::ParseWorkspaceMode(absl::GetFlag(FLAGS_workspace_mode));
  nn::Model model(
      "residual", data.train.classes,
      std::make_unique<nn::Network>(
          nn::ResidualConfig({data.train.height, data.train.width, 1}, data.train.classes,
                             {channels, 2 * channels, 4 * channels}),
          options));
  nn::UpdaterConfig updater = nn::UpdaterConfig::Of(nn::UpdaterKind::kAdamW);
  updater.learning_rate = 1e-2;
  updater.schedule = nn::Schedule::OneCycle(StepsOf(run, examples));

  Train(
      model, updater, run, examples,
      [&](absl::Span<const int64_t> which, int64_t epoch) {
        const auto count = static_cast<int64_t>(which.size());
        nn::Batch batch(NDArray(), Empty({count}, DType::kInt64));
        int64_t* const labels = batch.labels.mutable_data<int64_t>();
        for (size_t i = 0; i < which.size(); ++i)
          labels[i] = data.train.labels[static_cast<size_t>(which[i])];
        // Two numbers for each image, other ones in each epoch.
        const NDArray moves = RandomIntegers({count, 2}, -shift, shift + 1, run.seed,
                                             static_cast<uint64_t>(epoch * examples + which[0]));
        const int64_t* const by = moves.data<int64_t>();
        batch.features = PixelsOf(data.train, which,
                                  [&](size_t i) { return std::pair(by[2 * i], by[2 * i + 1]); });
        return batch;
      },
      [&] { return Accuracy(*model.network, data.test, asked); });
  std::printf("test accuracy %.4f\n", Accuracy(*model.network, data.test, asked));
}

}  // namespace
}  // namespace tidepool::examples

int main(int argc, char** argv) {
  return tidepool::examples::RunProgram("residual", argc, argv, tidepool::examples::Run);
}
