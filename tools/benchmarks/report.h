// What train_benchmark found, as a Markdown table and as JSON.
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_REPORT_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/tools/benchmarks/training_case.h"

namespace tidepool::tools {

struct Spread {
  double min = 0, median = 0, max = 0;
};
// Of at least one value; the median of an even number is the mean of the two in the middle.
Spread SpreadOf(std::vector<double> values);

struct SideResult {
  std::vector<double> milliseconds;      // per step, one mean a round
  std::vector<double> cpu_milliseconds;  // of all threads
  int64_t steps = 0;                     // in each round
  int64_t parameters = 0;
  int64_t peak_kib = -1;  // growth of the process's peak memory; -1: not known
  double loss = 0;        // of the last step
};

struct CaseResult {
  TrainingCase training_case;
  SideResult tidepool;
  std::optional<SideResult> peer;
};

struct Report {
  // What was measured on what, in this order; printed above the table and put into the JSON.
  std::vector<std::pair<std::string, std::string>> context;
  std::vector<CaseResult> cases;
};

// Peer's time over ours, round by round: above 1 Tidepool is faster. Both have as many values.
Spread RatioOf(const std::vector<double>& tidepool, const std::vector<double>& peer);

// Without a peer its columns say "absent".
std::string MarkdownOf(const Report& report);
// Google Benchmark's form: "context" and "benchmarks", one of these per case and side, real_time
// being the median.
std::string JsonOf(const Report& report);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_REPORT_H_
