// Tapes that are made for a step each: with the memory of those before, and with nothing else of theirs.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

int64_t Held() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated); }

// x to the power of calls + 1, and its gradient.
float Step(const NDArray& x, int calls) {
  GradientTape tape;
  tape.Watch(x);
  NDArray z = x;
  for (int i = 0; i < calls; ++i) z = z * x;
  tape.Backward(z);
  return tape.Gradient(x).At<float>({0});
}

NDArray One() { return Ones({1}, DType::kFloat32, Place::Heap()); }

TEST(SpareChunks, SteadyStepsAskTheSystemForNothing) {
  const NDArray x = One();
  Workspace workspace("steps");
  const auto step = [&] {
    WorkspaceScope scope(workspace);
    EXPECT_EQ(Step(x, 300), 301);
  };
  for (int i = 0; i < 4; ++i) step();
  const int64_t before = MemoryTracker::Global().system_allocations();
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
}

TEST(SpareChunks, GoWhereMemoryIsShort) {
  const NDArray x = One();
  Reclaimer::Global().RunNow();
  const int64_t before = Held();
  EXPECT_EQ(Step(x, 300), 301);
  EXPECT_GT(Held(), before);
  EXPECT_GT(Reclaimer::Global().RunNow(), 0);
  EXPECT_EQ(Held(), before);
}

TEST(SpareChunks, AreFew) {
  const NDArray x = One();
  Reclaimer::Global().RunNow();
  const int64_t before = Held();
  std::vector<std::unique_ptr<GradientTape>> tapes;
  for (int i = 0; i < 20; ++i) {
    tapes.push_back(std::make_unique<GradientTape>());
    tapes.back()->Watch(x);
    for (int call = 0; call < 1000; ++call) x* x;
  }
  EXPECT_GT(Held(), before + (10 << 20));
  tapes.clear();
  EXPECT_LE(Held(), before + (4 << 20));
  Reclaimer::Global().RunNow();
  EXPECT_EQ(Held(), before);
}

TEST(SpareChunks, OfAnotherOwnerAreNotKept) {
  const NDArray x = One();
  MemoryOwner& tenant = MemoryOwner::Process().Child("tenant of tapes");
  const auto held = [&] { return MemoryBudget::Global().Of(tenant, Host()).taken_bytes; };
  {
    const MemoryOwnerScope scope(tenant);
    EXPECT_EQ(Step(x, 50), 51);
  }
  EXPECT_EQ(held(), 0);
  // One that the process began, and another charged.
  auto tape = std::make_unique<GradientTape>();
  {
    const MemoryOwnerScope scope(tenant);
    tape->Watch(x);
    for (int call = 0; call < 100; ++call) x* x;
    EXPECT_GT(held(), 0);
  }
  tape.reset();
  EXPECT_EQ(held(), 0);
}

// Those of a tape that is kept from step to step are its own.
TEST(SpareChunks, OfKeptTapesEndWithThem) {
  const NDArray x = One();
  Reclaimer::Global().RunNow();
  const int64_t before = Held();
  {
    GradientTape tape;
    tape.Restart();
    tape.Watch(x);
    for (int call = 0; call < 100; ++call) x* x;
    EXPECT_GT(Held(), before);
  }
  EXPECT_EQ(Held(), before);
}

class Listener final : public GradientListener {
 public:
  void GradientIsFinal(int) override { ++calls; }
  void PartIsNext(int part) override { parts.push_back(part); }
  int calls = 0;
  std::vector<int> parts;
};

TEST(SpareChunks, AreAsNew) {
  const NDArray x = One(), other = One();
  Listener listener;
  {
    GradientTape tape;
    tape.Watch(x);
    tape.set_part(7);
    tape.set_listener(&listener);
    tape.Backward(x * x);
  }
  EXPECT_EQ(Step(x, 3), 4);
  EXPECT_EQ(listener.calls, 1);
  {
    GradientTape first;
    first.Watch(x);
    first.set_part(5);
    const NDArray forgotten = x * x;
  }
  GradientTape tape;
  EXPECT_TRUE(tape.is_recording());
  EXPECT_EQ(tape.calls(), 0);
  EXPECT_TRUE(tape.Saved().empty());
  tape.Watch(other);
  const NDArray z = x * other;
  EXPECT_THROW(tape.Gradient(x), Error);
  Listener fresh;
  tape.set_listener(&fresh);
  tape.Backward(z);
  EXPECT_EQ(tape.Gradient(other).At<float>({0}), 1);
  EXPECT_THROW(tape.Gradient(x), Error);
  EXPECT_EQ(listener.calls, 1);
  EXPECT_EQ(fresh.parts, std::vector<int>{0});
}

// Of a kept tape too.
TEST(SpareChunks, RestartBeginsWithPartZero) {
  const NDArray x = One();
  GradientTape tape;
  tape.set_part(3);
  tape.Restart();
  tape.Watch(x);
  const NDArray z = x * x;
  Listener listener;
  tape.set_listener(&listener);
  tape.Backward(z);
  EXPECT_EQ(listener.parts, std::vector<int>{0});
}

TEST(SpareChunks, ThreadsHandThemToOneAnother) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([t] {
      const NDArray x = One();
      for (int i = 0; i < 200; ++i) {
        GradientTape outer;
        outer.Watch(x);
        const NDArray y = x * x;
        ASSERT_EQ(Step(x, (t + i) % 40), (t + i) % 40 + 1);
        outer.Backward(y);
        ASSERT_EQ(outer.Gradient(x).At<float>({0}), 2);
        if (i % 50 == 0) Reclaimer::Global().RunNow();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tidepool
