// Iterators that are started, read in part and stopped again and again: nothing hangs, nothing is
// left.
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/testing/numbered.h"

namespace tidepool::nn {
namespace {

// Of /proc/self/status: "Threads" and "VmRSS" in KiB.
int64_t StatusOf(const std::string& field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    int64_t number = 0;
    if (word == field + ":" && status >> number) return number;
  }
  ADD_FAILURE() << field;
  return 0;
}

int64_t LedgerBytes() {
  int64_t bytes = 0;
  for (const MemoryKind kind :
       {MemoryKind::kAllocated, MemoryKind::kUnreferenced, MemoryKind::kWorkspace}) {
    bytes += MemoryTracker::Global().CurrentBytes(Host(), kind);
  }
  return bytes;
}

TEST(AsyncStress, TenThousandStartsPartialReadsAndStopsLeaveNothing) {
  FunctionIterator<DataSet> source(1000, &Numbered);
  const auto round = [&](int i) {
    source.Reset();  // before: it is nobody else's afterwards
    AsyncDataSetIterator ahead(source, {.prefetch = 1 + i % 4, .producers = 1 + i % 3});
    for (int batch = 0; batch < i % 5; ++batch) ASSERT_TRUE(ahead.Next().has_value());
    if (i % 7 == 0) {
      ahead.Reset();
      ASSERT_EQ(ahead.Next()->features.At<float>({0, 0}), 0);
    }
  };
  for (int i = 0; i < 500; ++i) round(i);
  const int64_t threads = StatusOf("Threads"), ledger = LedgerBytes(), resident = StatusOf("VmRSS");
  for (int i = 0; i < 10000; ++i) round(i);
  EXPECT_EQ(StatusOf("Threads"), threads);
  EXPECT_EQ(LedgerBytes(), ledger);
  EXPECT_LT(StatusOf("VmRSS") - resident, 4096);
}

struct Killed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A source whose every call may throw, at random. What comes before the exception is right, and
// after a reset all is.
template <typename Set>
class Hazardous : public IndexedIterator<Set> {
 public:
  Hazardous(uint64_t seed, int one_in) : random_(seed), one_in_(one_in) {}
  int64_t size() const override {
    MayThrow("size");
    return 30;
  }
  Set Make(int64_t index, const std::stop_token&) const override {
    MayThrow("Make begins");
    Set batch = NumberedAs<Set>(index);
    MayThrow("Make ends");
    return batch;
  }
  void Reset() override {
    MayThrow("Reset");
    IndexedIterator<Set>::Reset();
  }
  void set_one_in(int one_in) { one_in_ = one_in; }

 private:
  void MayThrow(const char* where) const {
    // As a generator that any thread may ask.
    uint64_t x = random_.fetch_add(0x9E3779B97F4A7C15u);
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    if (one_in_ != 0 && (x >> 33) % static_cast<uint64_t>(one_in_.load()) == 0) throw Killed(where);
  }
  mutable std::atomic<uint64_t> random_;
  std::atomic<int> one_in_;
};

// The same one behind the other.
template <typename Set>
class InTurn : public Iterator<Set> {
 public:
  explicit InTurn(Hazardous<Set>& base) : base_(base) {}
  void Reset() override { base_.Reset(); }

 protected:
  std::optional<Set> NextBatch(const std::stop_token& stop) override { return base_.Next(stop); }

 private:
  Hazardous<Set>& base_;
};

template <typename Set>
class AsyncStressOf : public testing::Test {};
using Sets = testing::Types<DataSet, MultiDataSet>;
TYPED_TEST_SUITE(AsyncStressOf, Sets);

TYPED_TEST(AsyncStressOf, ProducersKilledAtRandomPointsAreToldAndTheNextEpochIsWhole) {
  const int64_t threads = StatusOf("Threads"), ledger = LedgerBytes();
  int64_t killed = 0, whole = 0;
  std::mt19937 random(20);
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Hazardous<TypeParam> source(seed, 0);
    InTurn<TypeParam> in_turn(source);
    AsyncIterator<TypeParam> ahead(
        seed % 2 == 0 ? static_cast<Iterator<TypeParam>&>(source) : in_turn,
        {.prefetch = 1 + static_cast<int>(seed % 5), .producers = 1 + static_cast<int>(seed % 4)});
    source.set_one_in(60);
    for (int epoch = 0; epoch < 6; ++epoch) {
      int64_t next = 0;
      const int64_t leave_at = random() % 4 == 0 ? static_cast<int64_t>(random() % 30) : 31;
      try {
        if (epoch > 0) ahead.Reset();
        while (next < leave_at) {
          std::optional<TypeParam> batch = ahead.Next();
          if (!batch.has_value()) break;
          ASSERT_EQ(NumberOf(*batch), static_cast<float>(next));
          ++next;
        }
        if (leave_at > 30) {
          ASSERT_EQ(next, 30);
          ++whole;
        }
      } catch (const Killed&) {
        const std::optional<int64_t> failed = ahead.failed_batch();
        ASSERT_EQ(failed.value_or(-2), next == 0 && failed == -1 ? -1 : next);
        ++killed;
        EXPECT_THROW(ahead.Next(), Killed);
      }
    }
    source.set_one_in(0);
    ahead.Reset();
    int64_t next = 0;
    while (std::optional<TypeParam> batch = ahead.Next())
      ASSERT_EQ(NumberOf(*batch), static_cast<float>(next++));
    ASSERT_EQ(next, 30);
    ASSERT_EQ(ahead.ring_stats().leaked_arrays, 0u);
    ASSERT_EQ(ahead.ring_stats().leased + ahead.ring_stats().open, 0);
  }
  EXPECT_EQ(StatusOf("Threads"), threads);
  EXPECT_EQ(LedgerBytes(), ledger);
  EXPECT_GT(killed, 200);
  EXPECT_GT(whole, 50);
}

// In the order in which several producers would make them: each length has a plan, and what serves all of
// them stays.
TEST(AsyncStress, SlotsSettleWhateverTheOrderOfLengths) {
  RingWorkspace ring("batches", AsyncOptions().RingConfig());
  RingStats settled;
  uint32_t random = 1;
  for (int batch = 0; batch < 10000; ++batch) {
    if (batch == 5000) settled = ring.stats();
    random = random * 1664525 + 1013904223;
    const int64_t rows = 16 + (random >> 16) % 48;
    RingSlotScope slot(ring);
    DataSet made;
    {
      const NDArray decoded({rows, 8}, DType::kFloat32);
      made.features = NDArray({rows, 8}, DType::kFloat32);
    }
    made.labels = NDArray({rows}, DType::kInt64);
    made.lease = slot.Commit();
  }
  EXPECT_EQ(ring.stats().plans, settled.plans);
  EXPECT_EQ(ring.stats().spills, settled.spills);
  EXPECT_EQ(ring.stats().slot_bytes, settled.slot_bytes);
  EXPECT_LE(settled.slot_bytes, 5120u);  // of the longest batch 4,608
}

}  // namespace
}  // namespace tidepool::nn
