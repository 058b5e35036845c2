// Leases below leases: what a service has that opens workspaces below a node of each request.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

size_t Nodes() { return MemoryOwner::All().size(); }

const MemoryOwner* FindBelow(const MemoryOwner& parent, const std::string& name) {
  for (const MemoryOwner* owner : MemoryOwner::All()) {
    if (owner->parent() == &parent && owner->name() == name) return owner;
  }
  return nullptr;
}

void PushOutGone() {
  for (int i = 0; i <= 3 * kGoneOwnersNamed; ++i) {
    const OwnerLease lease(MemoryOwner::Process(), "pushes " + std::to_string(i));
  }
}

BudgetUsage UsageOf(const MemoryOwner& owner) { return MemoryBudget::Global().Of(owner, Host()); }

void TakeAndGive(MemoryOwner& owner, int64_t bytes) {
  MemoryBudget::Global().Reserve(Host(), owner, bytes, "a test");
  MemoryTracker::Global().Add(Host(), MemoryKind::kAllocated, bytes, &owner);
  MemoryTracker::Global().Add(Host(), MemoryKind::kAllocated, -bytes, &owner);
  MemoryBudget::Global().Release(Host(), owner, bytes);
}

TEST(NestedLeases, WorkspacesBelowLeasesGoWithThem) {
  MemoryOwner& parent = MemoryOwner::Process().Child("nested workspaces");
  const size_t before = Nodes();
  for (int i = 0; i < 1000; ++i) {
    const OwnerLease request(parent, "request " + std::to_string(i));
    const MemoryOwnerScope scope(*request);
    Workspace workspace("w");
    const WorkspaceScope cycle(workspace);
    const BufferHandle array(AllocateHere(1000));
  }
  EXPECT_LE(Nodes(), before + 3 * kGoneOwnersNamed + 2);
  PushOutGone();
  EXPECT_LE(Nodes(), before + kGoneOwnersNamed + 2);
  const MemoryOwner* const sum = FindBelow(parent, kGoneOwnersName);
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->merged(), 2000);
}

// Three deep, of which any ends first.
TEST(NestedLeases, WhatTheyCountedIsAddedUpWhicheverEndsFirst) {
  MemoryOwner& parent = MemoryOwner::Process().Child("nested orders");
  const std::vector<std::vector<int>> orders = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {1, 2, 0}};
  int rounds = 0;
  const size_t before = Nodes();
  for (int i = 0; i < 200; ++i) {
    std::optional<OwnerLease> leases[3];
    MemoryOwner* at = &parent;
    for (std::optional<OwnerLease>& lease : leases) {
      lease.emplace(*at, "lease " + std::to_string(i));
      at = &**lease;
      TakeAndGive(*at, 10);
    }
    for (const int which : orders[static_cast<size_t>(i) % orders.size()]) leases[which].reset();
    ++rounds;
  }
  PushOutGone();
  EXPECT_LE(Nodes(), before + kGoneOwnersNamed + 2);
  const MemoryOwner* const sum = FindBelow(parent, kGoneOwnersName);
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(sum->merged(), 3 * rounds);
  // A request of the innermost counts for those above it as well, and once in what all of them come to.
  EXPECT_EQ(UsageOf(parent).requests, 3 * rounds);
  EXPECT_EQ(UsageOf(*sum).requests, 3 * rounds);
  EXPECT_EQ(UsageOf(*sum).requested_bytes, 30 * rounds);
  EXPECT_EQ(UsageOf(*sum).taken_bytes, 0);
}

// More nodes than there may be: the last ones share what is above them, and all of it goes.
TEST(NestedLeases, ABurstBeyondTheMostNodesGoesBack) {
  MemoryOwner& parent = MemoryOwner::Process().Child("nested burst");
  PushOutGone();
  const size_t before = Nodes();
  {
    std::vector<std::unique_ptr<OwnerLease>> outer, inner;
    for (int i = 0; i < 40000; ++i)
      outer.push_back(std::make_unique<OwnerLease>(parent, "session " + std::to_string(i)));
    for (const auto& lease : outer) {
      inner.push_back(std::make_unique<OwnerLease>(**lease, "request"));
      TakeAndGive(**inner.back(), 10);
    }
    EXPECT_FALSE((**inner.front()).is_shared());
    EXPECT_TRUE((**inner.back()).is_shared());
    inner.push_back(std::make_unique<OwnerLease>(**inner.back()));
    outer.clear();
  }
  EXPECT_LE(Nodes(), before + kGoneOwnersNamed + 2);
  const OwnerLease again(parent, "another");
  EXPECT_FALSE(again->is_shared());
  const MemoryOwner* const sum = FindBelow(parent, kGoneOwnersName);
  ASSERT_NE(sum, nullptr);
  EXPECT_EQ(UsageOf(parent).requests, 40000);
  EXPECT_GE(UsageOf(*sum).requests, 40000 - kGoneOwnersNamed);
}

TEST(NestedLeases, ANodeBelowThatIsAskedForByNameKeepsThoseAbove) {
  MemoryOwner& parent = MemoryOwner::Process().Child("nested names");
  {
    const OwnerLease outer(parent, "outer");
    const OwnerLease inner(*outer, "inner");
    EXPECT_EQ(&outer->Child("inner"), &*inner);
  }
  {
    const OwnerLease tagged(parent, "tagged");
    tagged->Tagged("a tag");
  }
  PushOutGone();
  const MemoryOwner* const outer = FindBelow(parent, "outer");
  ASSERT_NE(outer, nullptr);
  EXPECT_NE(FindBelow(*outer, "inner"), nullptr);
  EXPECT_NE(FindBelow(parent, "tagged"), nullptr);
}

// The sum below a node is a name like others for whoever asks for it.
TEST(NestedLeases, TheNameOfTheSumIsNobodysAlone) {
  MemoryOwner& parent = MemoryOwner::Process().Child("nested sums");
  const auto fill = [](MemoryOwner& owner) {
    for (int i = 0; i < 10; ++i) const OwnerLease each(owner, std::to_string(i));
    PushOutGone();
  };
  {  // asked for by name: it stays, and what it is below
    const OwnerLease outer(parent, "asked");
    fill(*outer);
    EXPECT_EQ(outer->Child(kGoneOwnersName).merged(), 10);
  }
  {  // leased below: that node is alive when those above end
    std::optional<OwnerLease> outer(std::in_place, parent, "leased");
    fill(**outer);
    const MemoryOwner* const sum = FindBelow(**outer, kGoneOwnersName);
    ASSERT_NE(sum, nullptr);
    const OwnerLease below(const_cast<MemoryOwner&>(*sum), "below");
    outer.reset();
    PushOutGone();
    TakeAndGive(*below, 10);
    EXPECT_EQ(below->Path(), "nested sums/leased/workspaces that are gone/below");
  }
  {  // a workspace of that name, alone
    const OwnerLease odd(parent, kGoneOwnersName);
  }
  PushOutGone();
  EXPECT_EQ(UsageOf(parent).requests, 1);
  EXPECT_NE(FindBelow(parent, "asked"), nullptr);
}

}  // namespace
}  // namespace tidepool
