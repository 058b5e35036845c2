// P3 of docs/performance.md: planned peak / live lower bound on recorded training steps.
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/problem_file.h"

namespace tidepool {
namespace {

std::vector<LifetimeBuffer> Recorded(const std::string& name) {
  return ReadProblemFile("memory/planning/testdata/traces/" + name + ".csv").buffers;
}

TEST(NetworkTraces, GreedyPlansStayWithinTwoPercentOfTheLowerBound) {
  const std::vector<std::pair<std::string, std::vector<LifetimeBuffer>>> traces = {
      {"mlp", Recorded("mlp")},
      {"lenet", Recorded("lenet")},
      {"residual net", Recorded("residual_net")},
      {"lstm", Recorded("lstm")},
  };
  for (const auto& [name, buffers] : traces) {
    ASSERT_FALSE(buffers.empty()) << name;
    const Placement placement = PlanGreedy(buffers, 64);
    EXPECT_EQ(FindPlacementViolation(buffers, 64, placement), std::nullopt) << name;
    const double ratio = static_cast<double>(placement.peak) / placement.lower_bound;
    std::printf("%-12s %5zu requests  lower bound %11lld  planned %11lld  ratio %.4f\n",
                name.c_str(), buffers.size(), static_cast<long long>(placement.lower_bound),
                static_cast<long long>(placement.peak), ratio);
    EXPECT_LE(ratio, 1.02) << name;
  }
}

}  // namespace
}  // namespace tidepool
