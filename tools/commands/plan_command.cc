#include <chrono>
#include <cstdio>
#include <optional>
#include <string>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/planning/search_planner.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/commands.h"
#include "tidepool/tools/commands/flags.h"
#include "tidepool/tools/commands/output_paths.h"

ABSL_FLAG(std::string, input, "", "CSV with id,lower,upper,size (plan), or a shape: 28,28,1");
ABSL_FLAG(std::string, output, "", "the same with the column offset; empty: not written");
ABSL_FLAG(int64_t, capacity, 0, "bytes the placement must fit; 0: as few as possible");
ABSL_FLAG(int64_t, alignment, 1, "of every offset and size, in bytes");
ABSL_FLAG(absl::Duration, time_limit, absl::Seconds(10), "of the search, such as 10s or 500ms");

namespace tidepool::tools {
namespace {

using Clock = std::chrono::steady_clock;

double Milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

// `live_bound` is the same for all planners, so that their ratios compare.
void PrintResult(const char* name, const Placement& placement, int64_t live_bound,
                 double milliseconds) {
  const double bound = static_cast<double>(live_bound);
  std::printf("%-12s %14lld  ratio %.4f  %10.2f ms\n", name, static_cast<long long>(placement.peak),
              bound > 0 ? static_cast<double>(placement.peak) / bound : 1.0, milliseconds);
}

}  // namespace

int RunPlanCommand() {
  const std::string input = Required("input", absl::GetFlag(FLAGS_input));
  const std::string output = absl::GetFlag(FLAGS_output);
  SearchOptions options;
  options.capacity = absl::GetFlag(FLAGS_capacity);
  if (options.capacity < 0) {
    ThrowInvalidArgument(
        absl::StrCat("flag --capacity is ", options.capacity, ", expected at least 0"));
  }
  options.alignment = AtLeastOne("alignment", absl::GetFlag(FLAGS_alignment));
  options.time_limit = absl::GetFlag(FLAGS_time_limit);
  if (options.time_limit < absl::ZeroDuration()) {
    ThrowInvalidArgument(absl::StrCat("flag --time_limit is ",
                                      absl::FormatDuration(options.time_limit),
                                      ", expected at least 0"));
  }
  CheckOutputPaths({{"output", output}},
                   {{"input", input}});  // before the search, which may take hours
  NamedProblem problem = ReadProblemFile(input);

  Clock::time_point start = Clock::now();
  Placement placement = PlanGreedy(problem.buffers, options.alignment);
  const double greedy = Milliseconds(start);
  std::printf("%-12s %14zu\n", "buffers", problem.buffers.size());
  const int64_t live_bound = placement.lower_bound;
  std::printf("%-12s %14lld\n", "lower bound", static_cast<long long>(live_bound));
  PrintResult("greedy peak", placement, live_bound, greedy);

  start = Clock::now();
  placement = SearchPlanner(problem.buffers, options).Run();
  PrintResult("search peak", placement, live_bound, Milliseconds(start));
  if (placement.lower_bound > live_bound) {
    std::printf("%-12s %14lld\n", "proven bound", static_cast<long long>(placement.lower_bound));
  }

  if (const std::optional<std::string> violation =
          FindPlacementViolation(problem.buffers, options.alignment, placement)) {
    ThrowInternal(absl::StrCat(input, ": the planner's placement is wrong: ", *violation));
  }
  const bool fits = options.capacity == 0 || placement.peak <= options.capacity;
  if (options.capacity > 0) {
    std::printf("%-12s %14lld  %s\n", "capacity", static_cast<long long>(options.capacity),
                fits ? "fits" : "does not fit within the time limit");
  }
  if (!output.empty()) {
    problem.offsets = placement.offsets;
    WriteProblemFile(output, problem);
    std::printf("wrote %s\n", output.c_str());
  }
  return fits ? kExitOk : kExitFailed;
}

}  // namespace tidepool::tools
