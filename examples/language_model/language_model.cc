// Learns to spell first names, letter by letter: a transformer with causal attention, whose output
// layer shares the letters' table, beside a model that counts. Then makes some names up.
//
//   bazel run //examples/language_model -- --train=$PWD/examples/data/names/train.tsv
//   --test=$PWD/examples/data/names/test.tsv
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tidepool/examples/language_model/letter_network.h"
#include "tidepool/examples/language_model/ngram_model.h"
#include "tidepool/examples/names/names_data.h"
#include "tidepool/examples/training_run/training_run.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/tools/commands/output_paths.h"
#include "tidepool/tools/commands/workspace_mode.h"

ABSL_FLAG(std::string, train, "examples/data/names/train.tsv",
          "names to learn from: name, tab, f or m");
ABSL_FLAG(std::string, test, "examples/data/names/test.tsv", "names that bits are counted of");
ABSL_FLAG(std::string, save, "", "where to save the model; empty: nowhere");
ABSL_FLAG(int, epochs, 60, "passes over the names");
ABSL_FLAG(int, batch, 64, "names of a step");
ABSL_FLAG(double, dropout, 0.2, "how much of what goes from block to block is dropped in training");
ABSL_FLAG(double, learning_rate, 5e-3, "the highest");
ABSL_FLAG(int, width, 64, "of what is known of each place, a multiple of 4");
ABSL_FLAG(int, names, 10, "how many names to make up");
ABSL_FLAG(uint64_t, seed, 1,
          "of parameters, the order of names, dropout and names that are made up");
ABSL_FLAG(std::string, workspace_mode, "enabled", "enabled, single, separate or none");

namespace tidepool::examples {
namespace {

constexpr int kMostLetters = 6;  // that the counting model looks back

std::vector<int64_t> All(const Names& names) {
  std::vector<int64_t> which(static_cast<size_t>(names.size()));
  for (size_t i = 0; i < which.size(); ++i) which[i] = static_cast<int64_t>(i);
  return which;
}

int64_t SymbolsOf(const Names& names) {
  int64_t count = 0;
  for (int64_t i = 0; i < names.size(); ++i) count += LengthOf(names, i) + 1;
  return count;
}

double BitsPerCharacter(nn::Network& network, const Names& names) {
  const nn::Batch all = LettersOf(names, All(names));
  double nats = 0;
  network.Infer([&] { return all.features; },
                [&](const NDArray& output) {
                  nats = Sum(Cast(Losses(output, all.labels), DType::kFloat64)).Item<double>();
                });
  return nats / std::log(2.0) / static_cast<double>(SymbolsOf(names));
}

double BitsPerCharacter(int order, const Names& train, const Names& test) {
  const auto text = [](const Names& names, int64_t i) {
    const int64_t* const letters = names.letters.data() + i * kLength;
    return std::string(letters, letters + LengthOf(names, i)) + static_cast<char>(kEnd);
  };
  NgramModel model(order, kLetters);
  for (int64_t i = 0; i < train.size(); ++i) model.Add(text(train, i));
  model.Finish();
  double bits = 0;
  for (int64_t i = 0; i < test.size(); ++i) {
    const std::string name = text(test, i);
    for (size_t at = 0; at < name.size(); ++at) bits -= std::log2(model.Probability(name, at));
  }
  return bits / static_cast<double>(SymbolsOf(test));
}

// Letter by letter, all names at once, each drawn by the probabilities of the network.
std::vector<std::string> MakeUp(nn::Network& network, int64_t count, uint64_t seed) {
  std::vector<std::string> names(static_cast<size_t>(count));
  NDArray letters = Zeros({count, kPlaces}, DType::kInt64);
  std::vector<bool> ended(names.size());
  for (int64_t place = 0; place < kPlaces && count > 0; ++place) {
    const std::vector<float> probabilities =
        Softmax(network.Output(letters).Index(1, place).Dup()).ToVector<float>();
    const std::vector<float> drawn =
        RandomUniform({count}, 0, 1, seed, static_cast<uint64_t>(place)).ToVector<float>();
    for (size_t i = 0; i < names.size(); ++i) {
      const float* const of_name = probabilities.data() + i * kLetters;
      int64_t letter = 0;
      for (float left = drawn[i] - of_name[0]; left >= 0 && letter + 1 < kLetters;)
        left -= of_name[++letter];
      ended[i] = ended[i] || letter == kEnd;
      if (ended[i]) continue;
      names[i] +=
          letter == kLetters - 1 ? '-' : static_cast<char>((place == 0 ? 'A' : 'a') + letter - 1);
      if (place + 1 < kPlaces)
        letters.mutable_data<int64_t>()[static_cast<int64_t>(i) * kPlaces + place + 1] = letter;
    }
  }
  return names;
}

void Run() {
  tools::CheckOutputPaths(
      {{"save", absl::GetFlag(FLAGS_save)}},
      {{"train", absl::GetFlag(FLAGS_train)}, {"test", absl::GetFlag(FLAGS_test)}});
  const int names = absl::GetFlag(FLAGS_names);
  if (names < 0) {
    ThrowInvalidArgument(absl::StrCat("flag --names is ", names, ", expected 0 or more"));
  }
  const Names train = ReadNames(absl::GetFlag(FLAGS_train)),
              test = ReadNames(absl::GetFlag(FLAGS_test));
  const TrainingRun run{absl::GetFlag(FLAGS_epochs), absl::GetFlag(FLAGS_batch),
                        absl::GetFlag(FLAGS_seed), absl::GetFlag(FLAGS_save)};
  nn::NetworkOptions options{.seed = run.seed};
  options.name = "language model";
  options.mode = tools::ParseWorkspaceMode(absl::GetFlag(FLAGS_workspace_mode));
  nn::Model model(
      "language_model", kLetters,
      std::make_unique<nn::Network>(
          LetterNetwork(absl::GetFlag(FLAGS_width), absl::GetFlag(FLAGS_dropout)), options));
  // Every letter counts the same: a name's loss is the sum of its letters', in letters of a name of
  // usual length.
  const double usual_length =
      static_cast<double>(SymbolsOf(train)) / static_cast<double>(train.size());
  model.network->set_loss([=](absl::Span<const NDArray> outputs, const nn::NetworkInputs& given) {
    return Sum(Losses(outputs[0], given.labels[0]), 1) * (1 / usual_length);
  });
  nn::UpdaterConfig updater = nn::UpdaterConfig::Of(nn::UpdaterKind::kAdamW);
  updater.learning_rate = absl::GetFlag(FLAGS_learning_rate);
  updater.schedule = nn::Schedule::OneCycle(StepsOf(run, train.size()), 0.1);
  updater.clipping = {nn::ClippingKind::kGlobalNorm, 1};
  Train(
      model, updater, run, train.size(),
      [&](absl::Span<const int64_t> which, int64_t) { return LettersOf(train, which); },
      [&] { return BitsPerCharacter(*model.network, test); });

  std::printf("names made up:");
  for (const std::string& name : MakeUp(*model.network, names, run.seed)) {
    std::printf(" %s", name.c_str());
  }
  double counted = std::numeric_limits<double>::infinity();
  std::printf("\nbits per character by counting, behind so many letters:");
  for (int letters = 0; letters <= kMostLetters; ++letters) {
    const double bits = BitsPerCharacter(letters + 1, train, test);
    std::printf(" %d: %.3f", letters, bits);
    counted = std::min(counted, bits);
  }
  std::printf("\ntest bits per character %.4f, by counting %.4f\n",
              BitsPerCharacter(*model.network, test), counted);
}

}  // namespace
}  // namespace tidepool::examples

int main(int argc, char** argv) {
  return tidepool::examples::RunProgram("language_model", argc, argv, tidepool::examples::Run);
}
