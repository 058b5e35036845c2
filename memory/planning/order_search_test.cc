#include "tidepool/memory/planning/order_search.h"

#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/planning/greedy_planner.h"
#include "tidepool/memory/planning/plan_validator.h"
#include "tidepool/memory/planning/problem_file.h"

namespace tidepool {
namespace {

constexpr auto kNever = [] { return false; };

TEST(OrderSearch, RandomProblemsAreValidAndNeverWorseThanGreedy) {
  const uint32_t seed = 77;
  SCOPED_TRACE(testing::Message() << "seed " << seed);
  std::mt19937 random(seed);
  for (int round = 0; round < 500; ++round) {
    std::vector<LifetimeBuffer> buffers(1 + random() % 30);
    for (LifetimeBuffer& buffer : buffers) {
      buffer.lower = random() % 40;
      buffer.upper = buffer.lower + 1 + random() % 20;
      buffer.size = random() % 500;
    }
    OrderSearchOptions options;
    options.alignment = 1 + random() % 64;
    options.max_orders = 200;
    const Placement found = SearchOrders(buffers, options, kNever);
    EXPECT_EQ(FindPlacementViolation(buffers, options.alignment, found), std::nullopt);
    EXPECT_LE(found.peak, PlanGreedy(buffers, options.alignment).peak);
    EXPECT_GE(found.peak, found.lower_bound);
    EXPECT_EQ(SearchOrders(buffers, options, kNever).offsets, found.offsets);  // deterministic
  }
}

TEST(OrderSearch, SolvesTheSmallInstanceAndImprovesALargeOne) {
  const NamedProblem small = ReadProblemFile("memory/planning/testdata/input.12.csv");
  OrderSearchOptions options;
  options.alignment = 1;
  options.max_orders = 20000;
  EXPECT_EQ(SearchOrders(small.buffers, options, kNever).peak, 12);
  const NamedProblem large = ReadProblemFile("memory/planning/testdata/C.1048576.csv");
  options.max_orders = 3000;
  const Placement found = SearchOrders(large.buffers, options, kNever);
  EXPECT_EQ(FindPlacementViolation(large.buffers, 1, found), std::nullopt);
  EXPECT_LE(found.peak, PlanGreedy(large.buffers, 1).peak);
}

TEST(OrderSearch, StopsWhenAskedAndAtTheCapacity) {
  const NamedProblem large = ReadProblemFile("memory/planning/testdata/D.1048576.csv");
  OrderSearchOptions options;
  options.alignment = 1;
  int asked = 0;
  const Placement found = SearchOrders(large.buffers, options, [&] { return ++asked > 10; });
  EXPECT_EQ(asked, 11);
  EXPECT_EQ(FindPlacementViolation(large.buffers, 1, found), std::nullopt);
  options.capacity = PlanGreedy(large.buffers, 1).peak;  // greedy is good enough already
  SearchOrders(large.buffers, options, [] { return ADD_FAILURE() << "asked", true; });
}

}  // namespace
}  // namespace tidepool
