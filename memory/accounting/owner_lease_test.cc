#include "tidepool/memory/accounting/owner_lease.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_snapshot.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

MemoryTracker& Tracker() { return MemoryTracker::Global(); }

// What a test makes goes before the next one: as many that are gone as keep their names.
void PushOutGone() {
  for (int i = 0; i <= kGoneOwnersNamed; ++i) {
    const OwnerLease lease(MemoryOwner::Process(), "pushes " + std::to_string(i));
  }
}

const OwnerMemory* Find(const MemorySnapshot& snapshot, const std::string& owner) {
  for (const OwnerMemory& memory : snapshot.owners) {
    if (memory.owner == owner) return &memory;
  }
  return nullptr;
}

bool IsThere(const MemoryOwner& parent, const std::string& name) {
  for (const MemoryOwner* owner : MemoryOwner::All()) {
    if (owner->parent() == &parent && owner->name() == name) return true;
  }
  return false;
}

void Charge(MemoryOwner& owner, int64_t bytes) {
  MemoryBudget::Global().Reserve(Host(), owner, bytes, "a test");
  Tracker().Add(Host(), MemoryKind::kAllocated, bytes, &owner);
}
void Uncharge(MemoryOwner& owner, int64_t bytes) {
  Tracker().Add(Host(), MemoryKind::kAllocated, -bytes, &owner);
  MemoryBudget::Global().Release(Host(), owner, bytes);
}

TEST(OwnerLeaseTest, LeasesOfOneNameAreOfOneNodeWhichTheLastOneEnds) {
  MemoryOwner& parent = MemoryOwner::Process().Child("lease one");
  std::optional<OwnerLease> first(std::in_place, parent, "a");
  const std::optional<OwnerLease> second(std::in_place, parent.Tagged("tag"), "a");
  EXPECT_EQ(&**first, &**second);
  EXPECT_EQ((*first)->Path(), "lease one/a");
  first.reset();
  PushOutGone();
  EXPECT_TRUE(IsThere(parent, "a"));
  EXPECT_EQ((*second)->Path(), "lease one/a");
}

TEST(OwnerLeaseTest, TheLastThatAreGoneKeepTheirNames) {
  MemoryOwner& parent = MemoryOwner::Process().Child("lease last");
  for (int i = 0; i < 2 * kGoneOwnersNamed; ++i) {
    const OwnerLease lease(parent, std::to_string(i));
  }
  EXPECT_FALSE(IsThere(parent, std::to_string(kGoneOwnersNamed - 1)));
  EXPECT_TRUE(IsThere(parent, std::to_string(kGoneOwnersNamed)));
  EXPECT_TRUE(IsThere(parent, std::to_string(2 * kGoneOwnersNamed - 1)));
  // One that comes back is the last.
  { const OwnerLease back(parent, std::to_string(kGoneOwnersNamed)); }
  { const OwnerLease another(parent, "another"); }
  EXPECT_TRUE(IsThere(parent, std::to_string(kGoneOwnersNamed)));
  EXPECT_FALSE(IsThere(parent, std::to_string(kGoneOwnersNamed + 1)));
}

TEST(OwnerLeaseTest, OlderOnesAreOneLineWithTheirSums) {
  MemoryOwner& parent = MemoryOwner::Process().Child("lease sums");
  for (const int64_t bytes : {1000, 3000, 2000}) {
    const OwnerLease lease(parent, "of " + std::to_string(bytes));
    Charge(*lease, bytes);
    Uncharge(*lease, bytes);
  }
  PushOutGone();
  const MemorySnapshot snapshot = Tracker().Snapshot();
  const OwnerMemory* const all = Find(snapshot, std::string("lease sums/") + kGoneOwnersName);
  ASSERT_NE(all, nullptr);
  EXPECT_EQ(all->merged, 3);
  EXPECT_EQ(all->total.current_bytes, 0);
  EXPECT_EQ(all->total.peak_bytes, 3000);
  EXPECT_EQ((*all)[MemoryKind::kAllocated].peak_bytes, 3000);
  EXPECT_EQ(Find(snapshot, "lease sums/of 1000"), nullptr);
  EXPECT_EQ(Find(snapshot, "lease sums")->total.peak_bytes, 3000);
  EXPECT_NE(snapshot.OwnersToString().find(std::string(kGoneOwnersName) + " (3)"),
            std::string::npos);
  EXPECT_NE(snapshot.ToJson().find("\"merged\": 3"), std::string::npos);
  const BudgetUsage usage = MemoryBudget::Global().Of(parent.Child(kGoneOwnersName), Host());
  EXPECT_EQ(usage.requests, 3);
  EXPECT_EQ(usage.requested_bytes, 6000);
  EXPECT_EQ(usage.taken_bytes, 0);
}

TEST(OwnerLeaseTest, WhatWasAskedForByNameOrHasALimitOrBytesStays) {
  MemoryOwner& parent = MemoryOwner::Process().Child("lease stays");
  { const OwnerLease lease(parent, "before"); }
  MemoryOwner& before = parent.Child("before");  // of one that is gone
  const OwnerLease* lease = new OwnerLease(parent, "while");
  MemoryOwner& meanwhile = parent.Child("while");
  EXPECT_EQ(&meanwhile, &**lease);
  delete lease;
  lease = new OwnerLease(parent, "limited");
  MemoryBudget::Global().SetOwnerLimit(**lease, Host(), 1000);
  delete lease;
  lease = new OwnerLease(parent, "with a child");
  MemoryOwner& child = (*lease)->Child("child");
  delete lease;
  lease = new OwnerLease(parent, "held");
  MemoryOwner& held = **lease;
  Charge(held, 10);
  delete lease;
  PushOutGone();
  for (const char* const name : {"before", "while", "limited", "with a child", "held"}) {
    EXPECT_TRUE(IsThere(parent, name)) << name;
  }
  EXPECT_EQ(before.Path(), "lease stays/before");
  EXPECT_EQ(child.Path(), "lease stays/with a child/child");
  EXPECT_EQ(Find(Tracker().Snapshot(), "lease stays/held")->total.current_bytes, 10);
  Uncharge(held, 10);
  MemoryBudget::Global().SetOwnerLimit(parent.Child("limited"), Host(), MemoryBudget::kUnlimited);
}

TEST(OwnerLeaseTest, NoneGoesWhileTheyAreHeld) {
  MemoryOwner& parent = MemoryOwner::Process().Child("lease held");
  std::optional<MemoryOwnersHold> hold(std::in_place);
  const std::optional<MemoryOwnersHold> another(std::in_place);
  const MemoryOwner* node = nullptr;
  {
    const OwnerLease lease(parent, "node");
    node = &*lease;
  }
  PushOutGone();
  EXPECT_EQ(node->Path(), "lease held/node");
  hold.reset();
  EXPECT_TRUE(IsThere(parent, "node"));
  const_cast<std::optional<MemoryOwnersHold>&>(another).reset();
  EXPECT_FALSE(IsThere(parent, "node"));
}

// Who gives back under a lock tells of it later, when the node's last lease may have ended.
TEST(OwnerLeaseTest, NoneGoesThatIsStillToBeToldOf) {
  MemoryOwner& parent = MemoryOwner::Process().Child("told of later");
  MemoryBudget& budget = MemoryBudget::Global();
  budget.SetDeviceLimit(Host(), budget.Of(Host()).taken_bytes + (1 << 20));
  {
    const MemoryBudget::TellLater later;
    {
      const OwnerLease lease(parent, "gone before it is told");
      Charge(*lease, 100);
      Uncharge(*lease, 100);
    }
    PushOutGone();
    EXPECT_TRUE(IsThere(parent, "gone before it is told"));
  }
  PushOutGone();
  EXPECT_FALSE(IsThere(parent, "gone before it is told"));
  budget.SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
}

TEST(OwnerLeaseTest, TenThousandWorkspacesOfNamesOfTheirOwnLeaveNoMore) {
  MemoryOwner& parent = MemoryOwner::Process().Child("lease service");
  const MemoryOwnerScope scope(parent);
  WorkspaceConfig config;
  config.plan_search_seconds = 0;
  size_t owners = 0, lines = 0;
  uint32_t highest = 0;
  for (int i = 0; i < 10000; ++i) {
    {
      Workspace workspace("request " + std::to_string(i), config);
      const WorkspaceScope cycle(workspace);
      const BufferHandle buffer(AllocateHere(1000));
      ReleaseBytes(AllocateBytesHere(100), 100);
    }
    if (i % 500 == 0) {
      WorkspacePool pool("pool " + std::to_string(i));
      const PooledScope cycle(pool);
      const BufferHandle buffer(AllocateHere(1000));
    }
    if (i % 1000 != 999) continue;
    const std::vector<MemoryOwner*> all = MemoryOwner::All();
    uint32_t index = 0;
    for (const MemoryOwner* owner : all) index = std::max(index, owner->index());
    const size_t told = Tracker().Snapshot().owners.size();
    if (i == 999) owners = all.size(), highest = index, lines = told;
    ASSERT_EQ(all.size(), owners) << i;
    ASSERT_EQ(index, highest) << i;
    ASSERT_EQ(told, lines) << i;
  }
  const MemorySnapshot snapshot = Tracker().Snapshot();
  const OwnerMemory* const gone = Find(snapshot, std::string("lease service/") + kGoneOwnersName);
  ASSERT_NE(gone, nullptr);
  EXPECT_EQ(gone->merged, 10020 - kGoneOwnersNamed);
  EXPECT_GT(gone->total.peak_bytes, 1000);
  // The last ones are there by name.
  EXPECT_NE(Find(snapshot, "lease service/workspace request 9999"), nullptr);
  EXPECT_EQ(Find(snapshot, "lease service/workspace request 1"), nullptr);
}

// What is out of a workspace that is gone is on the ledger under its name until it comes back.
TEST(OwnerLeaseTest, BlocksThatAreLeftKeepTheNodeOfTheirWorkspace) {
  MemoryOwner& parent = MemoryOwner::Process().Child("lease left");
  void* block = nullptr;
  {
    const MemoryOwnerScope scope(parent);
    Workspace workspace("w");
    const WorkspaceScope cycle(workspace);
    block = AllocateBytesHere(100000);
  }
  PushOutGone();
  const MemorySnapshot snapshot = Tracker().Snapshot();
  ASSERT_NE(Find(snapshot, "lease left/workspace w"), nullptr);
  EXPECT_GE(Find(snapshot, "lease left/workspace w")->total.current_bytes, 100000);
  ReleaseBytes(block, 100000);
  PushOutGone();
  EXPECT_FALSE(IsThere(parent, "workspace w"));
  EXPECT_EQ(Find(Tracker().Snapshot(), "lease left")->total.current_bytes, 0);
}

TEST(OwnerLeaseTest, ThreadsLeaseAndReadWhileOthersGo) {
  MemoryOwner& parent = MemoryOwner::Process().Child("lease threads");
  std::atomic<int> running{3};
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 2000; ++i) {
        // Some names are those of others, too.
        const OwnerLease lease(parent, std::to_string(i % 3 == 0 ? i % 50 : 10000 * t + i));
        const OwnerLease copy(lease);
        Charge(*copy, 100);
        Uncharge(*lease, 100);
      }
      --running;
    });
  }
  while (running > 0) {
    const MemoryOwnersHold hold;
    int64_t requests = 0;
    for (const MemoryOwner* owner : MemoryOwner::All()) {
      ASSERT_FALSE(owner->Path().empty());
      if (owner->parent() == &parent)
        requests += MemoryBudget::Global().Of(*owner, Host()).requests;
    }
    ASSERT_LE(requests, 6000);
    ASSERT_GE(Tracker().Snapshot().owners.size(), 1);
  }
  for (std::thread& thread : threads) thread.join();
  PushOutGone();
  const BudgetUsage usage = MemoryBudget::Global().Of(parent.Child(kGoneOwnersName), Host());
  EXPECT_EQ(usage.requests, 6000);
  EXPECT_EQ(usage.requested_bytes, 600000);
}

}  // namespace
}  // namespace tidepool
