// What a service has answered, and how quickly, as text for Prometheus; README.md lists the names.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_SERVICE_METRICS_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_SERVICE_METRICS_H_

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

namespace tidepool {

// What became of a request for digits.
enum class Outcome : uint8_t {
  kAnswered,
  kNoImage,
  kTooLarge,
  kQueueFull,
  kDeadline,
  kCancelled,
  kNoMemory,
  kError,
};
inline constexpr size_t kOutcomes = 8;

// Threads: any. Counting takes no lock and no memory.
class ServiceMetrics {
 public:
  // `time`: from when the request was whole to when its answer was made.
  void Count(Outcome outcome, std::chrono::nanoseconds time);

  // What others count.
  struct Others {
    std::map<int, int64_t> answers;  // of HTTP, by status
    int64_t body_bytes = 0, work_bytes = 0;
    bool is_ready = false;
  };
  std::string Text(const Others& others) const;

 private:
  static constexpr std::array kSeconds = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005,
                                          0.01,   0.025,   0.05,   0.1,   0.25,   0.5,
                                          1.0,    2.5,     5.0,    10.0};

  std::array<std::atomic<int64_t>, kOutcomes> outcomes_ = {};
  std::array<std::atomic<int64_t>, kSeconds.size() + 1> times_ = {};  // of those that were answered
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_SERVICE_METRICS_H_
