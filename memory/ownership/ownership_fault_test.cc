// Closing with no memory to be had: everything is closed, and no failure is lost.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"

namespace tidepool {
namespace {

int64_t closed_resources = 0;
int64_t reports = 0;
void CountReport(const std::string&) { ++reports; }

class Fails final : public OwnedResource {
 public:
  void Close() override {
    ++closed_resources;
    throw Error(absl::StatusCode::kInternal, "the disk of this session is full");
  }
  std::string Describe() const override { return "a session with a long description"; }
};

// A tree of names too long to be kept without memory, with something of everything in it.
struct Tree {
  explicit Tree(Ownership& root, bool fails)
      : workspace("a workspace of the tree", WorkspaceConfig::Training()),
        top(root.NewChild("the manager at the top of the tree")),
        child(top.NewChild("a manager below the one at the top")) {
    heap = BufferHandle(NewHeapBuffer(1000));
    lent = BufferHandle(NewHeapBuffer(64));
    top.Attach(heap);
    top.Attach(lent);
    child.Lend(lent);
    cycle = child.NewCycle("a cycle at the bottom of the tree", workspace);
    made = BufferHandle(AllocateHere(64));
    cycle.Attach(made);
    if (fails) child.Own(std::make_unique<Fails>());
    if (fails) top.Own(std::make_unique<Fails>());
  }
  bool closed() const { return !heap->IsAlive() && !lent->IsAlive() && !made->IsAlive(); }

  Workspace workspace;
  Ownership top, child, cycle;
  BufferHandle heap, lent, made;
};

// Runs `close` on such trees, with the first allocation of it refused, the second, and so on.
template <typename Close>
void WithEachFault(bool fails, const Close& close) {
  Ownership root = Ownership::NewRoot("a root with a name that is long");
  SetOwnershipReport(&CountReport);
  for (int64_t fault = 0;; ++fault) {
    Tree tree(root, fails);
    closed_resources = reports = 0;
    until_fault = fault;
    fault_happened = false;
    close(tree);
    faults_on = false;
    ASSERT_TRUE(tree.closed()) << "with allocation " << fault << " refused";
    ASSERT_EQ(closed_resources, fails ? 2 : 0) << "with allocation " << fault << " refused";
    if (!fault_happened) break;
    ASSERT_LT(fault, 1000);
  }
  SetOwnershipReport(nullptr);
}

TEST(OwnershipFaultTest, CloseClosesAllOfIt) {
  WithEachFault(false, [](Tree& tree) { ASSERT_TRUE(Try([&] { tree.top.Close(); })); });
}

TEST(OwnershipFaultTest, CloseTellsThatAResourceFailed) {
  WithEachFault(true, [](Tree& tree) {
    EXPECT_FALSE(Try([&] { tree.top.Close(); }));  // by whatever there is memory for
    EXPECT_FALSE(tree.top.is_open());
  });
}

TEST(OwnershipFaultTest, ADestructorClosesAllOfItAndReportsOnce) {
  WithEachFault(true, [](Tree& tree) {
    faults_on = true;
    tree.top = Ownership();
    faults_on = false;
    EXPECT_EQ(reports, 1);
  });
}

}  // namespace
}  // namespace tidepool
