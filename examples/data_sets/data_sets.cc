#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/csv_file.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/data/normalizer.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"
using namespace tidepool;
using namespace tidepool::nn;

int main() {
  const std::filesystem::path folder = std::filesystem::temp_directory_path();
  const std::string table = folder / "flats.csv", saved = folder / "flats.safetensors";
  {
    std::ofstream out(table);
    const char* const districts[] = {"old", "new", "far"};
    out << "area,district,agent,sold\n";
    for (int i = 0; i < 500; ++i) {
      const int area = 20 + i * 37 % 130, district = i * 7 % 3;
      out << area << ',' << districts[district] << ",\"Smith, J.\"," << (area > 60 + 20 * district)
          << '\n';
    }
  }
  CsvSchema schema;
  schema.columns = {{.name = "area"},
                    {.name = "district", .kind = CsvKind::kCategory},
                    {.name = "sold", .kind = CsvKind::kInteger, .is_label = true}};
  const CsvTable flats = ReadCsv(table, schema);  // agents are passed over
  for (const std::string& name : flats.feature_names) std::printf("%s ", name.c_str());

  ExampleIterator<DataSet> batches(std::make_shared<ArrayExamples>(flats.features, flats.labels),
                                   {.batch_size = 32, .seed = 7});
  Normalizer normalizer = Normalizer::Standardize();
  normalizer.Fit(batches);
  NormalizedIterator normalized(batches, normalizer);
  AsyncDataSetIterator ahead(normalized, {.prefetch = 4, .producers = 2});

  Model model("flats", 2,
              std::make_unique<Network>(
                  Shape{4}, std::vector<AnyLayer>{Dense(16, Activation::kTanh), Dense(2)}));
  model.notes["normalizer"] = normalizer.ToText();
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.learning_rate = 0.01;
  Trainer trainer(model, adam);
  double loss = 0;
  for (int epoch = 0; epoch < 60; ++epoch, ahead.Reset()) loss = trainer.Fit(ahead).loss;
  std::printf("\n%lld batches of an epoch; what sells is learned: %d\n",
              static_cast<long long>(batches.size()), loss < 0.1);
  SaveModel(model, saved);
  const Model loaded = LoadModel(saved);
  const Normalizer same = Normalizer::FromText(loaded.notes.at("normalizer"));
  std::printf("the normalizer came back with the model: %d\n",
              same.ToText() == normalizer.ToText());

  std::ofstream(table, std::ios::app) << "many,old,,1\n";
  try {
    ReadCsv(table, schema);
  } catch (const Error& error) {
    std::printf("%s\n", error.what() + folder.string().size() + 1);
  }
  std::filesystem::remove(table);
  std::filesystem::remove(saved);
}
