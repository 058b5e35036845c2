// Scopes whose objects go on other threads, under every interleaving: the cycle ends once and on its own
// thread, the frame is freed once and by who lets go second.
#include <cstdio>

#include "gtest/gtest.h"
#include "tidepool/memory/testing/explorer/explore.h"
#include "tidepool/memory/testing/explorer/mutations.h"
#include "tidepool/memory/testing/explorer/sync.h"
#include "tidepool/memory/workspace/scope_claim.h"

namespace tidepool {
namespace {

using explorer::Check;
using explorer::Execution;
using explorer::Result;
using explorer::Sync;

struct Frame {
  Sync::Plain<Frame*> previous{nullptr};
  Sync::Plain<int> cycle{1};  // open
  ScopeClaim<Sync> claim;
};

// The stack of one thread, and what workspace_scope.cc does with it and with objects.
struct Stack {
  static constexpr int kMost = 2;

  Frame* Push() {
    Frame* frame = Sync::New<Frame>();
    frame->claim.Hold();
    frame->previous.set(top.get());
    top.set(frame);
    return frame;
  }
  // As internal::EndLeftScopes: at the thread's next scope, and when it ends.
  void EndLeftScopes() {
    while (left.load(std::memory_order_acquire) != 0) {
      Frame* newer = nullptr;
      Frame* frame = top.get();
      while (frame != nullptr && !frame->claim.object_is_gone()) {
        newer = frame;
        frame = frame->previous.get();
      }
      if (frame == nullptr) return;
      left.fetch_sub(1, std::memory_order_relaxed);
      if (newer != nullptr) {
        newer->previous.set(frame->previous.get());
      } else {
        top.set(frame->previous.get());
      }
      EndCycle(frame);
      Sync::Delete(frame);
    }
  }
  // As StackEnd.
  void End() {
    EndLeftScopes();
    while (Frame* frame = top.get()) {
      top.set(frame->previous.get());
      EndCycle(frame);
      if (!frame->claim.LeaveToObject()) {
        left.fetch_sub(1, std::memory_order_relaxed);
        Sync::Delete(frame);
      }
    }
    Check(cycles.get() == 0, "no cycle is open when its thread has ended");
  }
  // As ScopeToken::End on another thread.
  void DestroyElsewhere(Frame* frame) {
    left.fetch_add(1, std::memory_order_relaxed);
    if (frame->claim.LeaveToStack()) return;
    left.fetch_sub(1, std::memory_order_relaxed);
    Check(frame->cycle.get() == 0, "the stack has ended the cycle that it leaves");
    Sync::Delete(frame);
  }
  void EndCycle(Frame* frame) {
    Check(frame->cycle.get() == 1, "a cycle ends once");
    frame->cycle.set(0);
    cycles.set(cycles.get() - 1);
  }

  Sync::Plain<Frame*> top{nullptr};
  Sync::Plain<int> cycles{0};
  Sync::Atomic<int> left{0};
};

// Opens `count` scopes, whose objects go one after the other on `others` threads while this one goes on to
// its next scope and ends.
template <int count, int others>
void ObjectsGoElsewhere(Execution& execution) {
  auto& stack = execution.Make<Stack>();
  Frame* frames[2] = {};
  stack.cycles.set(count);
  for (int i = 0; i < count; ++i) frames[i] = stack.Push();
  execution.Thread([&stack] {
    stack.EndLeftScopes();
    stack.End();
  });
  for (int other = 0; other < others; ++other) {
    execution.Thread([&stack, other, one = frames[0], two = frames[1]] {
      if (others == 1 || other == 0) stack.DestroyElsewhere(one);
      if (count == 2 && (others == 1 || other == 1)) stack.DestroyElsewhere(two);
    });
  }
  execution.AtEnd([&stack] { Check(stack.left.load() == 0, "none is left"); });
}

// The object finds the thread gone, as by CheckMayClose: then all that the thread did is seen.
void AnObjectAsksForItsThread(Execution& execution) {
  auto& stack = execution.Make<Stack>();
  stack.cycles.set(1);
  Frame* frame = stack.Push();
  execution.Thread([&stack] { stack.End(); });
  execution.Thread([&stack, frame] {
    if (frame->claim.stack_is_gone()) Check(frame->cycle.get() == 0, "it ended the cycle before");
    stack.DestroyElsewhere(frame);
  });
}

TEST(ScopeClaimExplored, EachIsEndedByItsThreadAndFreedOnce) {
  struct {
    const char* name;
    void (*body)(Execution&);
    int preemptions;
  } const scenarios[] = {
      {"a scope", ObjectsGoElsewhere<1, 1>, 3},
      {"two scopes", ObjectsGoElsewhere<2, 1>, 3},
      {"two scopes on two threads", ObjectsGoElsewhere<2, 2>, 2},
      {"asking for the thread", AnObjectAsksForItsThread, 3},
  };
  for (const auto& scenario : scenarios) {
    const Result result =
        Explore({.name = scenario.name, .preemptions = scenario.preemptions}, scenario.body);
    EXPECT_TRUE(result.passed() && result.exhausted) << result.report();
    std::printf("%s\n", result.report().c_str());
  }
}

TEST(ScopeClaimExplored, NoOrderIsStrongerThanItNeedsToBe) {
  const explorer::MutationTable table =
      explorer::ExploreMutations({.name = "scopes", .preemptions = 2}, [](Execution& execution) {
        switch (explorer::Choose(3)) {
          case 0:
            return ObjectsGoElsewhere<1, 1>(execution);
          case 1:
            return ObjectsGoElsewhere<2, 2>(execution);
          default:
            return AnObjectAsksForItsThread(execution);
        }
      });
  std::printf("%s\n", table.report().c_str());
  EXPECT_TRUE(table.original.passed()) << table.report();
  for (const explorer::MutationTable::Row& row : table.rows) {
    EXPECT_TRUE(row.detected() || !row.where.starts_with("scope_claim.h")) << row.text();
  }
}

}  // namespace
}  // namespace tidepool
