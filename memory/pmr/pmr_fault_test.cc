// Resources over workspaces where operator new fails at any point: for their own books.
#include <memory_resource>
#include <optional>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/pmr/block_oracle.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

TEST(PmrFaultTest, MakingAResourceThatFailsLeavesTheWorkspaceAsItWas) {
  for (int64_t n = 0;; ++n) {
    Workspace workspace("w", WorkspaceConfig::Inference());
    std::optional<WorkspaceResource> resource;
    until_fault = n;
    fault_happened = false;
    const bool made = Try([&] { resource.emplace(workspace); });
    ASSERT_EQ(made, !fault_happened) << n;
    if (!made) resource.emplace(workspace);
    WorkspaceScope scope(workspace);
    resource->deallocate(resource->allocate(100), 100);
    if (made) break;
    ASSERT_LT(n, 100);
  }
}

TEST(PmrFaultTest, ARequestThatFailsChangesNothing) {
  int faults = 0;
  for (int64_t n = 0;; ++n) {
    Workspace workspace("w", WorkspaceConfig::Inference());
    WorkspaceResource resource(workspace);
    bool any = false;
    until_fault = n;
    for (int cycle = 0; cycle < 2; ++cycle) {
      BlockOracle oracle;
      RequestMaker make{std::mt19937(41)};
      WorkspaceScope scope(workspace);
      for (int step = 0; step < 200; ++step) {
        const size_t bytes = make.Bytes(), alignment = make.Alignment();
        void* block = nullptr;
        fault_happened = false;
        if (!Try([&] { block = resource.allocate(bytes, alignment); })) {
          ASSERT_TRUE(fault_happened);
          any = true;
          block = resource.allocate(bytes, alignment);
        }
        oracle.Add(block, bytes, alignment);
        if (step % 3 == 2) {
          const OutBlock old = oracle.Remove(make.random() % oracle.size());
          resource.deallocate(old.data, old.bytes, old.alignment);
        }
      }
      while (oracle.size() > 0) {
        const OutBlock old = oracle.Remove(0);
        resource.deallocate(old.data, old.bytes, old.alignment);
      }
    }
    EXPECT_EQ(workspace.stats().leaked_blocks, 0u);
    faults += any;
    if (!any) break;
    ASSERT_LT(n, 500);
  }
  EXPECT_GT(faults, 5);
}

}  // namespace
}  // namespace tidepool
