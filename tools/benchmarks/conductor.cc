#include "tidepool/tools/benchmarks/conductor.h"

#include <algorithm>
#include <memory>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/tools/benchmarks/side_process.h"

namespace tidepool::tools {
namespace {

class Side {
 public:
  Side(const MeasurementConfig& config, const std::vector<std::string>& command,
       const TrainingCase& c, SideResult& result)
      : config_(config), process_(command), result_(result) {
    result_.parameters = std::stoll(process_.Ask(absl::StrCat(
        "begin ", c.model, " ", c.batch, " ", c.threads, " ", c.updater, " ", config.data)));
    const Means warm = Steps(std::max(2, config.warm_up));
    result_.steps = config.steps > 0
                        ? config.steps
                        : std::max<int64_t>(3, config.round_seconds * 1e3 / warm.milliseconds);
  }

  void Round() {
    const Means means = Steps(result_.steps + 1);
    result_.milliseconds.push_back(means.milliseconds);
    result_.cpu_milliseconds.push_back(means.cpu_milliseconds);
  }

  void Finish() { result_.peak_kib = std::stoll(process_.Ask("memory")); }

 private:
  struct Means {
    double milliseconds = 0, cpu_milliseconds = 0;
  };

  // Means of all steps but the first.
  Means Steps(int64_t count) {
    const std::string answer = process_.Ask(absl::StrCat("steps ", count));
    std::istringstream fields(answer);
    fields >> result_.loss;
    Means sums;
    double wall, cpu;
    char slash;
    for (int64_t i = 0; i < count; ++i) {
      fields >> wall >> slash >> cpu;
      if (i == 0) continue;
      sums.milliseconds += wall * 1e-6;
      sums.cpu_milliseconds += cpu * 1e-6;
    }
    if (!fields) {
      ThrowInternal(absl::StrCat("steps ", count, ": answered \"", answer.substr(0, 80),
                                 "\", expected a loss and that many WALL/CPU"));
    }
    return {sums.milliseconds / (count - 1), sums.cpu_milliseconds / (count - 1)};
  }

  const MeasurementConfig& config_;
  SideProcess process_;
  SideResult& result_;
};

}  // namespace

CaseResult Measure(const MeasurementConfig& config, const TrainingCase& training_case) {
  CaseResult result;
  result.training_case = training_case;
  std::vector<std::unique_ptr<Side>> sides;
  sides.push_back(std::make_unique<Side>(config, config.tidepool, training_case, result.tidepool));
  if (!config.peer.empty()) {
    result.peer.emplace();
    sides.push_back(std::make_unique<Side>(config, config.peer, training_case, *result.peer));
    if (result.peer->parameters != result.tidepool.parameters) {
      ThrowInternal(absl::StrCat(training_case.model, ": Tidepool's network has ",
                                 result.tidepool.parameters, " parameters, the peer's ",
                                 result.peer->parameters, "; expected the same"));
    }
  }
  for (int round = 0; round < config.rounds; ++round) {
    for (const auto& side : sides) side->Round();
    std::reverse(sides.begin(), sides.end());
  }
  for (const auto& side : sides) side->Finish();
  return result;
}

std::string Greeting(const std::vector<std::string>& command) {
  return SideProcess(command).Ask("hello");
}

}  // namespace tidepool::tools
