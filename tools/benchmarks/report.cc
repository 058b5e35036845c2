#include "tidepool/tools/benchmarks/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace tidepool::tools {
namespace {

constexpr char kLegend[] = R"(
Milliseconds per training step: median (min to max) of the rounds. Ratio: peer / Tidepool, round
by round; CPU: the same of processor time. MiB: growth of the process's peak memory since before the
network was made, code first run included.

| network | batch | threads | updater | Tidepool, ms | peer, ms | ratio | CPU | Tidepool, MiB | peer, MiB |
|---|---|---|---|---|---|---|---|---|---|
)";

std::string Milliseconds(const SideResult& side) {
  const Spread spread = SpreadOf(side.milliseconds);
  return absl::StrFormat("%.3f (%.3f to %.3f)", spread.median, spread.min, spread.max);
}

std::string Mebibytes(int64_t kib) {
  return kib < 0 ? "unknown" : absl::StrFormat("%.1f", kib / 1024.0);
}

nlohmann::json JsonOf(const TrainingCase& c, const char* side_name, const SideResult& side) {
  const Spread wall = SpreadOf(side.milliseconds);
  nlohmann::json json;
  json["name"] = absl::StrCat("TrainingStep/", c.model, "/", c.updater, "/batch:", c.batch,
                              "/threads:", c.threads, "/", side_name);
  json["run_name"] = json["name"];
  json["run_type"] = "iteration";
  json["iterations"] = side.steps * static_cast<int64_t>(side.milliseconds.size());
  json["repetitions"] = side.milliseconds.size();
  json["threads"] = c.threads;
  json["time_unit"] = "ms";
  json["real_time"] = wall.median;
  json["real_time_min"] = wall.min;
  json["real_time_max"] = wall.max;
  json["cpu_time"] = SpreadOf(side.cpu_milliseconds).median;
  json["rounds_ms"] = side.milliseconds;
  json["parameters"] = side.parameters;
  json["final_loss"] = side.loss;
  if (side.peak_kib >= 0) json["peak_memory_bytes"] = side.peak_kib * 1024;
  return json;
}

}  // namespace

Spread SpreadOf(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t half = values.size() / 2;
  const double median =
      values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {values.front(), median, values.back()};
}

Spread RatioOf(const std::vector<double>& tidepool, const std::vector<double>& peer) {
  std::vector<double> ratios;
  for (size_t i = 0; i < tidepool.size(); ++i) ratios.push_back(peer[i] / tidepool[i]);
  return SpreadOf(std::move(ratios));
}

std::string MarkdownOf(const Report& report) {
  std::string text;
  for (const auto& [name, value] : report.context) {
    absl::StrAppend(&text, "- ", name, ": ", value, "\n");
  }
  absl::StrAppend(&text, kLegend);
  for (const CaseResult& result : report.cases) {
    const TrainingCase& c = result.training_case;
    std::string peer_time = "peer: absent", ratio = "absent", cpu_ratio = "absent",
                peer_memory = "absent";
    if (result.peer.has_value()) {
      const Spread spread = RatioOf(result.tidepool.milliseconds, result.peer->milliseconds);
      peer_time = Milliseconds(*result.peer);
      ratio = absl::StrFormat("%.2f (%.2f to %.2f)", spread.median, spread.min, spread.max);
      cpu_ratio = absl::StrFormat(
          "%.2f", RatioOf(result.tidepool.cpu_milliseconds, result.peer->cpu_milliseconds).median);
      peer_memory = Mebibytes(result.peer->peak_kib);
    }
    absl::StrAppend(&text, "| ", c.model, " | ", c.batch, " | ", c.threads, " | ", c.updater, " | ",
                    Milliseconds(result.tidepool), " | ", peer_time, " | ", ratio, " | ", cpu_ratio,
                    " | ", Mebibytes(result.tidepool.peak_kib), " | ", peer_memory, " |\n");
  }
  return text;
}

std::string JsonOf(const Report& report) {
  nlohmann::json json;
  json["context"] = nlohmann::json::object();
  for (const auto& [name, value] : report.context) json["context"][name] = value;
  json["benchmarks"] = nlohmann::json::array();
  for (const CaseResult& result : report.cases) {
    json["benchmarks"].push_back(JsonOf(result.training_case, "tidepool", result.tidepool));
    if (result.peer.has_value()) {
      json["benchmarks"].push_back(JsonOf(result.training_case, "peer", *result.peer));
    }
  }
  return json.dump(2) + "\n";
}

}  // namespace tidepool::tools
