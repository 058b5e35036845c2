// Workspaces on an emulated device: cycles that ask the driver for nothing, growth in place, refusals.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};

std::vector<float> Step(Workspace& workspace, const NDArray& weights, int64_t rows) {
  WorkspaceScope scope(workspace);
  const NDArray x = Full({rows, 16}, 0.5);
  const NDArray y = MatMul(x, weights);
  const NDArray z = Add(y, x);
  return z.ToVector<float>();
}

NDArray Weights() { return Full({16, 16}, 0.25, DType::kFloat32, Place::On(kCuda)); }

TEST(WorkspaceOnCuda, SteadyCyclesAskTheDriverForNothing) {
  Workspace workspace("steady", WorkspaceConfig::Training(), kCuda);
  const NDArray weights = Weights();
  for (int i = 0; i < 4; ++i) Step(workspace, weights, 40);
  const EmulatedCuda::Counters before = EmulatedCuda::Get().counters();
  for (int i = 0; i < 10; ++i) {
    ASSERT_EQ(Step(workspace, weights, 40), std::vector<float>(640, 2.5f)) << "cycle " << i;
  }
  const EmulatedCuda::Counters after = EmulatedCuda::Get().counters();
  EXPECT_EQ(after.pool_allocations, before.pool_allocations);
  EXPECT_EQ(after.allocations, before.allocations);
  EXPECT_EQ(after.maps, before.maps);
  EXPECT_EQ(after.unmaps, before.unmaps);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.device_synchronizations, before.device_synchronizations);
  EXPECT_GE(after.kernels, before.kernels + 20);
  EXPECT_EQ(after.products, before.products + 10);
}

TEST(WorkspaceOnCuda, GrowsAndShrinksWithItsCycles) {
  const NDArray weights = Weights();
  EmulatedCuda::Get().Finish();
  const size_t before = EmulatedCuda::Get().used_bytes();
  {
    Workspace workspace("growing", WorkspaceConfig::Training(), kCuda);
    for (int64_t rows : {10, 4000, 100, 20000, 10, 10, 4000}) {
      ASSERT_EQ(Step(workspace, weights, rows), std::vector<float>(rows * 16, 2.5f))
          << rows << " rows";
    }
    EXPECT_GT(EmulatedCuda::Get().used_bytes(), before);
  }
  EmulatedCuda::Get().Finish();
  EXPECT_EQ(EmulatedCuda::Get().used_bytes(), before);
}

TEST(WorkspaceOnCuda, EveryRefusalLeavesItUsable) {
  const NDArray weights = Weights();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  int refused = 0;
  for (int64_t n = 0; n < 100; ++n) {
    Workspace workspace("refused", WorkspaceConfig::Training(), kCuda);
    emulated.allocation_faults().FailRequest(n, 1000);
    try {
      for (int i = 0; i < 3; ++i) Step(workspace, weights, 2000);
    } catch (const OutOfMemoryError& error) {
      ++refused;
      EXPECT_NE(error.report().find("cuda:0"), std::string::npos) << error.report();
    }
    const bool done = emulated.allocation_faults().failed() == 0;
    emulated.allocation_faults().Clear();
    ASSERT_EQ(Step(workspace, weights, 100), std::vector<float>(1600, 2.5f)) << "request " << n;
    if (done) break;
  }
  EXPECT_GE(refused, 2);
}

TEST(WorkspaceOnCuda, TheCapacityIsALimit) {
  const NDArray weights = Weights();
  EmulatedCuda& emulated = EmulatedCuda::Get();
  Workspace workspace("small", WorkspaceConfig::Training(), kCuda);
  Step(workspace, weights, 10);
  emulated.Finish();
  emulated.set_capacity(emulated.used_bytes() + (1 << 20));
  EXPECT_THROW(Step(workspace, weights, 100000), OutOfMemoryError);
  EXPECT_EQ(Step(workspace, weights, 10), std::vector<float>(160, 2.5f));
  emulated.set_capacity(size_t{1} << 30);
  EXPECT_EQ(Step(workspace, weights, 100000), std::vector<float>(1600000, 2.5f));
}

}  // namespace
}  // namespace tidepool
