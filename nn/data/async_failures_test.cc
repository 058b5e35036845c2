// Iterators that are asked ahead and fail, wait or are configured wrongly.
#include <atomic>
#include <climits>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/refused_threads.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/testing/numbered.h"

namespace tidepool::nn {
namespace {

using ::absl::StatusCode;

struct Unreadable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Sets of one input and label, and of several.
template <typename Set>
class AsyncFailuresOf : public testing::Test {};
using Sets = testing::Types<DataSet, MultiDataSet>;
TYPED_TEST_SUITE(AsyncFailuresOf, Sets);

TYPED_TEST(AsyncFailuresOf, Nd4jCase113AnExceptionComesWithItsTypeAfterTheBatchesBeforeIt) {
  for (const int producers : {1, 4}) {
    std::atomic<bool> broken{true}, has_begun{producers == 1}, is_later{producers == 1};
    std::atomic<AsyncIterator<TypeParam>*> reader{nullptr};
    // Batch 4 is begun before batch 3 fails, and fails when that is known.
    FunctionIterator<TypeParam> source(20, [&](int64_t i, const std::stop_token& stop) {
      const auto wait = [&](auto until) {
        while (!stop.stop_requested() && !until()) std::this_thread::yield();
      };
      if (broken && i == 3) {
        wait([&] { return has_begun.load(); });
        ThrowDataLoss("images.idx: byte 17: found 3");
      }
      if (broken && i == 4) {
        wait([&] { return reader != nullptr; });
        if (!stop.stop_requested()) has_begun = true;
        wait([&] { return reader.load()->failed_batch().has_value(); });
        is_later = !stop.stop_requested();
        throw Unreadable("a later one");
      }
      return NumberedAs<TypeParam>(i);
    });
    AsyncIterator<TypeParam> ahead(source,
                                   {.prefetch = 5, .producers = producers, .name = "digits"});
    ahead.Reset();
    reader = &ahead;
    for (int64_t i = 0; i < 3; ++i) {
      EXPECT_FALSE(ahead.failed_batch().has_value());
      EXPECT_EQ(NumberOf(*ahead.Next()), static_cast<float>(i));
    }
    for (int i = 0; i < 100; ++i) {
      if (i == 1) {
        while (!is_later) std::this_thread::yield();
      }
      EXPECT_THAT(ErrorOf([&] { ahead.Next(); }),
                  IsError(StatusCode::kDataLoss,
                          {"digits: batch 3 of epoch 1: images.idx: byte 17: found 3"}));
    }
    EXPECT_EQ(ahead.failed_batch(), 3);
    broken = false;
    ahead.Reset();
    int64_t seen = 0;
    while (ahead.Next().has_value()) ++seen;
    EXPECT_EQ(seen, 20);
    EXPECT_FALSE(ahead.failed_batch().has_value());
  }
  // Of any type, and from a stream.
  FunctionIterator<TypeParam> source(20, [&](int64_t i) {
    if (i == 5) throw Unreadable("socket 7");
    return NumberedAs<TypeParam>(i);
  });
  class Unindexed : public Iterator<TypeParam> {
   public:
    explicit Unindexed(Iterator<TypeParam>& base) : base_(base) {}
    void Reset() override { base_.Reset(); }

   protected:
    std::optional<TypeParam> NextBatch(const std::stop_token& stop) override {
      return base_.Next(stop);
    }
    Iterator<TypeParam>& base_;
  } stream(source);
  AsyncIterator<TypeParam> ahead(stream, {.producers = 3});
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(ahead.Next().has_value());
  EXPECT_THROW(ahead.Next(), Unreadable);
  EXPECT_EQ(ahead.failed_batch(), 5);
}

// Nothing is made ahead of a shield, and all else is as it is of what is.
TYPED_TEST(AsyncFailuresOf, WhatIsShieldedFailsAsWhatIsMadeAhead) {
  bool broken = true, resets = true;
  FunctionIterator<TypeParam> source(5, [&](int64_t i) {
    if (broken && i == 2) ThrowDataLoss("images.idx: byte 17: found 3");
    return NumberedAs<TypeParam>(i);
  });
  class Resetting : public Iterator<TypeParam> {
   public:
    Resetting(Iterator<TypeParam>& base, const bool& resets) : base_(base), resets_(resets) {}
    void Reset() override {
      if (!resets_) throw Unreadable("gone");
      base_.Reset();
    }

   protected:
    std::optional<TypeParam> NextBatch(const std::stop_token& stop) override {
      return base_.Next(stop);
    }
    Iterator<TypeParam>& base_;
    const bool& resets_;
  } resetting(source, resets);
  ShieldedIterator<TypeParam> shield(resetting);
  AsyncIterator<TypeParam> ahead(shield, {.name = "digits", .first_epoch = 3});
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(NumberOf(*ahead.Next()), static_cast<float>(i));
  EXPECT_FALSE(ahead.failed_batch().has_value());
  for (int again = 0; again < 3; ++again) {
    EXPECT_THAT(ErrorOf([&] { ahead.Next(); }),
                IsError(StatusCode::kDataLoss,
                        {"digits: batch 2 of epoch 3: images.idx: byte 17: found 3"}));
    EXPECT_EQ(ahead.failed_batch(), 2);
  }
  resets = false;
  EXPECT_THROW(ahead.Reset(), Unreadable);
  for (int again = 0; again < 2; ++again) EXPECT_THROW(ahead.Next(), Unreadable);
  EXPECT_EQ(ahead.failed_batch(), -1);
  resets = true;
  broken = false;
  ahead.Reset();
  int64_t seen = 0;
  while (ahead.Next().has_value()) ++seen;
  EXPECT_EQ(seen, 5);
  EXPECT_FALSE(ahead.Next().has_value());
  EXPECT_FALSE(ahead.failed_batch().has_value());
}

TEST(AsyncFailures, WithoutThreadsForProducersItSaysSo) {
  FunctionIterator<DataSet> source(5, [](int64_t i) { return Numbered(i); });
  {
    const RefusedThreads refused;
    EXPECT_THAT(ErrorOf([&] { AsyncDataSetIterator(source, {.producers = 3, .name = "digits"}); }),
                IsError(StatusCode::kResourceExhausted,
                        {"digits: the system has no thread for producer 0 of 3: Resource"}));
  }
  AsyncDataSetIterator ahead(source, {.producers = 3});
  EXPECT_EQ(NumberOf(*ahead.Next()), 0.0f);
}

// One object, which the source keeps: others may read it, and each epoch begins with it as it was.
TEST(AsyncFailures, AnErrorThatSeveralProducersRethrowIsNotWrittenTo) {
  for (const bool is_memory : {false, true}) {
    const std::exception_ptr kept =
        is_memory ? std::make_exception_ptr(OutOfMemoryError("disk", "the report"))
                  : std::make_exception_ptr(Error(StatusCode::kUnavailable, "disk"));
    FunctionIterator<DataSet> source(64, [&](int64_t) -> DataSet { std::rethrow_exception(kept); });
    AsyncDataSetIterator ahead(source, {.prefetch = 8, .producers = 4});
    for (int epoch = 0; epoch < 20; ++epoch, ahead.Reset()) {
      const std::string expected = "batches: batch 0 of epoch " + std::to_string(epoch) + ": disk";
      for (int again = 0; again < 2; ++again) {
        try {
          ahead.Next();
          ADD_FAILURE();
        } catch (const OutOfMemoryError& error) {
          EXPECT_TRUE(is_memory);
          EXPECT_EQ(error.message(), expected);
          EXPECT_EQ(error.report(), "the report");
        } catch (const Error& error) {
          EXPECT_FALSE(is_memory);
          EXPECT_EQ(error.message(), expected);
        }
      }
    }
    EXPECT_EQ(ErrorOf([&] { std::rethrow_exception(kept); }).message(), "disk");
  }
}

TEST(AsyncFailures, AResetThatFailsSaysSoUntilOneSucceeds) {
  class Rewinds : public Stream {
   public:
    Rewinds() : Stream(3) {}
    void Reset() override {
      if (++resets_ < 3) throw Unreadable("cannot rewind");
      Stream::Reset();
    }
    int resets_ = 0;
  } source;
  AsyncDataSetIterator ahead(source);
  EXPECT_TRUE(ahead.Next().has_value());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(ahead.Reset(), Unreadable);
    EXPECT_THROW(ahead.Next(), Unreadable);
    EXPECT_EQ(ahead.failed_batch(), -1);
  }
  ahead.Reset();
  EXPECT_EQ(NumberOf(*ahead.Next()), 0);
}

// A source that waits for something that never comes: the end, and a reset, get it back.
TYPED_TEST(AsyncFailuresOf, ASourceThatWaitsIsStopped) {
  for (const bool throws : {false, true}) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::atomic<int> waits{0};
    FunctionIterator<TypeParam> source(10, [&](int64_t i, const std::stop_token& stop) {
      if (i < 2) return NumberedAs<TypeParam>(i);
      std::unique_lock<std::mutex> lock(mutex);
      ++waits;
      never.wait(lock, stop, [] { return false; });
      if (throws) ThrowFailedPrecondition("reader: stopped");
      return TypeParam();
    });
    AsyncIterator<TypeParam> ahead(source, {.prefetch = 4, .producers = 2});
    for (int round = 1; round < 20; ++round) {
      for (int64_t i = 0; i < 2; ++i) ASSERT_EQ(NumberOf(*ahead.Next()), static_cast<float>(i));
      while (waits < 2 * round) std::this_thread::yield();
      if (round == 10) {  // a reader that waits is stopped as well
        std::stop_source reader;
        std::jthread stopper([&] { reader.request_stop(); });
        EXPECT_FALSE(ahead.Next(reader.get_token()).has_value());
      }
      ahead.Reset();
    }
  }
}

TEST(AsyncFailures, OptionsAreChecked) {
  struct Wrong {
    AsyncOptions options;
    const char* found;
  };
  FunctionIterator<DataSet> source(1, &Numbered);
  for (const Wrong& wrong :
       {Wrong{{.prefetch = 0}, "prefetch 0"}, Wrong{{.prefetch = INT_MIN}, "prefetch -2147483648"},
        Wrong{{.prefetch = 65536}, "prefetch 65536"},
        Wrong{{.prefetch = INT_MAX, .kept = INT_MAX}, "prefetch + kept at most 65536"},
        Wrong{{.producers = 0}, "producers 0"},
        Wrong{{.producers = 1025}, "producers at most 1024"}, Wrong{{.kept = 0}, "kept 0"}}) {
    EXPECT_THAT(ErrorOf([&] { AsyncDataSetIterator(source, wrong.options); }),
                IsError(StatusCode::kInvalidArgument, {wrong.found}));
  }
  // In a ring that is full at some time producers could wait for ever.
  const AsyncOptions good;
  WorkspaceConfig waits = WorkspaceConfig::Ring(4), few = good.RingConfig(), keeps = few;
  few.ring_max_temporary = 1;
  keeps.ring_max_kept = 2;
  for (const auto& [config, found] :
       {std::pair(waits, "found one whose full slots are waited for"),
        std::pair(few, "found at most 1 temporary and 0 kept slots"),
        std::pair(keeps, "found at most 0 temporary and 2 kept slots")}) {
    RingWorkspace ring("mine", config);
    EXPECT_THAT(ErrorOf([&] { AsyncDataSetIterator(source, {.ring = &ring}); }),
                IsError(StatusCode::kInvalidArgument,
                        {"ring \"mine\": ", found, "expected one of AsyncOptions::RingConfig()"}));
  }
  RingWorkspace ring("mine", good.RingConfig());
  EXPECT_TRUE(AsyncDataSetIterator(source, {.prefetch = 5, .ring = &ring}).Next().has_value());
  EXPECT_THROW(FunctionIterator<DataSet>(-1, &Numbered), Error);
  EXPECT_THROW(FunctionIterator<DataSet>(1, std::function<DataSet(int64_t)>()), Error);
  Stream stream(1);
  EXPECT_THAT(ErrorOf([&] { stream.Claim(); }),
              IsError(StatusCode::kUnimplemented, {"go by index"}));
}

}  // namespace
}  // namespace tidepool::nn
