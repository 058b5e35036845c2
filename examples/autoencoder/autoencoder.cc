// Learns to say a handwritten digit in 16 numbers and to draw it again from those: convolutions and
// transposed ones, beside principal components of as many numbers. Draws what both make of digits
// that they have not seen.
//
//   bazel run //examples/autoencoder -- --data=$PWD/examples/data/mnist --picture=/tmp/digits.png
#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "tidepool/examples/autoencoder/digit_network.h"
#include "tidepool/examples/autoencoder/picture.h"
#include "tidepool/examples/training_run/digits.h"
#include "tidepool/examples/training_run/training_run.h"
#include "tidepool/ndarray/linalg/decompositions.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/losses/loss.h"
#include "tidepool/tools/commands/output_paths.h"
#include "tidepool/tools/commands/workspace_mode.h"

ABSL_FLAG(std::string, data, "examples/data/mnist",
          "folder with the four IDX files of MNIST's names");
ABSL_FLAG(std::string, save, "", "where to save the model; empty: nowhere");
ABSL_FLAG(std::string, picture, "",
          "where to draw digits, what the network makes of them and what principal components do; "
          "empty: nowhere");
ABSL_FLAG(int, epochs, 10, "passes over the images");
ABSL_FLAG(int, batch, 64, "images of a step");
ABSL_FLAG(int, examples, 0, "at most so many images to learn and to be asked about; 0: all");
ABSL_FLAG(uint64_t, seed, 1, "of initial parameters and the order of images");
ABSL_FLAG(std::string, workspace_mode, "enabled", "enabled, single, separate or none");

namespace tidepool::examples {
namespace {

constexpr int64_t kCode = 16, kFilters = 16;

double MeanSquared(const NDArray& difference) {
  return Mean(Square(Cast(difference, DType::kFloat64))).Item<double>();
}

// Through the first `kCode` principal components of the images `from`.
NDArray ByPrincipalComponents(const NDArray& from, const NDArray& images) {
  const auto rows = [](const NDArray& x) {
    return Cast(x, DType::kFloat64).Reshape({x.dim(0), x.NumElements() / x.dim(0)});
  };
  const NDArray x = rows(from), mean = Mean(x, 0), centred = x - mean;
  const NDArray vectors =
      linalg::SymmetricEigen(MatMul(centred, centred, {.transpose_x = true})).vectors;
  const NDArray components = vectors.Slice(1, vectors.dim(1) - kCode, vectors.dim(1)).Dup();
  const NDArray codes = MatMul(rows(images) - mean, components);
  return Cast(MatMul(codes, components, {.transpose_y = true}) + mean, DType::kFloat32)
      .Reshape(images.shape());
}

void Draw(const std::string& path, const std::vector<NDArray>& rows) {
  constexpr int64_t kColumns = 12, kScale = 2, kGap = 4;
  const int64_t columns = std::min(kColumns, rows[0].dim(0)), height = rows[0].dim(1),
                width = rows[0].dim(2);
  const int64_t down = height * kScale + kGap, right = width * kScale + kGap;
  Picture picture(static_cast<int64_t>(rows.size()) * down + kGap, columns * right + kGap);
  for (size_t row = 0; row < rows.size(); ++row) {
    const std::vector<float> values = rows[row].ToVector<float>();
    for (int64_t column = 0; column < columns; ++column) {
      picture.Draw(static_cast<int64_t>(row) * down + kGap, column * right + kGap,
                   values.data() + column * height * width, height, width, kScale);
    }
  }
  WritePng(picture, path);
  std::printf("drew %s\n", path.c_str());
}

void Run() {
  const std::string picture = absl::GetFlag(FLAGS_picture);
  tools::CheckOutputPaths({{"save", absl::GetFlag(FLAGS_save)}, {"picture", picture}},
                          tools::ImageFilesOf("data", absl::GetFlag(FLAGS_data)));
  const ImageFolder data = LoadImageFolder(absl::GetFlag(FLAGS_data));
  const int64_t examples = CountOf(data.train, absl::GetFlag(FLAGS_examples));
  const TrainingRun run{absl::GetFlag(FLAGS_epochs), absl::GetFlag(FLAGS_batch),
                        absl::GetFlag(FLAGS_seed), absl::GetFlag(FLAGS_save)};

  nn::NetworkOptions options{.seed = run.seed};
  options.name = "autoencoder";
  options.mode = tools::ParseWorkspaceMode(absl::GetFlag(FLAGS_workspace_mode));
  // One output channel: a model says how long its outputs' last axis is.
  nn::Model model("autoencoder", 1,
                  std::make_unique<nn::Network>(
                      DigitNetwork(data.train.height, data.train.width, kFilters, kCode), options));
  nn::Network& network = *model.network;
  network.set_loss(
      nn::Loss(nn::LossKind::kBinaryCrossEntropy));  // a pixel is how probably it is white

  std::vector<int64_t> all(static_cast<size_t>(std::max(data.train.count, data.test.count)));
  std::iota(all.begin(), all.end(), 0);
  const auto first = [&](int64_t count) {
    return absl::MakeConstSpan(all).subspan(0, static_cast<size_t>(count));
  };
  const NDArray asked =
      PixelsOf(data.test, first(CountOf(data.test, absl::GetFlag(FLAGS_examples))));
  NDArray drawn = Empty(asked.shape());
  const auto error = [&] {
    network.OutputInto(asked, drawn);
    SigmoidInto(drawn, drawn);
    return MeanSquared(drawn - asked);
  };

  nn::UpdaterConfig updater = nn::UpdaterConfig::Of(nn::UpdaterKind::kAdam);
  updater.learning_rate = 3e-3;
  updater.schedule = nn::Schedule::OneCycle(StepsOf(run, examples));
  Train(
      model, updater, run, examples,
      [&](absl::Span<const int64_t> which, int64_t) {
        const NDArray pixels = PixelsOf(data.train, which);
        return nn::Batch(pixels, pixels);
      },
      error);

  const NDArray by_components = ByPrincipalComponents(PixelsOf(data.train, first(examples)), asked);
  const double of_network = error();
  if (!picture.empty()) Draw(picture, {asked, drawn, by_components});
  std::printf("test mean squared error %.5f, by principal components %.5f\n", of_network,
              MeanSquared(by_components - asked));
}

}  // namespace
}  // namespace tidepool::examples

int main(int argc, char** argv) {
  return tidepool::examples::RunProgram("autoencoder", argc, argv, tidepool::examples::Run);
}
