// Measures one case: both sides in processes of their own, in turn.
#ifndef TIDEPOOL_TOOLS_BENCHMARKS_CONDUCTOR_H_
#define TIDEPOOL_TOOLS_BENCHMARKS_CONDUCTOR_H_

#include <string>
#include <vector>

#include "tidepool/tools/benchmarks/report.h"
#include "tidepool/tools/benchmarks/training_case.h"

namespace tidepool::tools {

struct MeasurementConfig {
  std::vector<std::string> tidepool;  // command of our side
  std::vector<std::string> peer;      // command of the peer; empty: absent
  std::string data;                   // folder of IDX files
  int rounds = 11;
  int warm_up = 10;  // steps before the first round, not measured
  int steps = 0;     // in a round; 0: as many as fit round_seconds, at least 3
  double round_seconds = 0.25;
};

// New processes for each case, so that neither memory nor threads of an earlier one are left. The
// side that begins changes from round to round; the first step of each round, which finds the
// other side's data in the caches, is not measured. Throws when a side fails, and kInternal when
// the two networks have different numbers of parameters.
CaseResult Measure(const MeasurementConfig& config, const TrainingCase& training_case);

// What a side says of itself. Throws when it cannot be started.
std::string Greeting(const std::vector<std::string>& command);

}  // namespace tidepool::tools

#endif  // TIDEPOOL_TOOLS_BENCHMARKS_CONDUCTOR_H_
