#include "tidepool/examples/digit_server/service_metrics.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/metrics/exposition_writer.h"

namespace tidepool {
namespace {

using Type = ExpositionWriter::Type;

constexpr const char* kNames[kOutcomes] = {"answered", "no_image",  "too_large", "queue_full",
                                           "deadline", "cancelled", "no_memory", "error"};

}  // namespace

void ServiceMetrics::Count(Outcome outcome, std::chrono::nanoseconds time) {
  outcomes_[static_cast<size_t>(outcome)].fetch_add(1, std::memory_order_relaxed);
  if (outcome != Outcome::kAnswered) return;
  const double seconds = std::chrono::duration<double>(time).count();
  const auto bucket = std::lower_bound(kSeconds.begin(), kSeconds.end(), seconds);
  times_[static_cast<size_t>(bucket - kSeconds.begin())].fetch_add(1, std::memory_order_relaxed);
  nanoseconds_.fetch_add(time.count(), std::memory_order_relaxed);
}

std::string ServiceMetrics::Text(const Others& others) const {
  ExpositionWriter text;
  text.Family("digit_server_requests_total", Type::kCounter, "Requests for digits, by outcome.");
  for (size_t i = 0; i < kOutcomes; ++i) {
    text.Sample({{"outcome", kNames[i]}}, outcomes_[i].load(std::memory_order_relaxed));
  }
  text.Family("digit_server_request_seconds", Type::kHistogram,
              "From a request that is whole to its answer, of those that were answered.");
  std::array<int64_t, kSeconds.size() + 1> times;
  for (size_t i = 0; i < times.size(); ++i) times[i] = times_[i].load(std::memory_order_relaxed);
  text.Histogram({}, kSeconds, times,
                 static_cast<double>(nanoseconds_.load(std::memory_order_relaxed)) / 1e9);
  text.Family("digit_server_http_answers_total", Type::kCounter, "Answers of any page, by status.");
  for (const auto& [status, count] : others.answers) {
    text.Sample({{"code", absl::StrCat(status)}}, count);
  }
  text.Family("digit_server_bytes", Type::kGauge,
              "Of bodies and answers that are not taken, and of what is made of bodies.");
  text.Sample({{"of", "bodies"}}, others.body_bytes);
  text.Sample({{"of", "work"}}, others.work_bytes);
  text.Family("digit_server_ready", Type::kGauge, "1 until it stops or drains.");
  text.Sample({}, static_cast<int64_t>(others.is_ready));
  return std::move(text).Take();
}

}  // namespace tidepool
