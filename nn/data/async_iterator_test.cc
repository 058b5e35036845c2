// Batches made ahead: order, slots, leases, shields, page-locked memory. Numbered cases are ND4J's
// and DJL's; failures are in async_failures_test.cc, starts and stops by the thousand in
// async_stress_test.cc.
#include "tidepool/nn/data/async_iterator.h"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/testing/allocation_counter.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/data/normalizer.h"
#include "tidepool/nn/data/testing/numbered.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

TEST(AsyncIterator, Nd4jCases111And114AllInOrderAndThenNone) {
  for (const bool by_index : {true, false}) {
    for (const int prefetch : {1, 2, 3, 5, 8, 100}) {
      for (const int producers : {1, 2, 5}) {
        FunctionIterator<DataSet> indexed(100, &Numbered);
        Stream stream(100);
        AsyncDataSetIterator ahead(by_index ? static_cast<DataSetIterator&>(indexed) : stream,
                                   {.prefetch = prefetch, .producers = producers});
        for (int epoch = 0; epoch < 3; ++epoch, ahead.Reset()) {
          for (int64_t i = 0; i < 100; ++i) {
            std::optional<DataSet> batch = ahead.Next();
            ASSERT_TRUE(batch.has_value());
            ASSERT_EQ(NumberOf(*batch), static_cast<float>(i));
            ASSERT_TRUE(batch->features.IsAttached());
          }
          ASSERT_FALSE(ahead.Next().has_value());
          ASSERT_FALSE(ahead.Next().has_value());
        }
        EXPECT_EQ(ahead.ring_stats().leaked_arrays, 0u);
      }
    }
  }
}

TEST(AsyncIterator, Nd4jCases112And117ResetHalfWayAndAnExhaustedIterator) {
  FunctionIterator<DataSet> source(100, &Numbered);
  {
    AsyncDataSetIterator ahead(source, {.prefetch = 4, .producers = 3});
    int64_t seen = 0;
    while (seen < 50 && ahead.Next().has_value()) ++seen;
    ahead.Reset();
    while (std::optional<DataSet> batch = ahead.Next()) {
      ASSERT_EQ(NumberOf(*batch), static_cast<float>(seen++ - 50));
    }
    EXPECT_EQ(seen, 150);
  }
  AsyncDataSetIterator exhausted(source);
  EXPECT_FALSE(exhausted.Next().has_value());
  exhausted.Reset();
  EXPECT_EQ(NumberOf(*exhausted.Next()), 0);
}

TEST(AsyncIterator, DjlCases116And117AtMostSoManyWait) {
  std::atomic<int64_t> made{0};
  FunctionIterator<DataSet> source(100, [&](int64_t i) { return ++made, Numbered(i); });
  AsyncDataSetIterator ahead(source, {.prefetch = 3});
  for (int64_t taken = 0; taken < 10; ++taken) {
    while (ahead.waiting() < 3) std::this_thread::yield();
    EXPECT_EQ(made, taken + 3);
    ahead.Next();
  }
  EXPECT_EQ(ahead.ring_stats().temporary, 0u);
}

// Producers of an iterator that goes by index work at the same time: each of these waits for all
// others.
TEST(AsyncIterator, ProducersMakeBatchesAtTheSameTime) {
  std::mutex mutex;
  std::condition_variable changed;
  int there = 0;
  FunctionIterator<DataSet> source(12, [&](int64_t i) {
    DataSet batch = Numbered(i);
    std::unique_lock<std::mutex> lock(mutex);
    const int round = there++ / 4;
    changed.notify_all();
    changed.wait(lock, [&] { return there >= 4 * (round + 1); });
    return batch;
  });
  AsyncDataSetIterator ahead(source, {.prefetch = 4, .producers = 4});
  for (int64_t i = 0; i < 12; ++i) ASSERT_EQ(NumberOf(*ahead.Next()), static_cast<float>(i));
}

TEST(AsyncIterator, SlotsForWhatTheReaderKeeps) {
  for (const int kept : {6, 1}) {
    FunctionIterator<DataSet> source(400, &Numbered);
    AsyncDataSetIterator ahead(source, {.kept = kept});
    std::deque<DataSet> in_hand;
    while (std::optional<DataSet> batch = ahead.Next()) {
      in_hand.push_back(std::move(*batch));
      if (in_hand.size() > 5) in_hand.pop_front();
    }
    // Any six in a row are alive at once before one is let go of, and there are three slots: three
    // of each of 66 times six batches, however the two threads take turns.
    EXPECT_EQ(ahead.ring_stats().temporary == 0, kept == 6);
    EXPECT_TRUE(kept == 6 || ahead.ring_stats().temporary >= 198) << ahead.ring_stats().temporary;
    for (const DataSet& batch : in_hand) EXPECT_TRUE(batch.features.IsAttached());
  }
}

// Nothing is copied behind the one that makes a batch, or that normalizes what it has alone.
TEST(AsyncIterator, BatchesAreReadWhereTheyWereMade) {
  std::vector<const void*> made(40);
  FunctionIterator<DataSet> source(40, [&](int64_t i) {
    DataSet batch = Numbered(i);
    made[static_cast<size_t>(i)] = batch.features.raw_data();
    return batch;
  });
  Normalizer normalizer = Normalizer::Standardize();
  normalizer.Fit(source);
  NormalizedIterator normalized(source, normalizer);
  for (DataSetIterator* const base :
       {static_cast<DataSetIterator*>(&source), static_cast<DataSetIterator*>(&normalized)}) {
    base->Reset();
    AsyncDataSetIterator ahead(*base, {.prefetch = 4, .producers = 3});
    for (size_t i = 0; i < 40; ++i) EXPECT_EQ(ahead.Next()->features.raw_data(), made[i]) << i;
  }
}

// Of batches of a size: once each slot has had one.
TEST(AsyncIterator, ABatchTakesNoAllocationNoPageAndNothingFromTheSystem) {
  PrefaultProgram();
  ExampleIterator<DataSet> source(
      std::make_shared<ArrayExamples>(RandomUniform({512, 784}, 0, 1, 1),
                                      RandomIntegers({512}, 0, 10, 2)),
      {.batch_size = 64, .seed = 7});
  AsyncDataSetIterator ahead(source, {.prefetch = 4, .producers = 2, .kept = 2});
  // Slots are opened again in any order, and one that is not for long would have its plan's pages only then: all six at
  // once, several times, as each learns its own cycle.
  for (int round = 0; round < 4; ++round) {
    std::vector<DataSet> all;
    for (int i = 0; i < 6; ++i) all.push_back(*ahead.Next());
    ahead.Reset();
  }
  const auto epochs = [&](int count) {
    for (int epoch = 0; epoch < count; ++epoch) {
      ahead.Reset();
      while (const std::optional<DataSet> batch = ahead.Next())
        ASSERT_EQ(batch->features.dim(1), 784);
    }
  };
  epochs(20);
  const int64_t allocations = AllocationCount(), faults = PageFaults(),
                system = MemoryTracker::Global().system_allocations();
  const RingStats before = ahead.ring_stats();
  epochs(100);
  const RingStats after = ahead.ring_stats();
  // Reset() makes what is to be stopped anew.
  EXPECT_LE(AllocationCount() - allocations, 100 * 4);
  EXPECT_EQ(PageFaults() - faults, 0);
  EXPECT_EQ(MemoryTracker::Global().system_allocations() - system, 0);
  EXPECT_EQ(after.committed - before.committed, 800u);
  EXPECT_EQ(after.spills - before.spills, 0u);
  EXPECT_EQ(after.temporary - before.temporary, 0u);
}

// Series of different lengths with their masks: each batch's four arrays are of one number, when it
// is read and when it is kept, and once lengths have been seen slots have room for them.
TEST(AsyncIterator, Nd4jCase115SeriesOfDifferentLengthsComeWithTheirMasks) {
  FunctionIterator<DataSet> source(100, [](int64_t i) {
    const int64_t length = 3 + i % 7 * (1 + i / 20);
    const auto number = static_cast<double>(i);
    DataSet batch{Full({4, length, 2}, number), Full({4, length}, number + 0.25)};
    batch.features_mask = Full({4, length}, number + 0.5);
    batch.labels_mask = Full({4, length}, number + 0.75);
    return batch;
  });
  const auto expect = [](const NDArray& array, double number, int64_t length) {
    ASSERT_EQ(array.dim(1), length);
    for (const float value : array.ToVector<float>()) ASSERT_NEAR(value, number, 1e-10);
  };
  AsyncDataSetIterator ahead(source, {.prefetch = 3, .producers = 2});
  // Which slot has which batch hangs on the producers' times, so when all have had each length does too.
  uint64_t spills = 0;
  int settled = 0;  // epochs running without any
  NDArray kept;
  for (int epoch = 0; settled < 5; ++epoch, ahead.Reset()) {
    ASSERT_LT(epoch, 200) << "it takes memory for ever";
    const uint64_t before = std::exchange(spills, ahead.ring_stats().spills);
    settled = epoch > 0 && spills == before ? settled + 1 : 0;
    for (int64_t i = 0; i < 100; ++i) {
      std::optional<DataSet> batch = ahead.Next();
      ASSERT_TRUE(batch.has_value());
      const auto number = static_cast<double>(i);
      const int64_t length = 3 + i % 7 * (1 + i / 20);
      expect(batch->features, number, length);
      expect(batch->labels, number + 0.25, length);
      expect(batch->features_mask, number + 0.5, length);
      expect(batch->labels_mask, number + 0.75, length);
      const std::vector<DataSet> parts = batch->Split(2);
      expect(parts[1].labels_mask, number + 0.75, length);
      if (i == 5) kept = batch->features_mask.Detach();
    }
  }
  EXPECT_FALSE(kept.IsAttached());
  EXPECT_EQ(kept.At<float>({0, 0}), 5.5f);
}

TEST(AsyncIterator, Nd4jCase121BatchesStayValidAsLongAsTheyAreKept) {
  std::vector<DataSet> kept;
  std::vector<DataSet> parts;
  FunctionIterator<DataSet> source(30, &Numbered);
  {
    AsyncDataSetIterator ahead(source);
    parts = ahead.Next()->Split(2);
    while (std::optional<DataSet> batch = ahead.Next()) kept.push_back(std::move(*batch));
    ahead.Reset();
    for (int i = 0; i < 5; ++i) ahead.Next();
  }
  ASSERT_EQ(kept.size(), 29u);
  for (size_t i = 0; i < kept.size(); ++i) EXPECT_EQ(NumberOf(kept[i]), static_cast<float>(i + 1));
  parts[0].Close();
  EXPECT_EQ(parts[1].features.At<float>({1, 2}), 0);
  kept[3].Close();
  kept[3].Close();
  EXPECT_FALSE(kept[3].features.is_defined());
  kept[1] = std::move(kept[2]);
  EXPECT_EQ(NumberOf(kept[1]), 3);
}

// What another iterator made ahead keeps the slots of both. It is shielded from being made ahead of
// that.
TEST(AsyncIterator, ABatchOfAnotherIteratorKeepsItsSlot) {
  FunctionIterator<DataSet> source(30, &Numbered);
  AsyncDataSetIterator first(source);
  FunctionIterator<DataSet> doubling(30, [&](int64_t) {
    DataSet batch = std::move(*first.Next());
    batch.labels = batch.labels + batch.labels;  // in the slot of the second
    return batch;
  });
  AsyncDataSetIterator second(doubling);
  std::vector<DataSet> kept;
  while (std::optional<DataSet> batch = second.Next()) kept.push_back(std::move(*batch));
  ASSERT_EQ(kept.size(), 30u);
  for (int64_t i = 0; i < 30; ++i) {
    EXPECT_EQ(NumberOf(kept[static_cast<size_t>(i)]), static_cast<float>(i));
    EXPECT_EQ(kept[static_cast<size_t>(i)].labels.At<int64_t>({3}), i % 10 * 2);
  }
  EXPECT_EQ(first.ring_stats().leased, 30);
  kept.clear();
  for (const AsyncDataSetIterator* ahead : {&first, &second}) {
    EXPECT_EQ(ahead->ring_stats().leased, 0);
    EXPECT_EQ(ahead->ring_stats().leaked_arrays, 0u);
  }
}

TEST(AsyncIterator, Nd4jCase119NobodyPrefetchesWhatIsShielded) {
  std::vector<std::thread::id> threads;
  FunctionIterator<DataSet> source(4, [&](int64_t i) {
    threads.push_back(std::this_thread::get_id());
    return Numbered(i);
  });
  AsyncShieldDataSetIterator shield(source);
  EXPECT_FALSE(shield.allows_prefetch());
  EXPECT_FALSE(shield.goes_by_index());
  AsyncDataSetIterator ahead(shield, {.prefetch = 3, .producers = 3});
  for (int epoch = 0; epoch < 2; ++epoch, ahead.Reset()) {
    EXPECT_EQ(NumberOf(*ahead.Next()), 0);
    EXPECT_EQ(threads.size(), epoch * 4 + 1u);  // nothing ahead
    EXPECT_FALSE(ahead.Next()->features.IsAttached());
    while (ahead.Next().has_value()) {
    }
  }
  for (const std::thread::id thread : threads) EXPECT_EQ(thread, std::this_thread::get_id());
  EXPECT_EQ(ahead.ring_stats().opened, 0u);
  // What is made ahead already is not made ahead of that.
  FunctionIterator<DataSet> plain(4, &Numbered);
  AsyncDataSetIterator inner(plain, {.prefetch = 1});
  AsyncDataSetIterator outer(inner, {.prefetch = 4});
  EXPECT_EQ(NumberOf(*outer.Next()), 0);
  EXPECT_EQ(outer.ring_stats().opened, 0u);
}

TEST(AsyncIterator, Nd4jCase118SetsOfSeveralArrays) {
  FunctionIterator<MultiDataSet> source(50, [](int64_t i) {
    const auto number = static_cast<double>(i);
    MultiDataSet set({Full({2, 3}, number), Full({2, 5}, number + 0.25)},
                     {Full({2}, number, DType::kInt64)});
    set.labels_masks.push_back(Full({2, 1}, number + 0.5));
    return set;
  });
  AsyncMultiDataSetIterator ahead(source, {.prefetch = 3, .producers = 2});
  MultiDataSet kept;
  for (int epoch = 0; epoch < 2; ++epoch) {
    if (epoch > 0) ahead.Reset();  // not behind the last: it makes the next epoch's first ones
    for (int64_t i = 0; i < 50; ++i) {
      std::optional<MultiDataSet> set = ahead.Next();
      ASSERT_TRUE(set.has_value());
      EXPECT_EQ(set->size(), 2);
      EXPECT_EQ(set->features[0].At<float>({1, 2}), static_cast<float>(i));
      EXPECT_EQ(set->features[1].At<float>({1, 4}), static_cast<float>(i) + 0.25f);
      EXPECT_EQ(set->labels[0].At<int64_t>({0}), i);
      EXPECT_EQ(set->labels_masks[0].At<float>({1, 0}), static_cast<float>(i) + 0.5f);
      kept = std::move(*set);
    }
    EXPECT_FALSE(ahead.Next().has_value());
  }
  EXPECT_EQ(kept.labels[0].At<int64_t>({1}), 49);
  kept.Close();
  EXPECT_EQ(ahead.ring_stats().leased, 0);
  EXPECT_EQ(ahead.ring_stats().leaked_arrays, 0u);
}

// Slots are page-locked where the device has such memory, and batches are host arrays all the same.
TEST(AsyncIterator, SlotsOfADeviceArePageLocked) {
  SimulatedDevice& device = SimulatedDevice::Get();
  for (const bool pinned : {true, false}) {
    device.Reset();
    device.set_has_pinned_host(pinned);
    {
      FunctionIterator<DataSet> source(40, [](int64_t i) {
        DataSet batch{NDArray({1000, 100}, DType::kFloat32), Full({4}, 1)};
        batch.features.mutable_data<float>()[99999] = static_cast<float>(i);
        return batch;
      });
      AsyncDataSetIterator ahead(source, {.prefetch = 2, .device = SimulatedDevice::kDevice});
      for (int64_t i = 0; i < 40; ++i) {
        std::optional<DataSet> batch = ahead.Next();
        EXPECT_EQ(batch->features.device(), Host());
        EXPECT_EQ(device.pinned_bytes() >= 400000, pinned);
        const NDArray there = batch->features.To(SimulatedDevice::kDevice);
        EXPECT_EQ(there.At<float>({999, 99}), static_cast<float>(i));
      }
      EXPECT_GT(ahead.ring_stats().hits, 0u);
    }
    EXPECT_EQ(device.pinned_bytes(), 0u);
  }
  device.Reset();
}

TEST(AsyncIterator, TrainsAsBatchesMadeInPlace) {
  const auto images = [](int64_t i) -> DataSet {
    return {RandomUniform({8, 28, 28, 1}, 0, 1, static_cast<uint64_t>(i)),
            Full({8}, static_cast<double>(i % 10), DType::kInt64)};
  };
  const auto model = [] { return MakeModel("mlp", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled); };
  Model streamed = model(), direct = model();
  Trainer a(streamed, UpdaterConfig::Of(UpdaterKind::kAdam));
  Trainer b(direct, UpdaterConfig::Of(UpdaterKind::kAdam));
  FunctionIterator<DataSet> source(12, images);
  AsyncDataSetIterator ahead(source, {.producers = 2});
  int64_t steps = 0;
  while (std::optional<DataSet> batch = ahead.Next()) {
    EXPECT_EQ(a.Step([&] { return std::move(*batch); }), b.Step([&] { return images(steps); }));
    ++steps;
  }
  EXPECT_EQ(steps, 12);
  EXPECT_EQ(streamed.network->parameters().ToVector<float>(),
            direct.network->parameters().ToVector<float>());
}

}  // namespace
}  // namespace tidepool::nn
