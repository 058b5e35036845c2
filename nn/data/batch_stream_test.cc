#include "tidepool/nn/data/batch_stream.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <deque>
#include <initializer_list>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

Batch Numbered(int64_t index) {
  return {Full({4, 3}, static_cast<double>(index)), Full({4}, static_cast<double>(index % 10),
                                                         DType::kInt64)};
}

TEST(BatchStreamTest, AllInOrderAndThenNone) {
  BatchStream stream(20, &Numbered);
  for (int64_t i = 0; i < 20; ++i) {
    std::optional<Batch> batch = stream.Next();
    ASSERT_TRUE(batch.has_value());
    EXPECT_EQ(batch->features.At<float>({3, 2}), static_cast<float>(i));
    EXPECT_TRUE(batch->features.IsAttached());
  }
  EXPECT_FALSE(stream.Next().has_value());
  EXPECT_FALSE(stream.Next().has_value());
  EXPECT_FALSE(BatchStream(0, &Numbered).Next().has_value());
}

TEST(BatchStreamTest, DjlCase116And117AtMostSoManyWait) {
  std::atomic<int64_t> made{0};
  BatchStream stream(100, [&](int64_t i) { return ++made, Numbered(i); }, 3);
  for (int64_t taken = 0; taken < 10; ++taken) {
    while (stream.waiting() < 3) std::this_thread::yield();
    EXPECT_EQ(made, taken + 3);
    stream.Next();
  }
  EXPECT_EQ(stream.ring_stats().temporary, 0u);
}

// What the reader keeps at a time comes from the stream's slots where it was told of; what is beyond is
// asked of the system each time.
TEST(BatchStreamTest, SlotsForWhatTheReaderKeeps) {
  for (const int kept : {6, 1}) {
    BatchStream stream(400, &Numbered, 2, kept);
    std::deque<Batch> in_hand;
    for (int64_t i = 0; i < 400; ++i) {
      std::optional<Batch> batch = stream.Next();
      ASSERT_TRUE(batch.has_value());
      in_hand.push_back(std::move(*batch));
      if (in_hand.size() > 5) in_hand.pop_front();
    }
    if (kept == 6) {
      EXPECT_EQ(stream.ring_stats().temporary, 0u);
    } else {
      // Any six in a row are alive at once before one is let go of, and there are three slots: three of each of 66 times
      // six batches, however the two threads take turns.
      EXPECT_GE(stream.ring_stats().temporary, 198u);
    }
    for (Batch& batch : in_hand) EXPECT_TRUE(batch.features.IsAttached());
  }
}

// Series of different lengths with their masks, made ahead in slots: each batch's four arrays are of one number, when it is read
// and when it is kept.
TEST(BatchStreamTest, Nd4jCase115SeriesOfDifferentLengthsComeWithTheirMasks) {
  const auto make = [](int64_t i) {
    const int64_t length = 3 + i % 7;
    const auto number = static_cast<double>(i);
    Batch batch{Full({4, length, 2}, number), Full({4, length}, number + 0.25)};
    batch.features_mask = Full({4, length}, number + 0.5);
    batch.labels_mask = Full({4, length}, number + 0.75);
    return batch;
  };
  const auto expect = [](const NDArray& array, double number, int64_t length) {
    ASSERT_EQ(array.dim(1), length);
    for (const float value : array.ToVector<float>()) ASSERT_NEAR(value, number, 1e-10);
  };
  for (int epoch = 0; epoch < 10; ++epoch) {
    BatchStream stream(100, make, /*prefetch=*/3);
    NDArray kept;
    for (int64_t i = 0; i < 100; ++i) {
      std::optional<Batch> batch = stream.Next();
      ASSERT_TRUE(batch.has_value());
      const auto number = static_cast<double>(i);
      const int64_t length = 3 + i % 7;
      expect(batch->features, number, length);
      expect(batch->labels, number + 0.25, length);
      expect(batch->features_mask, number + 0.5, length);
      expect(batch->labels_mask, number + 0.75, length);
      EXPECT_TRUE(batch->labels_mask.IsAttached());
      const std::vector<Batch> parts = batch->Split(2);
      ASSERT_EQ(parts[1].labels_mask.dim(0), 2);
      expect(parts[1].labels_mask, number + 0.75, length);
      if (i == 5) kept = batch->features_mask.Detach();
    }
    EXPECT_FALSE(stream.Next().has_value());
    expect(kept, 5.5, 3 + 5 % 7);
  }
}

TEST(BatchStreamTest, PartsKeepTheSlotOfTheirBatch) {
  BatchStream stream(30, &Numbered, 2);
  std::optional<Batch> batch = stream.Next();
  std::vector<Batch> parts = batch->Split(2);
  batch->Close();
  for (int i = 1; i < 10; ++i) stream.Next();  // the slot would be written to again
  EXPECT_EQ(parts[0].features.At<float>({0, 0}), 0);
  parts[0].Close();
  EXPECT_EQ(parts[1].features.At<float>({1, 2}), 0);
  EXPECT_EQ(parts[1].labels.At<int64_t>({0}), 0);
  parts[1].Close();
  // The same through two streams.
  BatchStream first(10, &Numbered, 2);
  BatchStream second(10, [&](int64_t) { return std::move(*first.Next()); }, 2);
  parts = second.Next()->Split(4);
  for (int i = 1; i < 10; ++i) second.Next();
  EXPECT_EQ(parts[3].features.At<float>({0, 0}), 0);
}

TEST(BatchStreamTest, BatchesStayValidAsLongAsTheyAreKept) {
  std::vector<Batch> kept;
  {
    BatchStream stream(10, &Numbered, 2);
    while (std::optional<Batch> batch = stream.Next()) kept.push_back(std::move(*batch));
  }
  ASSERT_EQ(kept.size(), 10u);
  for (size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i].features.At<float>({0, 0}), static_cast<float>(i));
  }
  kept[3].Close();
  kept[3].Close();
  EXPECT_FALSE(kept[3].features.is_defined());
  EXPECT_EQ(kept[4].features.At<float>({0, 0}), 4);
}

// A batch's arrays go before its slot, also where another batch is assigned over it.
TEST(BatchStreamTest, AssigningOverABatchLeavesNothing) {
  BatchStream stream(40, &Numbered);
  std::optional<Batch> batch;
  for (int i = 0; i < 20; ++i) {
    batch = stream.Next();
    EXPECT_EQ(batch->features.At<float>({0, 0}), static_cast<float>(i));
  }
  std::deque<Batch> window;
  for (int i = 20; i < 40; ++i) {
    window.push_back(std::move(*stream.Next()));
    if (window.size() > 3) window.erase(window.begin());
    EXPECT_EQ(window.back().features.At<float>({3, 2}), static_cast<float>(i));
  }
  window.clear();
  batch.reset();
  EXPECT_EQ(stream.ring_stats().leaked_arrays, 0u);
}

// A stream of what another stream made: the batch keeps the slots of both.
TEST(BatchStreamTest, ABatchOfAnotherStreamKeepsItsSlot) {
  std::optional<BatchStream> source(std::in_place, 30, &Numbered);
  std::optional<BatchStream> second(std::in_place, 30, [&](int64_t) {
    Batch batch = std::move(*source->Next());
    batch.labels = batch.labels + batch.labels;  // in the slot of this stream
    return batch;
  });
  BatchStream third(30, [&](int64_t) { return std::move(*second->Next()); });
  std::vector<Batch> kept;
  while (std::optional<Batch> batch = third.Next()) kept.push_back(std::move(*batch));
  ASSERT_EQ(kept.size(), 30u);
  for (int64_t i = 0; i < 30; ++i) {
    const Batch& batch = kept[static_cast<size_t>(i)];
    EXPECT_EQ(batch.features.At<float>({3, 2}), static_cast<float>(i));
    EXPECT_EQ(batch.labels.At<int64_t>({3}), i % 10 * 2);
  }
  EXPECT_EQ(source->ring_stats().leased, 30);
  kept[0].Close();
  kept[1] = std::move(kept[2]);
  EXPECT_EQ(source->ring_stats().leased, 28);
  EXPECT_EQ(kept[1].features.At<float>({0, 0}), 2);
  kept.clear();
  for (const BatchStream* stream : std::initializer_list<const BatchStream*>{&*source, &*second, &third}) {
    EXPECT_EQ(stream->ring_stats().leased, 0);
    EXPECT_EQ(stream->ring_stats().leaked_arrays, 0u);
  }
}

TEST(BatchStreamTest, DjlCase118LeavingEarlyFreesWhatWasPrefetched) {
  const auto in_use = [] {
    return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kWorkspace);
  };
  const int64_t before = in_use();
  for (int i = 0; i < 20; ++i) {
    BatchStream stream(1000000, &Numbered, 4);
    stream.Next();
  }
  EXPECT_EQ(in_use(), before);
}

TEST(BatchStreamTest, AnExceptionComesAfterTheBatchesBeforeIt) {
  BatchStream stream(10, [](int64_t i) {
    if (i == 3) ThrowDataLoss("reader: record 3 is broken");
    return Numbered(i);
  });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(stream.Next().has_value());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(CatchStatus([&] { stream.Next(); }).message(), HasSubstr("record 3 is broken"));
  }
  EXPECT_THROW(BatchStream(-1, &Numbered), Error);
  EXPECT_THROW(BatchStream(1, &Numbered, 0), Error);
  struct Wrong {
    int64_t count;
    int prefetch, kept;
    const char* found;
  };
  for (const Wrong& wrong : {Wrong{-1, 2, 1, "found count -1, prefetch 2 and kept 1"},
                             Wrong{1, 0, 1, "prefetch 0"},
                             Wrong{1, INT_MAX, 1, "prefetch 2147483647 and kept 1"},
                             Wrong{1, INT_MAX, INT_MAX, "prefetch + kept at most 65536"},
                             Wrong{1, INT_MIN, 1, "prefetch -2147483648"},
                             Wrong{1, 65536, 1, "prefetch 65536"},
                             Wrong{1, 1, 0, "kept 0"},
                             Wrong{1, 1, INT_MIN, "kept -2147483648"}}) {
    try {
      BatchStream(wrong.count, &Numbered, wrong.prefetch, wrong.kept);
      ADD_FAILURE() << wrong.found;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(error.message(), HasSubstr(wrong.found));
    }
  }
}

// A maker that waits for something that never comes: the end of the stream gets it back.
TEST(BatchStreamTest, AMakerThatWaitsIsStopped) {
  for (const bool throws : {false, true}) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::atomic<bool> waits{false};
    std::optional<BatchStream> stream;
    stream.emplace(10, [&](int64_t i, const std::stop_token& stop) {
      if (i == 2) {
        std::unique_lock<std::mutex> lock(mutex);
        waits = true;
        never.wait(lock, stop, [] { return false; });
        if (throws) ThrowFailedPrecondition("reader: stopped");
        return Batch();
      }
      return Numbered(i);
    });
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(stream->Next().has_value());
    while (!waits) std::this_thread::yield();
    stream.reset();
  }
}

TEST(BatchStreamTest, TrainsAsBatchesMadeInPlace) {
  const auto images = [](int64_t i) -> Batch {
    return {RandomUniform({8, 28, 28, 1}, 0, 1, static_cast<uint64_t>(i)),
            Full({8}, static_cast<double>(i % 10), DType::kInt64)};
  };
  const auto model = [] { return MakeModel("mlp", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled); };
  Model streamed = model(), direct = model();
  Trainer a(streamed, UpdaterConfig::Of(UpdaterKind::kAdam));
  Trainer b(direct, UpdaterConfig::Of(UpdaterKind::kAdam));
  BatchStream stream(12, images);
  int64_t steps = 0;
  while (std::optional<Batch> batch = stream.Next()) {
    EXPECT_EQ(a.Step([&] { return std::move(*batch); }), b.Step([&] { return images(steps); }));
    ++steps;
  }
  EXPECT_EQ(steps, 12);
  EXPECT_EQ(streamed.network->parameters().ToVector<float>(),
            direct.network->parameters().ToVector<float>());
}

}  // namespace
}  // namespace tidepool::nn
