// Memory that cannot be had: every C++ allocation inside the ring fails once, and the system refuses
// pages when slots grow. Each time the ring must stay usable and the ledger right.
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_new.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/ring_channel.h"

namespace tidepool {
namespace {

constexpr int kArrays = 40;

struct Batch {
  SlotLease lease;
  Buffer* arrays[kArrays] = {};  // by hand, so that the test's own memory cannot fail
  ~Batch() {
    for (Buffer* array : arrays) BufferHandle(array).Reset();
  }
};

void Make(RingWorkspace& ring, int variant, Batch* batch) {
  RingSlotScope slot(ring);
  for (int i = 0; i < kArrays; ++i) {
    batch->arrays[i] = AllocateHere(64 + (i * 37 + variant * 1000) % 5000);
    std::memset(batch->arrays[i]->data, i + 1, batch->arrays[i]->bytes);
    if (i % 3 == 2) BufferHandle(std::exchange(batch->arrays[i], nullptr)).Reset();
  }
  batch->lease = slot.Commit("a name that is longer than a small string");
}

void Check(const Batch& batch) {
  for (int i = 0; i < kArrays; ++i) {
    if (batch.arrays[i] == nullptr) continue;
    ASSERT_TRUE(batch.arrays[i]->IsAlive());
    ASSERT_EQ(static_cast<int>(batch.arrays[i]->data[batch.arrays[i]->bytes - 1]), i + 1);
  }
}

TEST(RingFault, EveryAllocationMayFail) {
  std::vector<WorkspaceConfig> configs(4, WorkspaceConfig::Ring(2));
  configs[1].initial_size = 10000;
  configs[1].policy_learning = LearningPolicy::kFirstLoop;
  configs[2].policy_ring_full = RingFullPolicy::kSpill;
  configs[3].policy_allocation = AllocationPolicy::kAlways;
  MemoryTracker& tracker = MemoryTracker::Global();
  for (const WorkspaceConfig& config : configs) {
    int64_t faults = 0;
    for (int64_t n = 0;; ++n) {
      const int64_t before = tracker.Snapshot()[Host()].total.current_bytes;
      until_fault = n;
      fault_happened = false;
      std::unique_ptr<RingWorkspace> ring;
      Try([&] { ring = std::make_unique<RingWorkspace>("ring", config); });
      for (int turn = 0; turn < 12 && ring != nullptr; ++turn) {
        Batch first, second, third;
        const int variant = turn == 4 || turn == 5 ? turn : 0;  // plan, misses, totals, plan
        if (Try([&] { Make(*ring, variant, &first); })) Check(first);
        if (Try([&] { Make(*ring, variant, &second); })) Check(second);
        if (config.policy_ring_full == RingFullPolicy::kSpill &&
            Try([&] { Make(*ring, variant, &third); })) {
          Check(third);
        }
        ASSERT_EQ(CurrentPlace(), nullptr);
        first.lease.Release();
      }
      if (ring != nullptr) {
        {
          Batch usable, another;
          Make(*ring, 0, &usable);
          Make(*ring, 0, &another);
          Check(usable);
          Check(another);
        }
        ASSERT_EQ(ring->stats().idle, 2) << "fault " << n;
        ASSERT_EQ(tracker.Snapshot()[Host()][MemoryKind::kAllocated].current_bytes, 0);
      }
      ring.reset();
      ASSERT_EQ(tracker.Snapshot()[Host()].total.current_bytes, before) << "fault " << n;
      if (!fault_happened) break;
      ++faults;
    }
    EXPECT_GT(faults, 10);
  }
}

// Every request to the memory provider fails, once or from then on: while learning, growing, spilling
// and for temporary slots.
TEST(RingFault, EveryRequestForPagesMayBeRefused) {
  std::vector<WorkspaceConfig> configs(3, WorkspaceConfig::Ring(2));
  configs[1].policy_learning = LearningPolicy::kFirstLoop;
  configs[1].initial_size = 10000;
  configs[1].temp_block_size = 4096;
  configs[2].policy_ring_full = RingFullPolicy::kSpill;
  MemoryTracker& tracker = MemoryTracker::Global();
  const int64_t before = tracker.Snapshot()[Host()].total.current_bytes;
  for (const WorkspaceConfig& config : configs) {
    for (int64_t count : {1, 1000000}) {
      for (int64_t n = 0;; ++n) {
        SCOPED_TRACE(testing::Message() << "request " << n << ", " << count << " times");
        FailingProvider host(Host());
        host.faults().FailRequest(n, count);
        std::unique_ptr<RingWorkspace> ring;
        try {
          ring = std::make_unique<RingWorkspace>("ring", config);
        } catch (const OutOfMemoryError&) {
        }
        for (int turn = 0; turn < 10 && ring != nullptr; ++turn) {
          Batch batches[3];
          for (int i = 0; i < (config.policy_ring_full == RingFullPolicy::kSpill ? 3 : 2); ++i) {
            try {
              Make(*ring, turn == 4 || turn == 5 ? turn : 0, &batches[i]);
              Check(batches[i]);
            } catch (const OutOfMemoryError&) {
            }
          }
          ASSERT_EQ(CurrentPlace(), nullptr);
        }
        const bool failed = host.faults().failed() > 0;
        host.faults().Clear();
        if (ring != nullptr) {
          Batch usable;
          Make(*ring, 0, &usable);
          Check(usable);
          ASSERT_EQ(ring->stats().idle, 1);
        }
        ring.reset();
        ASSERT_EQ(tracker.Snapshot()[Host()].total.current_bytes, before);
        if (!failed) break;
        ASSERT_LT(n, 1000);
      }
    }
  }
}

// A channel loses no batch's slot when it cannot take the batch.
TEST(RingFault, AChannelThatCannotTakeABatch) {
  for (int64_t n = 0;; ++n) {
    WorkspaceConfig config = WorkspaceConfig::Ring(1);
    config.policy_ring_full = RingFullPolicy::kSpill;
    RingWorkspace ring("ring", config);
    fault_happened = false;
    {
      RingChannel<int> channel(ring);
      until_fault = n;
      for (int i = 0; i < 5; ++i) {
        Try([&] {
          RingSlotScope slot(ring);
          channel.Push(slot.Commit(), i);
        });
      }
      while (channel.size() > 0) Try([&] { channel.Pop(); });
    }
    EXPECT_EQ(ring.stats().idle, 1);
    EXPECT_EQ(ring.stats().leased, 0);
    if (!fault_happened) break;
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Private writable memory of the process, what RLIMIT_DATA limits.
size_t DataBytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    size_t kib = 0;
    if (std::sscanf(line.c_str(), "VmData: %zu kB", &kib) == 1) return kib * 1024;
  }
  return 0;
}

class DataLimit {
 public:
  explicit DataLimit(size_t more) {
    getrlimit(RLIMIT_DATA, &before_);
    rlimit limit = before_;
    limit.rlim_cur = DataBytes() + more;
    set_ = setrlimit(RLIMIT_DATA, &limit) == 0;
  }
  ~DataLimit() { setrlimit(RLIMIT_DATA, &before_); }
  bool set() const { return set_; }

 private:
  rlimit before_;
  bool set_;
};

TEST(RingFault, TheSystemRefusesPages) {
  constexpr size_t kMiB = size_t{1} << 20;
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  {
    WorkspaceConfig config = WorkspaceConfig::Ring(4);
    config.huge_pages = false;
    RingWorkspace ring("ring", config);
    auto make = [&](size_t bytes) {
      RingSlotScope slot(ring);
      BufferHandle array(AllocateHere(bytes));
      std::memset(array->data, 1, bytes);
      return slot.Commit();
    };
    for (int i = 0; i < 8; ++i) make(kMiB);
    const RingStats warm = ring.stats();
    {
      const DataLimit limit(24 * kMiB);
      ASSERT_TRUE(limit.set());
      EXPECT_THROW(make(200 * kMiB), OutOfMemoryError);
      EXPECT_EQ(ring.stats().discarded, warm.discarded + 1);
      // Two batches of 16 MiB make every slot want 16 MiB, of which one can be had.
      for (int i = 0; i < 2; ++i) make(16 * kMiB);
      for (int i = 0; i < 2; ++i) {
        std::vector<SlotLease> leases;
        EXPECT_NO_THROW(leases.push_back(make(kMiB)));
        EXPECT_NO_THROW(leases.push_back(make(kMiB)));
      }
      EXPECT_EQ(ring.slot_size(), 16 * kMiB);
    }
    // When it can, the slots follow.
    for (int turn = 0; turn < 2; ++turn) {
      std::vector<SlotLease> leases;
      for (int i = 0; i < 4; ++i) leases.push_back(make(16 * kMiB));
    }
    const uint64_t spills = ring.stats().spills;
    std::vector<SlotLease> leases;
    for (int i = 0; i < 4; ++i) leases.push_back(make(16 * kMiB));
    EXPECT_EQ(ring.stats().spills, spills);
  }
  EXPECT_EQ(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes, before);
}

TEST(RingFault, InitialPagesThatCannotBeHad) {
  constexpr size_t kMiB = size_t{1} << 20;
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  {
    WorkspaceConfig config = WorkspaceConfig::Ring(4);
    config.initial_size = 4 * kMiB;
    config.huge_pages = false;
    const DataLimit limit(10 * kMiB);
    EXPECT_THROW(RingWorkspace("ring", config), OutOfMemoryError);
    config.initial_size = kMiB;
    RingWorkspace ring("ring", config);
    ring.Destroy();
    {
      const DataLimit none(0);
      EXPECT_THROW(RingSlotScope slot(ring), OutOfMemoryError);
    }
    EXPECT_EQ(ring.stats().idle, 4);
    RingSlotScope slot(ring);
    BufferHandle array(AllocateHere(1000));
    EXPECT_EQ(ring.stats().spills, 0);
  }
  EXPECT_EQ(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes, before);
}
#endif

// What was refused was no batch: it is in no counter, takes no number, and no slot counts as kept for it.
TEST(RingFault, AnOpeningThatIsRefusedOpensNothing) {
  WorkspaceConfig config = WorkspaceConfig::Ring(2);
  config.initial_size = size_t{1} << 20;
  RingWorkspace ring("ring", config);
  ring.Destroy();
  SlotLease lease = RingSlotScope(ring).Commit();
  EXPECT_EQ(lease.generation(), 1u);
  MemoryBudget::Global().SetProcessLimit(1000);
  for (int i = 0; i < 5; ++i) {
    EXPECT_THROW(RingSlotScope slot(ring), OutOfMemoryError);
    EXPECT_THROW((void)RingSlotScope::TryOpen(ring), OutOfMemoryError);
  }
  MemoryBudget::Global().SetProcessLimit(MemoryBudget::kUnlimited);
  RingStats stats = ring.stats();
  EXPECT_EQ(stats.opened, 1u);
  EXPECT_EQ(stats.committed, 1u);
  EXPECT_EQ(stats.discarded, 0u);
  EXPECT_EQ(stats.kept, 0);
  EXPECT_EQ(stats.idle, 1);
  EXPECT_EQ(ring.generation(), 1u);
  BufferHandle array;
  {
    RingSlotScope slot(ring);
    EXPECT_EQ(slot.generation(), 2u);
    EXPECT_EQ(ring.stats().open, 1);
    EXPECT_EQ(ring.stats().opened, 2u);
    array = BufferHandle(AllocateHere(64));
    lease = slot.Commit();
  }
  EXPECT_TRUE(array->IsAlive());
  EXPECT_EQ(lease.generation(), 2u);
  array.Reset();
  lease.Release();
  RingSlotScope(ring).Discard();
  stats = ring.stats();
  EXPECT_EQ(stats.opened, 3u);
  EXPECT_EQ(stats.discarded, 1u);
  EXPECT_EQ(stats.idle, 2);
  EXPECT_EQ(ring.generation(), 3u);
}

// Where idle slots find no memory for what was learned, one of them asks for it and not each.
TEST(RingFault, WithoutMemoryForIdleSlotsTheReclaimerIsAskedForOne) {
  WorkspaceConfig config = WorkspaceConfig::Ring(200);
  config.policy_learning = LearningPolicy::kOptimized;
  RingWorkspace ring("ring", config);
  {
    std::vector<SlotLease> leases;  // each has had one of the last batches
    for (int batch = 0; batch < 200; ++batch) leases.push_back(RingSlotScope(ring).Commit());
  }
  MemoryBudget& budget = MemoryBudget::Global();
  constexpr int64_t kArray = 1 << 20;
  budget.SetProcessLimit(budget.process().taken_bytes + 4 * kArray);
  const int64_t runs = Reclaimer::Global().stats().pressure_runs;
  for (int batch = 0; batch < 4; ++batch) {
    RingSlotScope slot(ring);
    BufferHandle array(AllocateHere(kArray));
    SlotLease lease = slot.Commit();
    array.Reset();
  }
  EXPECT_LE(Reclaimer::Global().stats().pressure_runs - runs, 8);
  budget.SetProcessLimit(MemoryBudget::kUnlimited);
  // All follow once there is memory.
  std::vector<SlotLease> leases;
  const uint64_t spills = ring.stats().spills;
  for (int batch = 0; batch < 200; ++batch) {
    RingSlotScope slot(ring);
    BufferHandle array(AllocateHere(kArray));
    leases.push_back(slot.Commit());
  }
  EXPECT_EQ(ring.stats().spills, spills);
}

// As many as there may be come and go in linear time; else this one takes minutes.
TEST(RingFault, OfAsManySlotsAsThereMayBe) {
  WorkspaceConfig config = WorkspaceConfig::Ring(65536);
  config.prefault = false;
  const int64_t before = MemoryTracker::Global().Snapshot()[Host()].total.current_bytes;
  {
    RingWorkspace ring("ring", config);
    for (int batch = 0; batch < 3; ++batch) {
      RingSlotScope slot(ring);
      BufferHandle array(AllocateHere(64));
      SlotLease lease = slot.Commit();
      array.Reset();
    }
    EXPECT_EQ(ring.stats().idle, 65536);
    EXPECT_EQ(ring.stats().committed, 3u);
  }
  EXPECT_EQ(MemoryTracker::Global().Snapshot()[Host()].total.current_bytes, before);
}

}  // namespace
}  // namespace tidepool
