#include "tidepool/nn/parallel/inference_metrics.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "tidepool/memory/metrics/exposition_writer.h"
#include "tidepool/nn/parallel/inference_census.h"

namespace tidepool::nn {
namespace {

using Type = ExpositionWriter::Type;
using Stats = ParallelInferenceStats;

// 1, 2, 4 and so on of `unit`, for all counts but the last.
template <size_t kCounts>
std::array<double, kCounts - 1> PowersOfTwo(const std::array<int64_t, kCounts>&, double unit) {
  std::array<double, kCounts - 1> bounds;
  for (size_t i = 0; i < bounds.size(); ++i)
    bounds[i] = unit * static_cast<double>(int64_t{1} << i);
  return bounds;
}

class Groups {
 public:
  explicit Groups(const std::vector<InferenceGroup>& groups) {
    for (const InferenceGroup& group : groups) groups_.push_back({group, DeviceName(group.device)});
  }

  void Family(const char* name, Type type, const char* help, auto value) {
    text_.Family(name, type, help);
    for (const auto& [group, device] : groups_)
      text_.Sample({{"service", group.id}, {"device", device}}, value(group));
  }
  void Histogram(const char* name, const char* help, double unit, auto counts, auto sum) {
    text_.Family(name, Type::kHistogram, help);
    for (const auto& [group, device] : groups_) {
      text_.Histogram({{"service", group.id}, {"device", device}},
                      PowersOfTwo(counts(group.stats), unit), counts(group.stats),
                      sum(group.stats));
    }
  }
  void Outcomes() {
    constexpr std::pair<const char*, int64_t Stats::*> kOutcomes[] = {
        {"answered", &Stats::requests},
        {"failed", &Stats::failed},
        {"refused", &Stats::refused},
        {"expired", &Stats::expired}};
    text_.Family("tidepool_inference_requests_total", Type::kCounter, "Requests, by outcome.");
    for (const auto& [group, device] : groups_) {
      for (const auto& [outcome, count] : kOutcomes) {
        text_.Sample({{"service", group.id}, {"device", device}, {"outcome", outcome}},
                     group.stats.*count);
      }
    }
  }
  std::string Take() && { return std::move(text_).Take(); }

 private:
  std::vector<std::pair<const InferenceGroup&, std::string>> groups_;
  ExpositionWriter text_;
};

}  // namespace

std::string InferenceMetricsText() {
  const std::vector<InferenceGroup> read = ReadInferences();
  if (read.empty()) return "";
  Groups groups(read);
  groups.Family("tidepool_inference_services", Type::kGauge, "Services there are.",
                [](const InferenceGroup& group) { return static_cast<int64_t>(group.alive); });
  groups.Family("tidepool_inference_workers", Type::kGauge, "Their threads that compute.",
                [](const InferenceGroup& group) { return group.workers; });
  groups.Outcomes();
  groups.Family("tidepool_inference_examples_total", Type::kCounter, "Examples answered.",
                [](const InferenceGroup& group) { return group.stats.examples; });
  groups.Histogram(
      "tidepool_inference_request_seconds",
      "From a request's call to its answer, of those that were answered.", 1e-6,
      [](const Stats& stats) -> const auto& { return stats.requests_by_time; },
      [](const Stats& stats) { return static_cast<double>(stats.nanoseconds) / 1e9; });
  groups.Histogram(
      "tidepool_inference_batch_examples", "Examples of a computed batch.", 1,
      [](const Stats& stats) -> const auto& { return stats.batches_by_size; },
      [](const Stats& stats) { return static_cast<double>(stats.batch_examples); });
  groups.Family("tidepool_inference_largest_batch_examples", Type::kGauge,
                "Examples of the largest batch so far.",
                [](const InferenceGroup& group) { return group.stats.largest_batch; });
  groups.Family("tidepool_inference_waiting_requests", Type::kGauge,
                "Requests that wait to be computed.",
                [](const InferenceGroup& group) { return group.stats.waiting; });
  groups.Family("tidepool_inference_queue_limit_requests", Type::kGauge, "How many may wait.",
                [](const InferenceGroup& group) { return group.queue_limit; });
  groups.Family("tidepool_inference_running_requests", Type::kGauge, "Requests that are computed.",
                [](const InferenceGroup& group) { return group.stats.running; });
  return std::move(groups).Take();
}

}  // namespace tidepool::nn
