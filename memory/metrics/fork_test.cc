// What a child of fork() may do whatever other threads are at (docs/memory_ledger.md): threads hold a lock as
// often as not, and children use what it guards.
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/memory/ownership/ownership.h"
#include "tidepool/memory/ownership/ownership_snapshot.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/cycle_detector.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

// Runs `busy` on threads, again and again, while children of forks run `child` and end with what it returns.
// A child that waits for ever is ended by an alarm.
class Forks {
 public:
  explicit Forks(std::vector<std::function<void()>> busy) {
    for (std::function<void()>& work : busy) {
      threads_.emplace_back([this, work = std::move(work)] {
        while (!stop_) {
          work();
          rounds_.fetch_add(1, std::memory_order_relaxed);
        }
      });
    }
  }
  ~Forks() {
    stop_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

  void Expect(int forks, const std::function<bool()>& child) {
    for (int round = 0; round < forks; ++round) {
      const int64_t before = rounds_;
      while (rounds_ < before + 3) std::this_thread::yield();  // others are where they were not
      const pid_t id = fork();
      ASSERT_GE(id, 0);
      if (id == 0) {
        alarm(20);
        std::_Exit(child() ? 0 : 1);
      }
      int status = -1;
      ASSERT_EQ(waitpid(id, &status, 0), id);
      ASSERT_FALSE(WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
          << "child " << round << " waits for ever";
      ASSERT_EQ(status, 0) << "child " << round;
    }
  }

 private:
  std::atomic<bool> stop_{false};
  std::atomic<int64_t> rounds_{0};
  std::vector<std::thread> threads_;
};

#ifdef __SANITIZE_ADDRESS__
#define SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE() \
  GTEST_SKIP() << "gcc 12's AddressSanitizer leaves its own allocator locked in the child"
#else
#define SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE() static_cast<void>(0)
#endif

WorkspaceConfig WithoutSearch(WorkspaceConfig config = {}) {
  config.plan_search_seconds = 0;
  return config;
}

void Request(int count, size_t bytes) {
  std::vector<BufferHandle> handles;
  for (int i = 0; i < count; ++i) handles.emplace_back(AllocateHere(bytes * (1 + i % 3)));
}

// First of all here: the others would have done it as well. (That it is linked says the call that is not made.)
TEST(ForkTest, AllLocksAreKnownBeforeThereAreThreads) {
  SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE();  // what the others here would call is not linked then
  if (getpid() == 0) ReleaseBytes(AllocateBytesHere(1), 1);
  for (int level = 0; level < kForkLevels; ++level) {
    EXPECT_TRUE(IsForkHandled(static_cast<ForkLevel>(level))) << level;
  }
}

TEST(ForkTest, ChildrenCountHowManyForksAreBehindThem) {
  const uint64_t behind = ForksBehind();
  const pid_t id = fork();
  ASSERT_GE(id, 0);
  if (id == 0) std::_Exit(ForksBehind() == behind + 1 ? 0 : 1);
  int status = -1;
  ASSERT_EQ(waitpid(id, &status, 0), id);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(ForksBehind(), behind);
}

TEST(ForkTest, MetricsDoNotWaitForPoolsOfOtherThreads) {
  SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE();
  auto pool = std::make_unique<WorkspacePool>("fork pool", WithoutSearch());
  std::vector<WorkspaceLease> leases;  // counted one by one, with the lock
  for (int i = 0; i < 500; ++i) leases.push_back(pool->Lease());
  const auto read = [&] { ASSERT_GE(pool->stats().leased, 500); };
  Forks forks({read, read});
  forks.Expect(20, [&] {
    if (MetricsText().find("fork pool") == std::string::npos) return false;
    pool.reset();  // as static ones end
    return true;
  });
}

TEST(ForkTest, TheReclaimerDoesNotWaitForPoolsOfOtherThreads) {
  SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE();
  WorkspacePool pool("fork pool", WithoutSearch());
  std::atomic<uint64_t> seed{0};
  const auto serve = [&] {
    for (int i = 0; i < 20; ++i) {
      const uint64_t kind = seed.fetch_add(1) * 0x9E3779B97F4A7C15u >> 60;
      const PooledScope scope(pool);
      Request(4, 1000 + 4096 * kind);
    }
  };
  Forks forks({serve, serve, serve, serve, [&] { pool.Trim(); }, [&] { pool.Trim(); }});
  forks.Expect(100, [] {
    Reclaimer::Global().RunNow();
    WorkspacePool own("child", WithoutSearch());
    const PooledScope scope(own);
    Request(4, 1000);
    return true;
  });
}

TEST(ForkTest, MetricsDoNotWaitForRingsOfOtherThreads) {
  SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE();
  RingWorkspace ring("fork ring", WithoutSearch(WorkspaceConfig::Ring(64)));
  const auto read = [&] { ASSERT_FALSE(ring.Dump().empty()); };  // with the lock
  Forks forks({read, read});
  forks.Expect(20, [&] {
    if (MetricsText().find("fork ring") == std::string::npos) return false;
    RingWorkspace own("child", WithoutSearch(WorkspaceConfig::Ring(2)));
    return RingSlotScope::TryOpen(own).has_value();
  });
}

TEST(ForkTest, NodesOfOwnersAreFreeWhateverOtherThreadsDo) {
  SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE();
  Ownership& root = Ownership::Process();
  std::vector<BufferHandle> buffers;  // listed one by one, with the node's lock
  for (int i = 0; i < 2000; ++i) root.Attach(buffers.emplace_back(AllocateHere(8)));
  const auto list = [&] {
    ASSERT_GE(SnapshotOf(root.ref(), /*list_arrays=*/true)[0].arrays, 2000);
  };
  Forks forks({list, list, [] { const Ownership busy = Ownership::Process().NewChild("busy"); }});
  forks.Expect(30, [] {
    std::vector<Ownership> children;
    for (int i = 0; i < 40; ++i) children.push_back(Ownership::Process().NewChild("child"));
    const BufferHandle buffer(AllocateHere(100));
    children[0].Attach(buffer);
    children[1].Lend(buffer);
    return buffer->IsAlive();
  });
}

TEST(ForkTest, HoldsAndSinksAreFreeWhateverOtherThreadsDo) {
  SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE();
  std::atomic<int64_t> told{0};
  const auto hold = [] {
    const BufferHandle buffer(AllocateHere(100));
    for (int i = 0; i < 50; ++i) const HeldBytes held(buffer);
  };
  const auto set = [&] {
    for (int i = 0; i < 50; ++i) SetLeakSink([&told](const LeakReport&) { ++told; });
  };
  set();  // the first child has a sink, whichever threads were quick
  {
    Forks forks({hold, hold, set, set});
    forks.Expect(30, [&] {
      const BufferHandle buffer(AllocateHere(100));
      const HeldBytes held(buffer);
      Workspace workspace("child", WithoutSearch());
      BufferHandle left;
      {
        const WorkspaceScope scope(workspace);
        left = BufferHandle(AllocateHere(100));
      }
      return !left->IsAlive() && told > 0;
    });
  }
  SetLeakSink(nullptr);
}

class Readings final : public LedgerObserver {
 public:
  void Observe(const LedgerReading&) noexcept override { ++count_; }
  int count() const { return count_; }

 private:
  std::atomic<int> count_{0};
};

// They may be on the stack of a thread that is not there, where there is anything soon.
TEST(ForkTest, AChildHasTheObserversOfItsOwnThreadAlone) {
  SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE();
  MemoryTracker& ledger = MemoryTracker::Global();
  Readings own, others, of_all;
  ledger.Observe(&own, Host(), nullptr);
  std::thread([&] {
    ledger.Observe(&others, Host(), nullptr);
    ledger.ObserveAllDevices(&of_all);
  }).join();
  Forks forks({[] {}});
  forks.Expect(1, [&] {
    const int mine = own.count(), theirs = others.count() + of_all.count();
    const BufferHandle buffer(AllocateHere(100));
    if (own.count() == mine || others.count() + of_all.count() != theirs) return false;
    ledger.StopObserving(&others);  // nothing happens
    ledger.StopObserving(&of_all);
    const int then = own.count();
    const BufferHandle another(AllocateHere(100));
    return own.count() > then;
  });
  const int before = others.count();
  { const BufferHandle buffer(AllocateHere(100)); }
  EXPECT_GT(others.count(), before);  // here they are told as ever
  for (Readings* each : {&own, &others, &of_all}) ledger.StopObserving(each);
}

// One in a callback of a level that falls in the middle of the Reclaimer's run, one anywhere.
TEST(ForkTest, TwoForksDoNotWaitForOneAnother) {
  SKIP_WHERE_CHILDREN_CANNOT_ALLOCATE();
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "ThreadSanitizer ends a child that starts threads";
#endif
  MemoryBudget& budget = MemoryBudget::Global();
  MemoryOwner& owner = MemoryOwner::Process().Child("two forks");
  const auto fork_and_wait = [] {
    const pid_t id = fork();
    if (id == 0) {
      Reclaimer::Global().RunNow();  // nobody's run is under way there
      std::_Exit(0);
    }
    int status = -1;
    return id > 0 && waitpid(id, &status, 0) == id && status == 0;
  };
  Forks forks({[] {}});
  forks.Expect(5, [&] {
    // A layer above, whose locks the system takes before those of memory/.
    static std::mutex above;
    pthread_atfork(
        [] {
          TellBeforeFork();
          above.lock();
        },
        [] { above.unlock(); }, [] { above.unlock(); });
    budget.SetOwnerLimit(owner, Host(), 1000);
    budget.Reserve(Host(), owner, 900, "a test");
    std::atomic<bool> is_in_callback{false};
    bool callback_forked = false, other_forked = false;
    const MemoryEventCallback watch([&](const MemoryEvent& event) {
      if (event.kind != MemoryEvent::Kind::kLevel || event.level != MemoryLevel::kNormal) return;
      is_in_callback = true;
      // The other one is waiting for the end of this run by now, or soon.
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      callback_forked = fork_and_wait();
    });
    bool given = false;  // children run the Reclaimer too
    const auto gives = Reclaimer::Global().Register("gives", [&](ReclaimDepth) -> int64_t {
      if (std::exchange(given, true)) return 0;
      budget.Release(Host(), owner, 900);
      return 900;
    });
    std::thread other([&] {
      while (!is_in_callback) std::this_thread::yield();
      other_forked = fork_and_wait();
    });
    Reclaimer::Global().RunNow();
    other.join();
    return callback_forked && other_forked;
  });
}

}  // namespace
}  // namespace tidepool
