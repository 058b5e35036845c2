// Scopes of owners: entering, capping, and what becomes of those that do not end where they should.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

std::string MessageOf(absl::FunctionRef<void()> function) {
  return std::string(CatchStatus(function).message());
}

std::string last_report;
void KeepReport(const std::string& text) { last_report += text; }

TEST(OwnershipScopesTest, OnTheHeapWhateverWorkspaceIsOpen) {
  Workspace workspace("steps", WorkspaceConfig::Training());
  Ownership root = Ownership::NewRoot("test");
  Ownership model = root.NewChild("model"), open = root.NewChild("open");
  model.PlaceOnHeap();
  Ownership below = model.NewChild("below");
  const WorkspaceScope scope(workspace);
  for (const Ownership* owner : {&model, &below, &open}) {
    const OwnershipScope entered(*owner);
    const BufferHandle x(AllocateHere(64));
    EXPECT_EQ(x->attached, owner == &open);
  }
  EXPECT_EQ(CurrentPlace(), workspace.core());
  EXPECT_THAT(MessageOf([&] { root.PlaceOnHeap(); }), HasSubstr("is a root"));
  Ownership in = root.NewChild("in", workspace);
  EXPECT_THAT(MessageOf([&] { in.PlaceOnHeap(); }), HasSubstr("has a workspace already"));
}

// The cap is the node's: where the manager went, and who else uncapped or closed it, changes nothing.
TEST(OwnershipScopesTest, ACapScopeIsTheNodes) {
  last_report.clear();
  SetOwnershipReport(&KeepReport);
  Ownership root = Ownership::NewRoot("test");
  Ownership first = root.NewChild("node"), node;
  {
    const CapScope cap(first);
    node = std::move(first);
    EXPECT_TRUE(node.is_capped());
  }
  EXPECT_FALSE(node.is_capped());
  EXPECT_EQ(last_report, "");
  {
    const CapScope cap(node);
    node.Uncap();
  }
  EXPECT_THAT(last_report, HasSubstr("CapScope: owner [node] was uncapped meanwhile"));
  EXPECT_FALSE(node.is_capped());
  last_report.clear();
  Ownership next;
  {
    const CapScope cap(node);
    node = Ownership();
    next = root.NewChild("next");  // has that record now
    next.Cap();
  }
  EXPECT_TRUE(next.is_capped());
  {
    next.Close();
    const CapScope cap(next);
    next = root.NewChild("after");
    next.Cap();
  }
  EXPECT_TRUE(next.is_capped());
  SetOwnershipReport(nullptr);
  EXPECT_EQ(last_report, "");
}

TEST(OwnershipScopesTest, ScopesThatEndOutOfOrderArePutRight) {
  last_report.clear();
  SetOwnershipReport(&KeepReport);
  Ownership root = Ownership::NewRoot("test");
  Ownership a = root.NewChild("a"), b = root.NewChild("b"), c = root.NewChild("c");
  auto outer = std::make_unique<OwnershipScope>(a);
  auto middle = std::make_unique<OwnershipScope>(b);
  auto inner = std::make_unique<OwnershipScope>(c);
  middle.reset();
  EXPECT_EQ(current_owner.ref, c.ref().bits());
  EXPECT_THAT(last_report, HasSubstr("the scope of owner [b] ends before that of owner [c]"));
  outer.reset();
  EXPECT_EQ(current_owner.ref, c.ref().bits());
  auto handles = std::make_unique<OwnershipScope>(Ownership::Null());
  inner.reset();
  EXPECT_EQ(current_owner.ref, kHandlesOwn);
  handles.reset();
  EXPECT_EQ(current_owner.ref, 0u);
  SetOwnershipReport(nullptr);
}

TEST(OwnershipScopesTest, AScopeThatIsDestroyedElsewhereEndsOnItsThread) {
  last_report.clear();
  SetOwnershipReport(&KeepReport);
  Ownership root = Ownership::NewRoot("test");
  Ownership a = root.NewChild("a"), b = root.NewChild("b");
  auto scope = std::make_unique<OwnershipScope>(a);
  std::thread([&] {
    const OwnershipScope here(b);
    scope.reset();
    EXPECT_EQ(current_owner.ref, b.ref().bits());
  }).join();
  EXPECT_THAT(last_report, HasSubstr("destroyed on a thread other than its own"));
  { const OwnershipScope next(b); }
  EXPECT_EQ(current_owner.ref, 0u);
  // One that outlives its thread.
  last_report.clear();
  std::thread([&] { scope = std::make_unique<OwnershipScope>(a); }).join();
  EXPECT_THAT(last_report, HasSubstr("the scope of owner [a] outlives the thread"));
  scope.reset();
  EXPECT_EQ(current_owner.ref, 0u);
  SetOwnershipReport(nullptr);
}

}  // namespace
}  // namespace tidepool
