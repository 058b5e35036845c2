// Files of plans that claim more memory than there is, or than anybody wants to give.
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/kinds_for_test.h"
#include "tidepool/memory/workspace/plan_file.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using testing::HasSubstr;

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

WorkspaceConfig Quiet() {
  WorkspaceConfig config;
  config.plan_search_seconds = 0;
  return config;
}

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// Of one plan of requests that are alive together, with the right checksum. Without `offsets` one lies behind the
// other.
std::string PlanFileOf(const std::string& name, const std::vector<uint64_t>& sizes,
                       const std::vector<uint64_t>& offsets = {}) {
  std::string bytes("tidepool plans\n\0", 16);
  Put<uint32_t>(bytes, kPlanFileVersion);
  Put<uint32_t>(bytes, 1);
  Put<uint64_t>(bytes, 64);
  Put<uint32_t>(bytes, static_cast<uint32_t>(sizes.size()));
  Put<uint32_t>(bytes, 0);
  uint64_t offset = 0;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Put<uint64_t>(bytes, sizes[i]);
    Put<uint64_t>(bytes, offsets.empty() ? offset : offsets[i]);
    Put<uint32_t>(bytes, static_cast<uint32_t>(sizes.size()));
    offset += sizes[i];
  }
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  Put(bytes, hash);
  const std::string path = testing::TempDir() + "/" + name;
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

void CycleOf(Workspace& workspace, const std::vector<size_t>& sizes) {
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> live;
  for (const size_t size : sizes) live.push_back(BufferHandle(AllocateHere(size)));
}

class PlanFileLimits : public testing::TestWithParam<uint64_t> {};

// More than a half of the host's memory, up to what once threw.
TEST_P(PlanFileLimits, APlanOfMoreThanIsThereIsIgnored) {
  const std::string path = PlanFileOf("huge.plans", {GetParam()});
  Workspace workspace("w", Quiet());
  const PlansLoaded loaded = workspace.LoadPlans(path);
  EXPECT_EQ(loaded.plans, 0);
  EXPECT_THAT(loaded.ignored, HasSubstr("huge.plans: a plan of "));
  EXPECT_THAT(loaded.ignored, HasSubstr("expected at most "));
  EXPECT_EQ(workspace.size(), 0);
  CycleOf(workspace, {4096});
  CycleOf(workspace, {4096});
  EXPECT_EQ(workspace.size(), 4096);
  WorkspacePool pool("p", Quiet());
  EXPECT_EQ(pool.LoadPlans(path).plans, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, PlanFileLimits,
                         testing::Values(static_cast<uint64_t>(MachineMemoryBytes()) / 128 * 64 +
                                             64,
                                         uint64_t{1} << 50, uint64_t{1} << 60));

TEST(PlanFileLimits, PlansTakeNothingBeforeACycleBeginsAsTheySay) {
  // All of it within the share, so that it is believed.
  const uint64_t most =
      static_cast<uint64_t>(MachineMemoryBytes()) / kBelievedShareOfMemory / 64 * 64;
  const uint64_t large = std::min<uint64_t>(most, kGiB) - 64;
  const std::string path = PlanFileOf("large.plans", {64, large});
  Workspace workspace("w", Quiet());
  const int64_t taken = MemoryBudget::Global().Of(Host()).taken_bytes;
  const int64_t resident = ResidentBytes();
  EXPECT_EQ(workspace.LoadPlans(path).plans, 1);
  EXPECT_EQ(workspace.size(), 0);
  for (int i = 0; i < 5; ++i) CycleOf(workspace, {128, 4096});  // others
  { const WorkspaceScope empty(workspace); }
  EXPECT_LT(workspace.size(), kMiB);
  EXPECT_LT(MemoryBudget::Global().Of(Host()).taken_bytes, taken + static_cast<int64_t>(kMiB));
  // One that begins so has pages for it, which are touched by requests alone.
  CycleOf(workspace, {64, 4096});
  EXPECT_LT(ResidentBytes(), resident + static_cast<int64_t>(256 * kMiB));
}

// A file may place small buffers far from one another: what lies between them is nobody's.
TEST(PlanFileLimits, GapsOfPlansAreNotTouched) {
  const uint64_t most =
      static_cast<uint64_t>(MachineMemoryBytes()) / kBelievedShareOfMemory / 64 * 64;
  const uint64_t far = std::min<uint64_t>(most, kGiB) - 64;
  const std::vector<std::vector<uint64_t>> offsets = {{0, 64, far}, {far, 0, 64}, {0, far, 64}};
  // As the plan, other ones from the second and from the last request on, fewer, more.
  const std::vector<std::vector<size_t>> cycles = {
      {64, 64, 64}, {64, 4096}, {64, 64, 4096}, {64, 64}, {64, 64, 64, 64}};
  for (const std::vector<uint64_t>& places : offsets) {
    for (const std::vector<size_t>& sizes : cycles) {
      const std::string path = PlanFileOf("far.plans", {64, 64, 64}, places);
      Workspace workspace("w", Quiet());
      const int64_t resident = ResidentBytes();
      EXPECT_EQ(workspace.LoadPlans(path).plans, 1);
      for (int i = 0; i < 5; ++i) CycleOf(workspace, sizes);
      EXPECT_LT(ResidentBytes(), resident + static_cast<int64_t>(64 * kMiB));
    }
  }
}

TEST(PlanFileLimits, ABudgetIsNotExceeded) {
  const std::string path = PlanFileOf("budget.plans", {64, 64 * kMiB});
  MemoryOwner& owner = MemoryOwner::Process().Child("limited");
  const MemoryOwnerScope scope(owner);
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), static_cast<int64_t>(32 * kMiB));
  {
    Workspace workspace("w", Quiet());
    const PlansLoaded loaded = workspace.LoadPlans(path);
    EXPECT_EQ(loaded.plans, 0);
    EXPECT_THAT(loaded.ignored, HasSubstr("expected at most 33554432"));
    WorkspacePool pool("p", Quiet());
    EXPECT_THAT(pool.LoadPlans(path).ignored, HasSubstr("expected at most 33554432"));
  }
  // It would fit, but for what others have taken by the time that it is followed: the cycle goes on
  // without.
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), static_cast<int64_t>(80 * kMiB));
  const BufferHandle others(NewHeapBuffer(40 * kMiB));
  Workspace workspace("w", Quiet());
  EXPECT_EQ(workspace.LoadPlans(path).plans, 1);
  for (int i = 0; i < 3; ++i) CycleOf(workspace, {64, 4096});
  EXPECT_LT(workspace.size(), kMiB);
  EXPECT_EQ(workspace.stats().spills, 2) << "of the cycle that learns";
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
}

// Pages for what was learned before are refused when a file is loaded: that is no matter of the file's plans, and learning goes
// on. (What is expected next is then in the learner's list alone, and gone with it: the address sanitizer sees who reads it.)
TEST(PlanFileLimits, PagesThatAreRefusedMeanwhileAreNoErrorOfLoading) {
  MemoryOwner& owner = MemoryOwner::Process().Child("refused meanwhile");
  const MemoryOwnerScope scope(owner);
  const auto limit = [&owner](int64_t bytes) {
    MemoryBudget::Global().SetOwnerLimit(owner, Host(), bytes);
  };
  constexpr int64_t kNone = int64_t{1} << 40;
  limit(kNone);
  const auto of = [](size_t bytes) { return Kind{{bytes, 3}, {bytes, 3}, {bytes, 3}}; };
  const std::string path = testing::TempDir() + "/refused_meanwhile.plans";
  {
    Workspace other("other", Learning());
    for (int i = 0; i < 4; ++i) Cycle(other, of(20000));
    other.SavePlans(path);
  }
  for (int small = 0; small < 4; ++small) {
    Workspace workspace("w", Learning());
    for (int i = 0; i < 4; ++i) Cycle(workspace, of(1000));
    {
      const BufferHandle held(NewHeapBuffer(40000));
      {
        const WorkspaceScope cycle(workspace);  // its pages are refused at its end
        const BufferHandle a(AllocateHere(16000)), b(AllocateHere(16000)), c(AllocateHere(16000));
        limit(65536);
      }
      for (int i = 0; i < small; ++i) Cycle(workspace, of(1000));
      EXPECT_EQ(workspace.LoadPlans(path).plans, 1);
    }
    limit(kNone);
    for (int i = 0; i < 4; ++i) Cycle(workspace, of(30000));
    const uint64_t misses = workspace.stats().misses, spills = workspace.stats().spills;
    for (int i = 0; i < 10; ++i) Cycle(workspace, of(30000));
    EXPECT_EQ(workspace.stats().misses, misses);
    EXPECT_EQ(workspace.stats().spills, spills);
  }
  limit(MemoryBudget::kUnlimited);
}

}  // namespace
}  // namespace tidepool
