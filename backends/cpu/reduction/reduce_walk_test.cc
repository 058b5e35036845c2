#include "tidepool/backends/cpu/reduction/reduce_walk.h"

#include <cstdint>
#include <cstring>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cpu/reduction/reduce_plan.h"

namespace tidepool::cpu {
namespace {

// Runs tasks last to first, and keeps how many there were.
class BackwardPool final : public ThreadPool {
 public:
  int threads() const override { return 4; }
  void Run(int64_t count, absl::FunctionRef<void(int64_t, int)> task) override {
    tasks = count;
    for (int64_t index = count - 1; index >= 0; --index) task(index, 0);
  }
  int64_t tasks = 0;
};

// Sums of the columns of `rows` dense rows.
std::vector<double> ColumnSums(const std::vector<float>& x, int64_t columns, Threads threads) {
  const auto rows = static_cast<int64_t>(x.size()) / columns;
  ReducePlan plan;
  plan.reduced.count = 1;
  plan.reduced.axes[0] = {rows, columns, 0};
  plan.inner = {columns, 1, 1};
  plan.inner_is_reduced = false;
  const ReduceLoops& loops = *FindReduceLoops(ReduceKind::kSum, ElementKind::kF32);
  std::vector<double> scratch(ReduceScratchBytes(plan, loops) / sizeof(double)), sums(columns);
  ReduceOver(plan, loops, x.data(), sizeof(float), nullptr, 0, scratch.data(), threads,
             [&](const void* partials, int64_t begin, int64_t count, int64_t, int64_t) {
               for (int64_t i = 0; i < count; ++i) {
                 const DoubleSum& sum = static_cast<const DoubleSum*>(partials)[i];
                 sums[static_cast<size_t>(begin + i)] = sum.high + sum.low;
               }
             });
  return sums;
}

TEST(ReduceWalk, ThreadsShareColumnsOfOneRun) {
  for (const auto& [columns, rows, tasks] :
       {std::tuple<int64_t, int64_t, int64_t>{1024, 1024, 4}, {700, 2000, 2}, {2500, 300, 10}}) {
    std::vector<float> x(static_cast<size_t>(columns * rows));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 1013) * 0.37f - 100.0f;
    BackwardPool pool;
    const std::vector<double> shared = ColumnSums(x, columns, Threads(pool));
    EXPECT_EQ(pool.tasks, tasks) << columns << " columns";
    const std::vector<double> alone = ColumnSums(x, columns, 1);
    EXPECT_EQ(std::memcmp(shared.data(), alone.data(), alone.size() * sizeof(double)), 0);
    for (int64_t c = 0; c < columns; ++c) {
      double sum = 0;
      for (int64_t r = 0; r < rows; ++r) sum += static_cast<double>(x[r * columns + c]);
      ASSERT_NEAR(alone[static_cast<size_t>(c)], sum, 0.05) << c << " of " << columns;
    }
  }
}

}  // namespace
}  // namespace tidepool::cpu
