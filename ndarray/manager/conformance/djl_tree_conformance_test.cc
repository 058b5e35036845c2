// DJL's behaviour of the tree and the life of managers, 3.1 of its numbered list. Where DJL's is a
// defect, the behaviour tested is the mended one, and the comment says which it was.
//
// No test: 23 (a program without backends: arrays and managers work all the same), 24 (engines do not
// exist; devices are checked by operators).
#include <algorithm>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/manager/conformance/djl_places.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::djl {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class DjlTree : public DjlPlaces {};
TIDEPOOL_ON_EVERY_PLACE(DjlTree);

class Recorder final : public OwnedResource {
 public:
  Recorder(std::string name, std::vector<std::string>* log, bool fails = false)
      : name_(std::move(name)), log_(log), fails_(fails) {}
  void Close() override {
    log_->push_back(name_);
    if (fails_) ThrowInternal("disk full");
  }
  std::string Describe() const override { return "session " + name_; }

 private:
  std::string name_;
  std::vector<std::string>* log_;
  bool fails_;
};

// In the order of their ends: what imported memory's release function is told.
struct Ended {
  std::vector<int>* log;
  int number;
  static void Release(void* context) {
    const auto* ended = static_cast<Ended*>(context);
    ended->log->push_back(ended->number);
  }
};

TEST(DjlManagers, DjlCase001ANewBaseManagerIsOpenNamedAndBelowTheRoot) {
  const NDManager manager = NDManager::NewBaseManager();
  EXPECT_TRUE(manager.is_open());
  EXPECT_EQ(manager.name(), "base");
  EXPECT_NE(manager.id(), 0u);
  EXPECT_EQ(manager.parent_name(), NDManager::System().name());
}

TEST(DjlManagers, DjlCase002NoTwoManagersEverHaveOneId) {
  NDManager root = NDManager::NewRoot("test");
  std::set<uint64_t> ids;
  for (int i = 0; i < 10000; ++i) {
    const NDManager first = root.NewSubManager("same"), second = root.NewSubManager("same");
    EXPECT_TRUE(ids.insert(first.id()).second);
    EXPECT_TRUE(ids.insert(second.id()).second);
  }
}

// DJL: the name is the id until it is set. Here it is what the manager was made with.
TEST(DjlManagers, DjlCase003ANameIsNoIdentity) {
  NDManager root = NDManager::NewRoot("test");
  NDManager first = root.NewSubManager("x"), second = root.NewSubManager("x");
  EXPECT_FALSE(first.ref() == second.ref());
  const uint64_t id = first.id();
  const NDArray array = first.Zeros({2});
  first.SetName("y");
  EXPECT_EQ(first.name(), "y");
  EXPECT_EQ(first.id(), id);
  EXPECT_TRUE(first.Manages(array));
}

TEST_P(DjlTree, DjlCase004AChildHasItsParentsDevice) {
  EXPECT_EQ(New("child").device(), top().device());
  EXPECT_EQ(
      New("child").NewSubManager("grandchild", Device{DeviceType::Named("simulated"), 1}).device(),
      (Device{DeviceType::Named("simulated"), 1}));
}

TEST_P(DjlTree, DjlCase005ClosingAManagerClosesItsArrays) {
  NDManager manager = New("a");
  std::vector<NDArray> arrays;
  for (int i = 0; i < 200; ++i) arrays.push_back(In(manager));
  const NDArray other = In(top(), 5);
  EXPECT_EQ(manager.arrays(), 200);
  EXPECT_EQ(manager.bytes(), 3200);
  manager.Close();
  for (const NDArray& array : arrays) EXPECT_FALSE(Alive(array));
  EXPECT_TRUE(Holds(other, 5));
  EXPECT_EQ(manager.arrays(), 0);
  EXPECT_EQ(manager.bytes(), 0);
}

TEST_P(DjlTree, DjlCase006ClosingAParentClosesWhatIsBelowAtAnyDepth) {
  NDManager a = New("a"), b = a.NewSubManager("b"), c = b.NewSubManager("c");
  const NDArray x = In(a), y = In(b), z = In(c);
  a.Close();
  EXPECT_FALSE(b.is_open());
  EXPECT_FALSE(c.is_open());
  EXPECT_FALSE(Alive(x) || Alive(y) || Alive(z));
}

// DJL overflows the stack of 200 000.
TEST_P(DjlTree, DjlCase006AChainOfAMillionCloses) {
  constexpr int kDepth = 1000000;
  std::vector<NDManager> chain;
  chain.reserve(kDepth);
  chain.push_back(New(""));
  while (chain.size() < kDepth) chain.push_back(chain.back().NewSubManager());
  const NDArray x = In(chain.back()), y = In(chain[kDepth / 2]);
  chain.front().Close();
  EXPECT_FALSE(Alive(x) || Alive(y));
  EXPECT_FALSE(chain.back().is_open());
}

TEST_P(DjlTree, DjlCase007ClosingAChildLeavesTheParent) {
  NDManager parent = New("parent"), child = parent.NewSubManager("child");
  const NDArray x = In(parent, 3);
  EXPECT_EQ(parent.Snapshot().size(), 2u);
  child.Close();
  EXPECT_TRUE(parent.is_open());
  EXPECT_EQ(parent.Snapshot().size(), 1u);
  EXPECT_TRUE(Holds(x, 3));
}

TEST_P(DjlTree, DjlCase008ClosingTwiceIsHarmless) {
  NDManager manager = New("a");
  const NDArray x = In(manager);
  manager.Close();
  manager.Close();
  EXPECT_FALSE(manager.is_open());
}  // and its destructor after that

TEST_P(DjlTree, DjlCase009ClosingAChildAfterItsParentIsHarmless) {
  NDManager child;
  {
    NDManager parent = New("parent");
    child = parent.NewSubManager("child");
    In(child);
  }
  EXPECT_FALSE(child.is_open());
  child.Close();
}

TEST_P(DjlTree, DjlCase010AClosedManagerStillHasItsNames) {
  NDManager parent = New("parent"), child = parent.NewSubManager("child");
  parent.Close();
  EXPECT_FALSE(child.is_open());
  EXPECT_EQ(child.name(), "child");
  EXPECT_EQ(child.parent_name(), "parent");
}

// DJL allocates first and loses it.
TEST_P(DjlTree, DjlCase011MakingAnArrayInAClosedManagerIsAnErrorBeforeItIsAllocated) {
  NDManager manager = New("a");
  manager.Close();
  const int64_t before = MemoryTracker::Global().Snapshot().system_allocations;
  for (int i = 0; i < 100; ++i) {
    ASSERT_THAT(ErrorOf([&] { manager.Zeros({1 << 20}); }), HasSubstr("owner [top/a] is closed"));
  }
  EXPECT_EQ(MemoryTracker::Global().Snapshot().system_allocations, before);
}

TEST_P(DjlTree, DjlCase012ASubManagerOfAClosedOneIsAnError) {
  NDManager manager = New("a");
  manager.Close();
  ExpectRefused(top(), [&] { manager.NewSubManager("b"); });
}

// DJL detaches first: the array is nobody's then.
TEST_P(DjlTree, DjlCase013AttachingToAClosedManagerIsAnErrorAndMovesNothing) {
  NDManager owner = New("owner"), closed = New("closed");
  closed.Close();
  const NDArray x = In(owner, 2);
  ExpectRefused(top(), [&] { closed.Attach(x); });
  EXPECT_TRUE(owner.Manages(x));
  EXPECT_TRUE(Holds(x, 2));
  owner.Close();
  EXPECT_FALSE(Alive(x));
}

TEST_P(DjlTree, DjlCase014LendingToAClosedManagerIsAnErrorAndMovesNothing) {
  NDManager owner = New("owner"), closed = New("closed");
  closed.Close();
  const NDArray x = In(owner, 2);
  ExpectRefused(top(), [&] { closed.TempAttach(x); });
  EXPECT_TRUE(owner.Manages(x));
  owner.Close();
  EXPECT_FALSE(Alive(x));
}

// DJL logs what failed; here it is in the error, after everything is closed.
TEST_P(DjlTree, DjlCase015AResourceThatFailsDoesNotStopTheOthers) {
  std::vector<std::string> log;
  NDManager manager = New("a"), child = manager.NewSubManager("b");
  for (const char* name : {"a1", "a2"}) {
    manager.Own(std::make_unique<Recorder>(name, &log, true));
  }
  child.Own(std::make_unique<Recorder>("b1", &log, true));
  const NDArray x = In(manager), y = In(child);
  EXPECT_THAT(ErrorOf([&] { manager.Close(); }, absl::StatusCode::kInternal),
              AllOf(HasSubstr("session a1"), HasSubstr("session a2"), HasSubstr("session b1"),
                    HasSubstr("disk full")));
  EXPECT_EQ(log, (std::vector<std::string>{"b1", "a2", "a1"}));
  EXPECT_FALSE(Alive(x) || Alive(y) || manager.is_open());
}

// DJL's order is that of a hash map.
TEST(DjlManagers, DjlCase016ChildrenCloseBeforeTheirParentAndTheNewestFirst) {
  static float data[4];
  std::vector<int> log;
  std::vector<Ended> ended;
  ended.reserve(8);
  NDManager root = NDManager::NewRoot("test");
  NDManager parent = root.NewSubManager("parent");
  std::vector<NDArray> arrays;
  const auto make = [&](NDManager& manager) {
    ended.push_back({&log, static_cast<int>(ended.size())});
    arrays.push_back(
        NDArray(BufferHandle(NewImportedBuffer(data, 16, &Ended::Release, &ended.back())), {4},
                DType::kFloat32));
    manager.Attach(arrays.back());
  };
  make(parent);  // 0
  NDManager older = parent.NewSubManager("older");
  make(older);  // 1
  make(older);  // 2
  NDManager newer = parent.NewSubManager("newer");
  make(parent);  // 3
  make(newer);   // 4
  parent.Close();
  EXPECT_EQ(log, (std::vector<int>{4, 2, 1, 3, 0}));
}

TEST(DjlManagers, DjlCase017TheRootIsNotClosed) {
  EXPECT_THAT(ErrorOf([] { NDManager::System().Close(); }), HasSubstr("is a root"));
  EXPECT_TRUE(NDManager::System().is_open());
}

TEST_P(DjlTree, DjlCase018TheRootDoesNotBorrowAndNothingMoves) {
  NDManager owner = New("owner");
  const NDArray x = In(owner, 2);
  EXPECT_THAT(ErrorOf([&] { NDManager::System().TempAttach(x); }), HasSubstr("is a root"));
  EXPECT_TRUE(owner.Manages(x));
  owner.Close();
  EXPECT_FALSE(Alive(x));
}

// DJL has one for each engine; tests there see each other's.
TEST_P(DjlTree, DjlCase019ThereMayBeSeveralRoots) {
  NDManager root = NDManager::NewRoot("mine");
  NDManager manager = root.NewSubManager("a");
  const NDArray x = In(manager);
  const OwnershipSnapshot others = NDManager::System().Snapshot(), mine = root.Snapshot();
  EXPECT_EQ(mine.size(), 2u);
  EXPECT_EQ(mine[0].subtree_arrays, 1);
  for (const OwnerStats& stats : others) EXPECT_NE(stats.id, mine[1].id);
}

std::string last_report;

// DJL: reachable for ever, and nobody is told.
TEST_P(DjlTree, DjlCase020ARootReportsWhatIsOpenAtItsEnd) {
  last_report.clear();
  SetOwnershipReport([](const std::string& text) { last_report += text; });
  NDManager forgotten;
  NDArray x;
  {
    NDManager root = NDManager::NewRoot("short");
    forgotten = root.NewSubManager("forgotten");
    x = In(forgotten);
  }
  SetOwnershipReport(nullptr);
  EXPECT_THAT(last_report, AllOf(HasSubstr("root short ends with 1 managers and 1 arrays open"),
                                 HasSubstr("forgotten")));
  EXPECT_FALSE(Alive(x) || forgotten.is_open());
  last_report.clear();
  { NDManager root = NDManager::NewRoot("tidy"); }
  EXPECT_EQ(last_report, "");
}

TEST_P(DjlTree, DjlCase021TheTextHasNameParentStateCountAndBytes) {
  NDManager parent = New("parent"), child = parent.NewSubManager("child");
  const NDArray x = In(child), y = In(child);
  EXPECT_EQ(child.ToString(), "owner [top/parent/child] of [parent], open, 2 arrays, 32 bytes");
  child.Close();
  EXPECT_EQ(child.ToString(), "owner [child] of [parent], closed, 0 arrays, 0 bytes");
}

TEST_P(DjlTree, DjlCase022NothingHasAnEffectOnTheNullManager) {
  NDManager null = NDManager::Null();
  NDManager owner = New("owner");
  const NDArray x = In(owner, 3);
  null.Attach(x);
  null.TempAttachAll({x});
  null.AttachAll({x});
  EXPECT_TRUE(Holds(null.Ret(x), 3));
  null.Detach(x);
  EXPECT_TRUE(owner.Manages(x));
  EXPECT_FALSE(null.Manages(x));
  NDManager child = null.NewSubManager("child", Host());
  NDArray made, copied;
  {
    const ManagerScope outer(owner);
    const ManagerScope scope(child);
    made = x + x;
    copied = child.CopyOf(x);
  }
  EXPECT_EQ(NDManager::ManagerOf(made), OwnerRef());
  EXPECT_EQ(NDManager::ManagerOf(copied), OwnerRef());
  child.Cap();
  child.SetBudget(0, 0);
  child.PlaceOnHeap();
  child.SetName("other");
  EXPECT_TRUE(Holds(child.Zeros({4}), 0));
  EXPECT_FALSE(child.is_capped());
  for (NDManager* manager : {&null, &child}) {
    manager->Close();
    manager->Close();
    EXPECT_TRUE(manager->is_open());
    EXPECT_EQ(manager->arrays() + manager->bytes() + manager->loans(), 0);
    EXPECT_TRUE(manager->Snapshot().empty());
  }
  EXPECT_THAT(ErrorOf([&] { null.Own(nullptr); }), HasSubstr("the null manager owns nothing"));
  EXPECT_TRUE(Holds(made, 6) && Holds(copied, 3));
}

}  // namespace
}  // namespace tidepool::djl
