// Learns from first names whether their bearers are called women or men: sequences of letters of different lengths, read by two LSTMs
// from both sides.
//
//   bazel run //examples/names -- --train=$PWD/examples/data/names/train.tsv --test=$PWD/examples/data/names/test.tsv
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/embedding.h"
#include "tidepool/nn/layers/recurrent.h"
#include "tidepool/nn/layers/sequence.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/listener.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/tools/commands/memory_table.h"

ABSL_FLAG(std::string, train, "examples/data/names/train.tsv", "names to learn from: name, tab, f or m");
ABSL_FLAG(std::string, test, "examples/data/names/test.tsv", "names to be asked about afterwards");
ABSL_FLAG(std::string, save, "", "where to save the model; empty: nowhere");
ABSL_FLAG(int, epochs, 12, "passes over the names");
ABSL_FLAG(int, batch, 64, "names of a step");
ABSL_FLAG(uint64_t, seed, 1, "of initial parameters and the order of names");

namespace tidepool::examples {
namespace {

constexpr int64_t kLength = 15;   // of the longest name
constexpr int64_t kLetters = 28;  // none, a to z, hyphen

struct Names {
  std::vector<int64_t> letters;  // [names, kLength], 0 behind a name's end
  std::vector<int64_t> labels;   // 0: f, 1: m
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

Names ReadNames(const std::string& path) {
  std::ifstream file(path);
  if (!file) ThrowNotFound(absl::StrCat(path, ": cannot be opened"));
  Names names;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    const auto refuse = [&](size_t column, const std::string& expected) {
      ThrowDataLoss(absl::StrCat(path, ": line ", number, ", column ", column + 1, ": expected ", expected));
    };
    const size_t tab = line.find('\t');
    if (tab == std::string::npos || tab < 1 || tab > kLength) refuse(std::min(line.size(), tab), absl::StrCat("a name of 1 to ", kLength, " letters and a tab"));
    if (line.substr(tab) != "\tf" && line.substr(tab) != "\tm") refuse(tab + 1, "f or m");
    for (size_t i = 0; i < kLength; ++i) {
      const char letter = i < tab ? absl::ascii_tolower(static_cast<unsigned char>(line[i])) : '\0';
      if (letter != '\0' && letter != '-' && (letter < 'a' || letter > 'z')) refuse(i, "a letter or a hyphen");
      names.letters.push_back(letter == '\0' ? 0 : letter == '-' ? kLetters - 1 : letter - 'a' + 1);
    }
    names.labels.push_back(line[tab + 1] == 'm');
  }
  if (names.size() == 0) ThrowDataLoss(absl::StrCat(path, ": no names"));
  return names;
}

// Those names in this order, in the current place.
nn::Batch BatchOf(const Names& names, const int64_t* order, int64_t count) {
  nn::Batch batch(Empty({count, kLength}, DType::kInt64), Empty({count}, DType::kInt64));
  int64_t *letters = batch.features.mutable_data<int64_t>(), *labels = batch.labels.mutable_data<int64_t>();
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(names.letters.data() + order[i] * kLength, kLength, letters + i * kLength);
    labels[i] = names.labels[static_cast<size_t>(order[i])];
  }
  return batch;
}

double Accuracy(nn::Network& network, const Names& names) {
  int64_t right = 0;
  network.Infer([&] { return FromValues(names.letters, {names.size(), kLength}); },
                [&](const NDArray& output) {
                  const std::vector<int64_t> found = ArgMax(output, 1).ToVector<int64_t>();
                  for (size_t i = 0; i < found.size(); ++i) right += found[i] == names.labels[i];
                });
  return static_cast<double>(right) / static_cast<double>(names.size());
}

void Run() {
  const Names train = ReadNames(absl::GetFlag(FLAGS_train)), test = ReadNames(absl::GetFlag(FLAGS_test));
  const std::string save = absl::GetFlag(FLAGS_save);
  const int64_t batch = std::max(1, absl::GetFlag(FLAGS_batch)), epochs = absl::GetFlag(FLAGS_epochs);
  const uint64_t seed = absl::GetFlag(FLAGS_seed);

  nn::NetworkOptions options{.seed = seed};
  options.name = "names";
  nn::Model model("names", 2,
                  std::make_unique<nn::Network>(
                      nn::NetworkConfig::Sequential(
                          nn::InputConfig{"letters", {kLength}, DType::kInt64},
                          // The index 0 is no step: what follows knows how long each name is.
                          {nn::Embedding(kLetters, 24, {.mask_index = 0}), nn::Bidirectional(nn::Lstm(48)), nn::DropoutLayer(0.3),
                           nn::Bidirectional(nn::Lstm(48, {.output = nn::RecurrentOutput::kLast})), nn::DropoutLayer(0.3), nn::Dense(2)}),
                      options));
  if (!save.empty()) {
    nn::CheckModelCanBeSaved(model);
    nn::CheckModelPathIsWritable(save);
  }
  std::printf("%s; %lld parameters; %lld names to learn, %lld to be asked about\n", model.network->Describe().c_str(),
              static_cast<long long>(model.network->NumParameters()), static_cast<long long>(train.size()),
              static_cast<long long>(test.size()));

  nn::UpdaterConfig updater = nn::UpdaterConfig::Of(nn::UpdaterKind::kAdam);
  updater.learning_rate = 3e-3;
  updater.schedule = nn::Schedule::Cosine(epochs * ((train.size() + batch - 1) / batch));
  updater.clipping = {nn::ClippingKind::kGlobalNorm, 1};
  nn::Trainer trainer(model, updater);
  nn::ProgressPrinter printer(stdout);
  nn::TrainingWatch watch({.epochs = epochs, .examples = train.size()});
  watch.Add(&printer);
  tools::StepCounters counters;
  counters.Start();
  for (int64_t epoch = 0; epoch < epochs; ++epoch) {
    const std::vector<int64_t> order =
        RandomPermutation(train.size(), seed, static_cast<uint64_t>(epoch)).ToVector<int64_t>();
    for (int64_t i = 0; i < train.size(); i += batch) {
      const int64_t count = std::min(batch, train.size() - i);
      const bool steady = epoch > 0;
      if (steady) counters.BeginStep();
      const double loss = trainer.Step([&] { return BatchOf(train, order.data() + i, count); });
      if (steady) counters.EndStep();
      watch.OnStep(count, loss);
    }
    watch.OnEpoch(Accuracy(*model.network, test));
  }
  watch.OnEnd();
  std::printf("%s\n%s",
              tools::MemoryTable({&model.network->training_workspace(), &model.network->inference_workspace()}).c_str(),
              counters.Report().c_str());
  if (!save.empty()) {
    nn::SaveModelAnywhere(model, save);
    std::printf("saved %s\n", save.c_str());
  }
  std::printf("test accuracy %.4f\n", Accuracy(*model.network, test));
}

}  // namespace
}  // namespace tidepool::examples

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  try {
    tidepool::examples::Run();
    return 0;
  } catch (const tidepool::Error& error) {
    std::fprintf(stderr, "names: %s\n", error.message().c_str());
    return 2;
  }
}
