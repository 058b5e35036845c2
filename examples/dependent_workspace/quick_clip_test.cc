#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/threads.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/op_contract_suite.h"

using namespace tidepool;

namespace {

const bool contract = RegisterOpContract(
    {.provider = "quick_clip", .only = {"clip f32"}, .may_refuse = {"clip f32"}, .cases = 0.3});

TEST(QuickClip, StandsFirstAndLeavesWhatItRefusesToTheNext) {
  const absl::Span<const Kernel> kernels =
      KernelRegistry::Find(OpCode::kClip, DeviceType::kHost, DType::kFloat32);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].provider, std::string("quick_clip"));
  EXPECT_EQ(Clip(Full({16}, 7), -1, 2).ToVector<float>(), std::vector<float>(16, 2));
  EXPECT_EQ(Clip(Full({3}, 7), -1, 2).ToVector<float>(),
            std::vector<float>(3, 2));  // the reference's
}

// Threads of the program's own, where a call's loops run.
class CountingPool final : public ThreadPool {
 public:
  int threads() const override { return 3; }
  void Run(int64_t tasks, absl::FunctionRef<void(int64_t, int)> task) override {
    tasks_ += tasks;
    for (int64_t i = tasks; i-- > 0;) task(i, 0);
  }
  int64_t tasks_ = 0;
};

TEST(QuickClip, RunsOnTheThreadsThatTheCallerHandsIn) {
  constexpr int64_t kElements = int64_t{1} << 20;
  CountingPool pool;
  const NDArray x = Full({kElements}, 7);
  const ThreadPoolScope scope(pool);
  const ScopedProvider provider("quick_clip");
  EXPECT_EQ(Clip(x, -1, 2).ToVector<float>(), std::vector<float>(kElements, 2));
  EXPECT_EQ(pool.tasks_, kElements / 8 / 4096);
  pool.tasks_ = 0;
  EXPECT_EQ(Clip(Full({16}, 7), -1, 2).ToVector<float>(), std::vector<float>(16, 2));
  EXPECT_EQ(pool.tasks_, 0);  // not worth it
}

}  // namespace
