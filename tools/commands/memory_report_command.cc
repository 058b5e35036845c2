// memory_report: what a network takes for a batch, and which batch fits.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/declare.h"
#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/accounting/bytes_of_text.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/memory_report.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/updater.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/commands.h"
#include "tidepool/tools/commands/flags.h"

ABSL_DECLARE_FLAG(std::string, input);
ABSL_DECLARE_FLAG(std::string, model);
ABSL_DECLARE_FLAG(std::string, updater);
ABSL_FLAG(std::string, budget, "",
          "to find the largest batch that fits: 67108864, 64MiB, 1.5GiB, 25%");
ABSL_FLAG(int64_t, classes, 10, "of the network's output");

namespace tidepool::tools {
namespace {

constexpr int64_t kMostBatch = 1 << 16;  // beyond that no largest one is looked for

Shape ShapeOfFlag(const std::string& text) {
  std::vector<int64_t> dims;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int64_t size = 0;
    if (!absl::SimpleAtoi(part, &size) || size < 1 || dims.size() == kMaxRank - 1) {
      ThrowInvalidArgument(absl::StrCat("flag --input is \"", text,
                                        "\", expected the shape of an example, such as 28,28,1"));
    }
    dims.push_back(size);
  }
  return Shape(dims);
}

int StateArraysOf(nn::UpdaterKind kind) {
  const nn::Updater updater(nn::UpdaterConfig::Of(kind), {1});
  return static_cast<int>(updater.state().size());
}

}  // namespace

int RunMemoryReport() {
  nn::MemoryReportOptions options;
  options.batch = AtLeastOne("batch", absl::GetFlag(FLAGS_batch));
  options.updater_arrays = StateArraysOf(nn::ParseUpdater(absl::GetFlag(FLAGS_updater)));
  const std::string budget = absl::GetFlag(FLAGS_budget);
  const int64_t bytes = budget.empty() ? 0 : BytesOfText("flag --budget", budget);
  const nn::Model model = nn::MakeModel(
      absl::GetFlag(FLAGS_model), ShapeOfFlag(Required("input", absl::GetFlag(FLAGS_input))),
      AtLeastOne("classes", absl::GetFlag(FLAGS_classes)), /*seed=*/0,
      ParseWorkspaceMode(absl::GetFlag(FLAGS_workspace_mode)), DeviceOfFlags());
  const nn::MemoryReport report = nn::ReportMemory(*model.network, options);
  const bool json = absl::GetFlag(FLAGS_json);
  if (bytes == 0) {
    std::printf("%s%s", (json ? report.ToJson() : report.ToString()).c_str(), json ? "\n" : "");
    return kExitOk;
  }
  const int64_t training =
      nn::LargestBatch(*model.network, options, bytes, /*training=*/true, kMostBatch);
  const int64_t inference =
      nn::LargestBatch(*model.network, options, bytes, /*training=*/false, kMostBatch);
  if (json) {
    std::printf(
        "{\n\"report\": %s,\n\"budget_bytes\": %lld, \"largest_training_batch\": %lld, "
        "\"largest_inference_batch\": %lld, \"most_that_is_tried\": %lld\n}\n",
        report.ToJson().c_str(), static_cast<long long>(bytes), static_cast<long long>(training),
        static_cast<long long>(inference), static_cast<long long>(kMostBatch));
  } else {
    const bool is_limit = training == kMostBatch || inference == kMostBatch;
    std::printf("%slargest batch within %lld bytes: training %lld, inference %lld%s\n",
                report.ToString().c_str(), static_cast<long long>(bytes),
                static_cast<long long>(training), static_cast<long long>(inference),
                is_limit ? absl::StrCat(" (", kMostBatch, ": no more is tried)").c_str() : "");
  }
  return kExitOk;
}

}  // namespace tidepool::tools
