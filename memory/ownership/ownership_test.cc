// Single steps of the tree of owners, on every kind of memory a buffer can be of.
#include "tidepool/memory/ownership/ownership.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_tracing.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/ownership/owner_traces.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"
#include "tidepool/memory/pins.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

BufferHandle Heap(size_t bytes = 64) { return BufferHandle(NewHeapBuffer(bytes)); }

std::string MessageOf(absl::FunctionRef<void()> function) {
  return std::string(CatchStatus(function).message());
}

std::string last_report;
void KeepReport(const std::string& text) { last_report += text; }

TEST(OwnershipTest, ClosingEndsWhatIsAttachedWithTheNameInTheError) {
  Ownership root = Ownership::NewRoot("test");
  Ownership model = root.NewChild("model");
  Ownership predictor = model.NewChild("predictor");
  const BufferHandle x = Heap(), y = Heap();
  model.Attach(x);
  predictor.Attach(y);
  EXPECT_EQ(model.arrays(), 1);
  EXPECT_EQ(model.bytes(), 64);
  model.Close();
  EXPECT_FALSE(x->IsAlive());
  EXPECT_FALSE(y->IsAlive());
  EXPECT_TRUE(x->closed);
  EXPECT_FALSE(predictor.is_open());
  EXPECT_EQ(predictor.name(), "predictor");
  EXPECT_EQ(predictor.parent_name(), "model");
  const auto* hooks = internal::ownership_hooks.load();
  EXPECT_THAT(hooks->describe_closed(*x.get()), HasSubstr("owner [model]"));
  EXPECT_THAT(hooks->describe_closed(*y.get()), HasSubstr("owner [model/predictor]"));
}

TEST(OwnershipTest, TheLastHandleFreesAndTheNodeForgets) {
  Ownership root = Ownership::NewRoot("test");
  Ownership node = root.NewChild("node");
  for (int i = 0; i < 3; ++i) {
    BufferHandle x = Heap();
    node.Attach(x);
    BufferHandle second = x;
    x = BufferHandle();
    EXPECT_EQ(node.arrays(), 1);
  }
  EXPECT_EQ(node.arrays(), 0);
  EXPECT_EQ(node.bytes(), 0);
}

TEST(OwnershipTest, ClosedByHandLeavesTheNode) {
  Ownership root = Ownership::NewRoot("test");
  Ownership node = root.NewChild("node"), borrower = root.NewChild("borrower");
  BufferHandle x = Heap();
  node.Attach(x);
  borrower.Lend(x);
  x->Close();
  x->Close();
  EXPECT_EQ(node.arrays(), 0);
  EXPECT_EQ(borrower.loans(), 0);
  node.Close();
  borrower.Close();
  EXPECT_TRUE(x->closed);
}

TEST(OwnershipTest, AttachThatFailsMovesNothing) {
  Ownership root = Ownership::NewRoot("test");
  Ownership owner = root.NewChild("owner"), capped = root.NewChild("capped");
  Ownership closed = root.NewChild("closed");
  const BufferHandle x = Heap();
  owner.Attach(x);
  capped.Cap();
  closed.Close();
  EXPECT_THAT(MessageOf([&] { capped.Attach(x); }), HasSubstr("owner [capped] is capped"));
  EXPECT_THAT(MessageOf([&] { closed.Attach(x); }), HasSubstr("is closed"));
  EXPECT_EQ(owner.arrays(), 1);
  EXPECT_EQ(CurrentNodeOf(*x.get()), owner.ref().bits());
  owner.Close();
  EXPECT_FALSE(x->IsAlive());
}

TEST(OwnershipTest, AllOrNothing) {
  Ownership root = Ownership::NewRoot("test");
  Ownership owner = root.NewChild("owner"), target = root.NewChild("target");
  target.SetBudget(150);
  BufferHandle x = Heap(), y = Heap(), z = Heap();
  for (const BufferHandle* each : {&x, &y, &z}) owner.Attach(*each);
  const BufferHandle* all[] = {&x, &y, &z};
  EXPECT_THROW(target.AttachAll(all), OutOfMemoryError);
  EXPECT_EQ(owner.arrays(), 3);
  EXPECT_EQ(target.arrays(), 0);
  const BufferHandle* two[] = {&x, &y, &x};  // a duplicate counts once
  target.AttachAll(two);
  EXPECT_EQ(owner.arrays(), 1);
  EXPECT_EQ(target.arrays(), 2);
  z->Close();
  const BufferHandle* dead[] = {&x, &z};
  EXPECT_THROW(owner.AttachAll(dead), Error);
  EXPECT_EQ(target.arrays(), 2);
  Ownership borrower = root.NewChild("borrower");
  EXPECT_THROW(borrower.LendAll(dead), Error);
  EXPECT_EQ(borrower.loans(), 0);
}

TEST(OwnershipTest, BudgetsAreInheritedAndGivenBack) {
  Ownership root = Ownership::NewRoot("test");
  Ownership model = root.NewChild("model");
  model.SetBudget(256, 3);
  Ownership request = model.NewChild("request");
  request.SetBudget(128);
  EXPECT_THROW(model.SetBudget(1), Error);  // it has a child
  BufferHandle x = Heap(128);
  request.Attach(x);
  const BufferHandle y = Heap(1);
  try {
    request.Attach(y);
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.message(), HasSubstr("owner [model/request] has 1 arrays of 128 bytes"));
    EXPECT_THAT(error.report(), HasSubstr("request  host"));
  }
  model.Attach(y);
  const BufferHandle z = Heap(128);
  EXPECT_THROW(model.Attach(z), OutOfMemoryError);  // 128 + 1 + 128 > 256
  x = BufferHandle();
  model.Attach(z);
  EXPECT_THROW(CheckMayOwn(request.ref().bits(), 200, "Op [zeros]"), OutOfMemoryError);
}

TEST(OwnershipTest, BudgetsAreNoLessThanNothing) {
  Ownership root = Ownership::NewRoot("test");
  Ownership model = root.NewChild("model");
  EXPECT_THAT(MessageOf([&] { model.SetBudget(-1); }),
              HasSubstr("SetBudget: owner [model]: found -1 bytes, expected at least 0"));
  EXPECT_THAT(MessageOf([&] { model.SetBudget(1, -2); }),
              HasSubstr("SetBudget: owner [model]: found -2 arrays, expected at least 0"));
  const BufferHandle x = Heap(100);
  model.Attach(x);  // neither was taken
  model.SetBudget(0, 0);
  EXPECT_THROW(model.Attach(Heap(1)), OutOfMemoryError);
}

// What a budget has is never more than its limit, so that it does not wrap around either.
TEST(OwnershipTest, NoBudgetWrapsAround) {
  Ownership root = Ownership::NewRoot("test");
  Ownership model = root.NewChild("model");
  model.SetBudget(INT64_MAX, 1000);
  static char data[64];
  const auto import = [](size_t bytes) {
    return BufferHandle(NewImportedBuffer(data, bytes, nullptr, nullptr));
  };
  EXPECT_THAT(MessageOf([&] { import(size_t{1} << 62); }),
              HasSubstr("NewImportedBuffer: found 4611686018427387904 bytes at "));
  constexpr size_t kMost = size_t{1} << 40;
  Ownership sibling = root.NewChild("sibling");
  sibling.SetBudget(static_cast<int64_t>(3 * kMost));
  std::vector<BufferHandle> held;
  for (int i = 0; i < 3; ++i) {
    held.push_back(import(kMost));
    sibling.Attach(held.back());
  }
  held.push_back(import(kMost));
  EXPECT_THROW(sibling.Attach(held.back()), OutOfMemoryError);
}

TEST(OwnershipTest, RootsAreNotClosedCappedOrLentTo) {
  Ownership& process = Ownership::Process();
  const BufferHandle x = Heap();
  EXPECT_THAT(MessageOf([&] { process.Close(); }), HasSubstr("is a root"));
  EXPECT_THAT(MessageOf([&] { process.Cap(); }), HasSubstr("is a root"));
  EXPECT_THAT(MessageOf([&] { process.Lend(x); }), HasSubstr("is a root"));
  EXPECT_THAT(MessageOf([&] { process.SetBudget(1); }), HasSubstr("is a root"));
  EXPECT_TRUE(process.is_open());
}

TEST(OwnershipTest, ARootReportsWhatIsOpenAtItsEnd) {
  last_report.clear();
  SetOwnershipReport(&KeepReport);
  const BufferHandle x = Heap();
  Ownership kept;
  {
    Ownership root = Ownership::NewRoot("short");
    kept = root.NewChild("forgotten");
    kept.Attach(x);
  }
  SetOwnershipReport(nullptr);
  EXPECT_THAT(last_report, HasSubstr("root short ends with 1 managers and 1 arrays open"));
  EXPECT_THAT(last_report, HasSubstr("forgotten"));
  EXPECT_FALSE(x->IsAlive());
  EXPECT_FALSE(kept.is_open());
}

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

TEST(OwnershipTest, ChildrenFirstNewestFirstAndFailuresDoNotStopTheRest) {
  std::vector<std::string> log;
  Ownership root = Ownership::NewRoot("test");
  Ownership parent = root.NewChild("parent");
  parent.Own(std::make_unique<Recorder>("p1", &log, true));
  Ownership first = parent.NewChild("first");
  first.Own(std::make_unique<Recorder>("f1", &log));
  first.Own(std::make_unique<Recorder>("f2", &log));
  Ownership second = parent.NewChild("second");
  second.Own(std::make_unique<Recorder>("s1", &log, true));
  parent.Own(std::make_unique<Recorder>("p2", &log));
  const OwnedResource& taken = parent.Own(std::make_unique<Recorder>("taken", &log));
  EXPECT_NE(parent.Release(&taken), nullptr);
  EXPECT_EQ(parent.Release(&taken), nullptr);
  const std::string message = MessageOf([&] { parent.Close(); });
  EXPECT_EQ(log, (std::vector<std::string>{"s1", "f2", "f1", "p2", "p1"}));
  EXPECT_THAT(message, HasSubstr("session s1 of owner [parent/second]: disk full"));
  EXPECT_THAT(message, HasSubstr("session p1 of owner [parent]: disk full"));
  EXPECT_FALSE(parent.is_open());
  parent.Close();
}

// Whatever a resource throws, its tree closes on.
class ThrowsANumber final : public OwnedResource {
 public:
  void Close() override { throw 5; }
  std::string Describe() const override { return "number"; }
};

TEST(OwnershipTest, AResourceThatThrowsNoExceptionClassEndsNothingElse) {
  std::vector<std::string> log;
  Ownership root = Ownership::NewRoot("test");
  Ownership parent = root.NewChild("parent");
  parent.Own(std::make_unique<Recorder>("first", &log));
  parent.Own(std::make_unique<ThrowsANumber>());
  EXPECT_THAT(MessageOf([&] { parent.Close(); }), HasSubstr("number of owner [parent]: threw"));
  EXPECT_EQ(log, (std::vector<std::string>{"first"}));
  EXPECT_FALSE(parent.is_open());
}

// A resource that closes its own tree from within.
TEST(OwnershipTest, NoResourceIsRefused) {
  Ownership root = Ownership::NewRoot("test");
  Ownership parent = root.NewChild("parent");
  EXPECT_THAT(MessageOf([&] { parent.Own(nullptr); }),
              HasSubstr("Own: owner [parent]: found a null resource, expected one to close"));
  EXPECT_EQ(SnapshotOf(parent)[0].resources, 0);
  parent.Close();
}

class Meddler final : public OwnedResource {
 public:
  explicit Meddler(Ownership* what) : what_(what) {}
  void Close() override { what_->Close(); }
  std::string Describe() const override { return "meddler"; }

 private:
  Ownership* what_;
};

TEST(OwnershipTest, AResourceMayCloseTheTreeItIsIn) {
  Ownership root = Ownership::NewRoot("test");
  Ownership parent = root.NewChild("parent");
  Ownership child = parent.NewChild("child");
  child.Own(std::make_unique<Meddler>(&parent));
  child.Close();
  EXPECT_FALSE(parent.is_open());
  EXPECT_FALSE(child.is_open());
}

TEST(OwnershipTest, AMillionDeepClosesWithoutRecursion) {
  Ownership root = Ownership::NewRoot("test");
  constexpr int kDepth = 1000000;
  std::vector<Ownership> chain;
  chain.reserve(kDepth);
  chain.push_back(root.NewChild("top"));
  for (int i = 1; i < kDepth; ++i) chain.push_back(chain.back().NewChild(""));
  const BufferHandle x = Heap();
  chain.back().Attach(x);
  chain.front().Close();
  EXPECT_FALSE(x->IsAlive());
  EXPECT_FALSE(chain.back().is_open());
}

TEST(OwnershipTest, DjlCase126WhatAKernelUsesIsFreedWhenItIsDone) {
  static bool freed;
  freed = false;
  static char data[64];
  Ownership root = Ownership::NewRoot("test");
  Ownership node = root.NewChild("node");
  BufferHandle x(NewImportedBuffer(
      data, 64, [](void*) { freed = true; }, nullptr));
  node.Attach(x);
  {
    PinScope pins;
    pins.Pin(x.get());
    pins.Publish();
    ASSERT_TRUE(x->IsAlive());
    std::thread([&] { node.Close(); }).join();
    EXPECT_FALSE(x->IsAlive());
    EXPECT_FALSE(freed);
  }
  EXPECT_TRUE(freed);
}

TEST(OwnershipTest, TracingNamesBothSites) {
  MemoryTracing::Enable();
  Ownership root = Ownership::NewRoot("test");
  Ownership node = root.NewChild("node");
  const BufferHandle x = Heap();
  node.Attach(x);
  internal::TraceOwned(*x.get(), "f32 [16]");
  EXPECT_THAT(DumpText(SnapshotOf(node, true)), HasSubstr("f32 [16] made at "));
  node.Close();
  const std::string text = internal::ownership_hooks.load()->describe_closed(*x.get());
  MemoryTracing::Disable();
  EXPECT_THAT(text, HasSubstr("owner [node] at "));
  EXPECT_THAT(text, HasSubstr("f32 [16] made at "));
}

TEST(OwnershipTest, SnapshotsSumAndDiffer) {
  Ownership root = Ownership::NewRoot("test");
  Ownership model = root.NewChild("model");
  const BufferHandle w = Heap(1000);
  model.Attach(w);
  const OwnershipSnapshot before = SnapshotOf(root);
  Ownership leak = model.NewChild("leak");
  const BufferHandle x = Heap(10), y = Heap(20);
  leak.Attach(x);
  leak.Attach(y);
  leak.Lend(w);
  const OwnershipSnapshot after = SnapshotOf(root, true);
  ASSERT_EQ(after.size(), 3u);
  EXPECT_EQ(after[0].subtree_bytes, 1030);
  EXPECT_EQ(after[1].path, "test/model");
  EXPECT_EQ(after[1].arrays, 1);
  EXPECT_EQ(after[1].subtree_arrays, 3);
  EXPECT_EQ(after[2].loans, 1);
  EXPECT_EQ(after[2].owned.size(), 3u);
  EXPECT_TRUE(after[2].owned.back().borrowed);
  EXPECT_EQ(ToString(Diff(before, after)),
            "test/model/leak: managers +1, arrays +2, bytes +30, loans +1\n");
  EXPECT_TRUE(Diff(after, after).empty());
  EXPECT_THAT(DumpText(after), HasSubstr("\n    leak  host, current; 2 arrays, 30 B (peak 30 B), "
                                         "1 borrowed"));
}

TEST(OwnershipTest, DumpsHaveALineForEachNodeWhateverItIsCalled) {
  Ownership root = Ownership::NewRoot("test");
  const OwnershipSnapshot before = SnapshotOf(root);
  const Ownership odd = root.NewChild("two\nlines");
  const OwnershipSnapshot after = SnapshotOf(root);
  EXPECT_THAT(DumpText(after), HasSubstr("\n  two\\nlines  host"));
  EXPECT_THAT(ToString(Diff(before, after)), HasSubstr("test/two\\nlines: managers +1"));
}

}  // namespace
}  // namespace tidepool
