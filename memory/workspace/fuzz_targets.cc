// Files of plans, and cycles of workspaces that loaded them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/plan_file.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

constexpr size_t kHeaderBytes = 32, kPlanHeaderBytes = 8, kRequestBytes = 20;
constexpr size_t kMostPages = size_t{1} << 18;

template <typename T>
T Get(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}
template <typename T>
void Set(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}

WorkspaceConfig Quiet() {
  WorkspaceConfig config;
  config.plan_search_seconds = 0;
  return config;
}

// Each buffer keeps what was written to it: memory that two have shows.
void Cycle(Workspace& workspace, int layers) {
  WorkspaceScope scope(workspace);
  std::vector<BufferHandle> live;
  for (int i = 0; i < 2 * layers; ++i) {
    live.push_back(BufferHandle(AllocateHere(static_cast<size_t>(64 + 64 * (i % 5)))));
    std::memset(live.back()->data, i, live.back()->bytes);
    if (i % 3 == 2) live.erase(live.begin() + i % static_cast<int>(live.size()));
    for (const BufferHandle& buffer : live) {
      const auto first = buffer->data[0];
      ASSERT_TRUE(std::all_of(buffer->data, buffer->data + buffer->bytes,
                              [&](std::byte b) { return b == first; }));
    }
  }
}

void Repair(std::string& bytes) {
  if (bytes.size() < kHeaderBytes + sizeof(uint64_t)) return;
  const size_t end = bytes.size() - sizeof(uint64_t);
  uint64_t hash = 0xcbf29ce484222325;
  for (size_t i = 0; i < end; ++i)
    hash = (hash ^ static_cast<unsigned char>(bytes[i])) * 0x100000001b3;
  Set(bytes, end, hash);
}

// One request: 256 GiB of what a workspace's cycle begins with, and no memory to have it in.
std::string LyingPlan(uint64_t size) {
  std::string bytes("tidepool plans\n\0", 16);
  bytes.resize(kHeaderBytes + kPlanHeaderBytes + kRequestBytes + sizeof(uint64_t));
  Set<uint32_t>(bytes, 16, 1), Set<uint32_t>(bytes, 20, 1), Set<uint64_t>(bytes, 24, 64);
  Set<uint32_t>(bytes, 32, 1);
  Set<uint64_t>(bytes, 40, size), Set<uint32_t>(bytes, 56, 1);
  Repair(bytes);
  return bytes;
}

std::string FileOf(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> PlanFiles() {
  std::vector<std::string> files = {LyingPlan(64), LyingPlan(uint64_t{1} << 38),
                                    LyingPlan(uint64_t{1} << 60)};
  {
    const std::string path = testing::TempDir() + "/none.plans";
    Workspace("learns nothing", Quiet()).SavePlans(path);
    files.push_back(FileOf(path));
  }
  for (const std::vector<int>& kinds : {std::vector<int>{3}, {2, 9}, {4, 6, 8}}) {
    Workspace workspace("teacher", Quiet());
    for (int round = 0; round < 3; ++round) {
      for (const int layers : kinds) Cycle(workspace, layers);
    }
    const std::string path = testing::TempDir() + "/corpus.plans";
    workspace.SavePlans(path);
    files.push_back(FileOf(path));
  }
  return files;
}

// A count, or a request's size, offset or end.
void MutatePlans(ByteMutator& mutator, std::string& bytes) {
  if (bytes.size() < kHeaderBytes + kPlanHeaderBytes + kRequestBytes) return mutator.Mutate(bytes);
  const size_t end = bytes.size() - sizeof(uint64_t);
  if (mutator.Below(8) == 0) {
    const size_t at[] = {16, 20, 24, 28, 32, 36};
    return Set<uint32_t>(bytes, at[mutator.Below(6)], static_cast<uint32_t>(mutator.Number(3)));
  }
  // Of the first plan, as far as it goes.
  const size_t first = kHeaderBytes + kPlanHeaderBytes;
  const size_t requests = (end - first) / kRequestBytes;
  if (requests == 0) return mutator.Mutate(bytes);
  const size_t at = first + kRequestBytes * mutator.Below(requests);
  const uint64_t unit = mutator.Below(8) == 0 ? 1 : 64;
  switch (mutator.Below(4)) {
    case 0:
      return Set<uint64_t>(bytes, at, unit * mutator.Number(Get<uint64_t>(bytes, at) / unit));
    case 1:
      return Set<uint64_t>(bytes, at + 8,
                           unit * mutator.Number(Get<uint64_t>(bytes, at + 8) / unit));
    case 2:
      return Set<uint32_t>(bytes, at + 16,
                           static_cast<uint32_t>(mutator.Number(Get<uint32_t>(bytes, at + 16))));
    default:
      return Set<uint32_t>(bytes, kHeaderBytes, static_cast<uint32_t>(mutator.Number(requests)));
  }
}

void CheckPlan(const PlacedRequests& plan) {
  ASSERT_EQ(plan.offsets.size(), plan.requests.size());
  uint64_t requested = 0, peak = 0;
  for (size_t i = 0; i < plan.requests.size(); ++i) {
    const LifetimeBuffer& a = plan.requests[i];
    ASSERT_EQ(plan.offsets[i] % 64, 0);
    ASSERT_EQ(a.lower, static_cast<int64_t>(i));
    ASSERT_TRUE(a.lower < a.upper && a.upper <= static_cast<int64_t>(plan.requests.size()));
    ASSERT_GT(a.size, 0);
    requested += static_cast<uint64_t>(a.size);
    peak = std::max(peak, static_cast<uint64_t>(plan.offsets[i] + a.size));
    for (size_t k = 0; k < i; ++k) {
      const LifetimeBuffer& b = plan.requests[k];
      ASSERT_TRUE(b.upper <= a.lower || plan.offsets[i] >= plan.offsets[k] + b.size ||
                  plan.offsets[k] >= plan.offsets[i] + a.size);
    }
  }
  EXPECT_EQ(plan.requested_bytes, requested);
  EXPECT_EQ(plan.peak_bytes, peak);
  EXPECT_LE(plan.lower_bound_bytes, peak);
  for (const PinnedBuffer& pin : plan.pins) {
    ASSERT_LT(static_cast<size_t>(pin.buffer), plan.requests.size());
    EXPECT_EQ(pin.offset, plan.offsets[pin.buffer]);
  }
}

// All bytes of a file that is taken are something's.
void CheckBytes(const ParsedPlans& parsed, const std::string& bytes) {
  if (!parsed.ignored.empty()) {
    EXPECT_TRUE(parsed.cycles.empty());
    return;
  }
  size_t counted = kHeaderBytes + sizeof(uint64_t);
  for (const PlacedRequests& plan : parsed.cycles)
    counted += kPlanHeaderBytes + kRequestBytes * plan.requests.size() +
               sizeof(uint32_t) * plan.pins.size();
  EXPECT_EQ(counted, bytes.size());
  EXPECT_EQ(parsed.cycles.size(), Get<uint32_t>(bytes, 20));
}

void ReadPlanFile(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  const ParsedPlans parsed = ReadPlans(path, 64);
  for (const PlacedRequests& plan : parsed.cycles) CheckPlan(plan);
  CheckBytes(parsed, bytes);
  {
    Workspace workspace("loads", Quiet());
    const PlansLoaded loaded = workspace.LoadPlans(path);
    EXPECT_EQ(workspace.size(), 0) << "pages before a cycle";
    EXPECT_TRUE(loaded.plans > 0 || !loaded.ignored.empty() || parsed.cycles.empty());
    const WorkspaceScope scope(workspace);
    EXPECT_EQ(workspace.size(), 0) << "pages before a request";
  }
  WorkspaceConfig config = Quiet();
  config.max_size = kMostPages;
  Workspace workspace("follows", config);
  workspace.LoadPlans(path);
  for (const int layers : {3, 4, 9, 3}) Cycle(workspace, layers);
  if (!parsed.ignored.empty()) throw Error(absl::StatusCode::kDataLoss, parsed.ignored);
}

TIDEPOOL_FUZZ_TARGET(Plans, {.corpus = &PlanFiles,
                             .mutate = &MutatePlans,
                             .repair = &Repair,
                             .run = &ReadPlanFile,
                             .constant_bytes = (size_t{1} << 20) + 2 * kMostPages});

}  // namespace
}  // namespace tidepool
