// What is written and read is the same in every locale: here one that writes 1,5.
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/decimal_comma.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/safetensors_format.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/inference/quantisation_report.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

std::string Evaluated() {
  Evaluation evaluation(2);
  const std::vector<int64_t> labels = {0, 1, 1};
  const std::vector<float> scores = {1, 0, 0, 1, 1, 0};
  evaluation.AddScores(absl::MakeConstSpan(labels), absl::MakeConstSpan(scores));
  return evaluation.Report();
}

std::string Quantised() {
  QuantisationReport report;
  report.error = 0.25, report.agreement = 0.5, report.samples = 4;
  report.layers.emplace_back();
  return report.ToString();
}

std::string Dumped() {
  NDManager manager = NDManager::NewBaseManager();
  const NDArray array = Zeros({5000}, DType::kFloat32, manager);
  std::ostringstream out;
  manager.DebugDump(out, true);
  const std::string text = out.str();
  return text.substr(0, text.rfind(','));  // without its age
}

// As header, unknown fields of which may be any JSON.
std::string Parsed() {
  const std::string json =
      R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2],"more":[1.5,-2.5e-3,{"x":1e400}]}})";
  try {
    return ParseSafetensorsHeader(json, 2, "f").tensors.at(0).name;
  } catch (const Error& error) {
    return error.message();
  }
}

TEST(Locale, TextsAreTheSame) {
  const std::map<std::string, std::function<std::string()>> texts = {
      {"evaluation", &Evaluated},
      {"quantisation", &Quantised},
      {"manager", &Dumped},
      {"safetensors", &Parsed},
      {"array",
       [] {
         return FromValues(absl::Span<const float>({0.5f, 1e-7f, 1234567.5f}), {3}).ToString();
       }},
      {"metrics", [] { return MetricsText(); }},
      {"ledger", [] { return MemoryTracker::Global().Snapshot().ToString(); }},
      {"problem",
       [] { return FormatProblem(ParseProblem("id,lower,upper,size\n1.5,0,1,2\n", "p")); }},
  };
  for (const auto& [name, text] : texts) {
    text();  // counters of what is made the first time
    const std::string expected = text();
    const DecimalCommaScope comma;
    if (!comma.is_set()) GTEST_SKIP() << "there is no C.UTF-8";
    const std::string found = text();
    if (name != "metrics" && name != "ledger") {
      EXPECT_EQ(found, expected) << name;
    } else {  // counters go on from one to the next
      EXPECT_THAT(found, testing::Not(testing::ContainsRegex("[0-9],[0-9]"))) << name;
    }
  }
}

TEST(Locale, FilesAreTheSame) {
  const std::string path = testing::TempDir() + "/locale.model",
                    npy = testing::TempDir() + "/locale.npy";
  const Model model = MakeModel("mlp", {4, 4, 1}, 3, 7, WorkspaceMode::kEnabled);
  const DecimalCommaScope comma;
  if (!comma.is_set()) GTEST_SKIP() << "there is no C.UTF-8";
  SaveModel(model, path);
  const Model loaded = LoadModel(path);
  EXPECT_EQ(loaded.network->Describe(), model.network->Describe());
  WriteNpy(npy, FromValues(absl::Span<const double>({0.5, -1.25}), {2}));
  EXPECT_EQ(ReadNpy(npy).ToVector<double>(), (std::vector<double>{0.5, -1.25}));
}

}  // namespace
}  // namespace tidepool::nn
