// csv_training TABLE PAGE MODEL: learns the last column of a table from the others within 85 % of the memory that its steps
// ask for, and writes what memory did as a page for a browser.
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/profile/memory_profile.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/data/csv_file.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/data/normalizer.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

namespace {

using namespace tidepool;
using namespace tidepool::nn;

void Train(const std::string& table, const std::string& page, const std::string& saved) {
  CsvSchema schema;
  schema.columns = {{.name = "petal_length"},
                    {.name = "petal_width"},
                    {.name = "colour", .kind = CsvKind::kCategory},
                    {.name = "species", .kind = CsvKind::kCategory, .is_label = true}};
  const CsvTable flowers = ReadCsv(table, schema);
  constexpr int64_t kBatch = 64;
  ExampleIterator<DataSet> batches(
      std::make_shared<ArrayExamples>(flowers.features, flowers.labels),
      {.batch_size = kBatch, .seed = 7, .last = LastBatch::kDrop});
  Normalizer normalizer = Normalizer::Standardize();
  normalizer.Fit(batches);
  NormalizedIterator normalized(batches, normalizer);

  std::vector<AnyLayer> layers(6, Dense(64, Activation::kTanh));
  layers.push_back(Dense(3));
  Model model("flowers", 3, std::make_unique<Network>(Shape{flowers.features.shape()[1]}, layers));
  model.notes["normalizer"] = normalizer.ToText();
  const StepBudgetReport budget =
      SetStepBudget(*model.network, {.limit = "85%", .shape = {.batch = kBatch}});
  std::printf("%s", budget.ToString().c_str());

  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.learning_rate = 0.01;
  Trainer trainer(model, adam);
  MemoryProfile profile({.title = "Flowers"});
  double loss = 0;
  for (int epoch = 0; epoch < 20; ++epoch, normalized.Reset()) loss = trainer.Fit(normalized).loss;
  profile.WriteHtml(page);
  std::printf("%s", OutcomeOf(*model.network, budget, /*seconds_per_step=*/0).ToString().c_str());
  std::printf("loss %.4f\n", loss);
  SaveModel(model, saved);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "csv_training TABLE PAGE MODEL\n");
    return 2;
  }
  try {
    Train(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "csv_training: %s\n", error.what());
    return 1;
  }
}
