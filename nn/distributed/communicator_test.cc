#include "tidepool/nn/distributed/communicator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/distributed/collectives.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/distributed/transport.h"

namespace tidepool::nn {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int kSizes[] = {1, 2, 3, 4, 5, 8};
// Fewer than ranks, trees, rings, parts that differ, several pieces of a part.
constexpr int64_t kCounts[] = {0, 1, 3, 7, 100, 4096, 4097, 10007, 300001};

// Integers, whose sums are exact in any order.
template <typename T>
std::vector<T> ValuesOf(int rank, int64_t count) {
  std::vector<T> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<T>((i * 31 + static_cast<size_t>(rank) * 17) % 101);
  return values;
}

template <typename T>
std::vector<T> SumOf(int ranks, int64_t count) {
  std::vector<T> sum(static_cast<size_t>(count));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<T> values = ValuesOf<T>(rank, count);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  }
  return sum;
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which take it all
// A child of little address space, in which some of the threads cannot be.
TEST(ThreadRanksDeathTest, WhereTheSystemHasNoThreadTheErrorComesOut) {
  const auto run = [] {
    const rlimit little = {rlim_t{2} << 30, rlim_t{2} << 30};
    setrlimit(RLIMIT_AS, &little);
    try {
      ThreadRanks(2000).Run([](Communicator& communicator) { communicator.Barrier("all"); });
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      std::_Exit(error.code() == absl::StatusCode::kResourceExhausted ? 7 : 1);
    }
    std::_Exit(2);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(7), "the system has no thread for");
}
#endif

template <typename T>
void ExpectSums() {
  for (const int size : kSizes) {
    ThreadRanks ranks(size);
    ranks.Run([&](Communicator& communicator) {
      for (const int64_t count : kCounts) {
        const std::vector<T> expected = SumOf<T>(size, count);
        std::vector<T> values = ValuesOf<T>(communicator.rank(), count);
        communicator.AllReduce(absl::MakeSpan(values), "test");
        EXPECT_EQ(values, expected) << size << " ranks, " << count;
        values = ValuesOf<T>(communicator.rank(), count);
        communicator.ReduceScatter(absl::MakeSpan(values), "test");
        const auto [begin, end] = PartOf(count, communicator.rank(), size);
        for (int64_t i = begin; i < end; ++i)
          ASSERT_EQ(values[static_cast<size_t>(i)], expected[static_cast<size_t>(i)]);
        communicator.AllGather(absl::MakeSpan(values), "test");
        EXPECT_EQ(values, expected) << size << " ranks, " << count;
        values = ValuesOf<T>(communicator.rank(), count);
        const int root = static_cast<int>(count) % size;
        communicator.Broadcast(absl::MakeSpan(values), root, "test");
        EXPECT_EQ(values, ValuesOf<T>(root, count)) << size << " ranks, " << count;
      }
    });
  }
}

TEST(Communicator, SumsPartsAndCopies) {
  ExpectSums<float>();
  ExpectSums<double>();
}

TEST(Communicator, BytesAreGatheredAndSentButNotAdded) {
  ThreadRanks ranks(3);
  ranks.Run([](Communicator& communicator) {
    std::vector<std::byte> bytes(3, std::byte{0});
    bytes[static_cast<size_t>(communicator.rank())] =
        static_cast<std::byte>(communicator.rank() + 1);
    communicator.AllGather(absl::MakeSpan(bytes), "test");
    EXPECT_THAT(bytes, ElementsAre(std::byte{1}, std::byte{2}, std::byte{3}));
  });
  EXPECT_THAT(
      ErrorOf([&] {
        ThreadRanks(2).Run([](Communicator& communicator) {
          std::vector<std::byte> bytes(8);
          communicator.AllReduce(absl::MakeSpan(bytes), "names");
        });
      }).message(),
      AllOf(HasSubstr("all-reduce [names] of 8 bytes"), HasSubstr("expected a sum of f32 or f64")));
}

// Every rank, every run: a sum whose value hangs on its order.
TEST(Communicator, SumsHaveTheSameBitsOnAllRanksAndInEachRun) {
  for (const int64_t count : {int64_t{9}, int64_t{50000}}) {
    std::vector<float> first;
    for (int run = 0; run < 5; ++run) {
      std::mutex mutex;
      ThreadRanks ranks(4);
      ranks.Run([&](Communicator& communicator) {
        std::vector<float> values(static_cast<size_t>(count));
        for (size_t i = 0; i < values.size(); ++i) {
          values[i] = std::ldexp(1.0f + 0.1f * static_cast<float>(i % 7),
                                 3 * ((communicator.rank() + static_cast<int>(i)) % 4 - 2));
        }
        communicator.AllReduce(absl::MakeSpan(values), "test");
        const std::lock_guard<std::mutex> lock(mutex);
        if (first.empty()) first = values;
        EXPECT_EQ(std::memcmp(values.data(), first.data(), values.size() * 4), 0);
      });
    }
  }
}

TEST(Communicator, NobodyPassesABarrierBeforeAllHaveCome) {
  for (const int size : kSizes) {
    std::atomic<int> come{0};
    ThreadRanks ranks(size);
    ranks.Run([&](Communicator& communicator) {
      for (int round = 1; round <= 20; ++round) {
        ++come;
        communicator.Barrier("test");
        EXPECT_GE(come.load(), round * size);
        communicator.Barrier("test");
      }
    });
  }
}

TEST(Communicator, BytesSentAreThoseOfTheFormulas) {
  for (const int size : {2, 3, 4, 8}) {
    const int64_t count = 24 * 10000;  // parts are equal
    std::atomic<int64_t> broadcast{0}, tree{0};
    ThreadRanks ranks(size);
    ranks.Run([&](Communicator& communicator) {
      std::vector<float> values(static_cast<size_t>(count));
      const auto sent = [&](auto call) {
        const int64_t before = communicator.stats().bytes_sent;
        call();
        return communicator.stats().bytes_sent - before;
      };
      const int64_t bytes = count * 4;
      EXPECT_EQ(sent([&] { communicator.AllReduce(absl::MakeSpan(values), "test"); }),
                2 * (size - 1) * bytes / size);
      EXPECT_EQ(sent([&] { communicator.ReduceScatter(absl::MakeSpan(values), "test"); }),
                (size - 1) * bytes / size);
      EXPECT_EQ(sent([&] { communicator.AllGather(absl::MakeSpan(values), "test"); }),
                (size - 1) * bytes / size);
      broadcast += sent([&] { communicator.Broadcast(absl::MakeSpan(values), 0, "test"); });
      tree += sent([&] { communicator.AllReduce(absl::MakeSpan(values).subspan(0, 100), "test"); });
      EXPECT_EQ(sent([&] { communicator.Barrier("test"); }), 0);
    });
    EXPECT_EQ(broadcast, (size - 1) * count * 4);
    EXPECT_EQ(tree, 2 * (size - 1) * 400);
  }
}

TEST(Communicator, WhatIsStartedRunsInOrderWhileTheCallerGoesOn) {
  ThreadRanks ranks(3);
  ranks.Run([](Communicator& communicator) {
    std::vector<std::vector<double>> buckets;
    for (int i = 0; i < 20; ++i)
      buckets.emplace_back(static_cast<size_t>(50 * i + 1), i + communicator.rank());
    std::vector<Pending> pending(buckets.size());
    for (size_t i = 0; i < buckets.size(); ++i) {
      communicator.Start(CollectiveKind::kAllReduce, absl::MakeSpan(buckets[i]), pending[i],
                         "bucket");
    }
    for (size_t i = buckets.size(); i-- > 0;) {
      pending[i].Wait();
      for (const double value : buckets[i]) ASSERT_EQ(value, 3 * static_cast<double>(i) + 3);
    }
    EXPECT_EQ(communicator.Progress().done, 20);
  });
}

TEST(Communicator, APendingCollectiveIsStartedAgainOnlyAfterAWait) {
  ThreadRanks(1).Run([](Communicator& communicator) {
    std::vector<float> values(4);
    Pending pending;
    pending.Wait();  // of nothing
    communicator.Start(CollectiveKind::kAllReduce, absl::MakeSpan(values), pending, "one");
    EXPECT_THAT(ErrorOf([&] {
                  communicator.Start(CollectiveKind::kAllReduce, absl::MakeSpan(values), pending,
                                     "two");
                }).message(),
                HasSubstr("all-reduce [two] is started with what has not been waited for"));
    pending.Wait();
    communicator.Start(CollectiveKind::kAllReduce, absl::MakeSpan(values), pending, "two");
  });  // the destructor waits
}

// Of as many bytes, but for something else: they wait for each other until somebody ends it.
TEST(Communicator, RanksThatDoOtherThingsDoNotTakeEachOthersBytes) {
  std::atomic<int> begun{0};
  ThreadRanks(2).Run([&](Communicator& communicator) {
    std::thread watch([&] {
      while (communicator.Progress().begun < 2) std::this_thread::yield();
      ++begun;
      while (begun < 2) std::this_thread::yield();
      std::this_thread::sleep_for(
          std::chrono::milliseconds(50));  // in which a mistake would be made
      communicator.Abort(Error(absl::StatusCode::kAborted, "ranks differ"));
    });
    communicator.Barrier("start");
    std::vector<float> floats(100, 1);
    std::vector<double> doubles(50, 1);
    const Elements elements = communicator.rank() == 0 ? Elements(absl::MakeSpan(floats))
                                                       : Elements(absl::MakeSpan(doubles));
    EXPECT_THAT(ErrorOf([&] { communicator.AllReduce(elements, "sum"); }),
                IsError(absl::StatusCode::kAborted, {"ranks differ"}));
    watch.join();
    EXPECT_EQ(floats, std::vector<float>(100, 1));
    EXPECT_EQ(doubles, std::vector<double>(50, 1));
    EXPECT_EQ(ErrorOf([&] { communicator.Barrier("later"); }).code(), absl::StatusCode::kAborted);
  });
}

TEST(Communicator, AFailureOfOneRankEndsTheOthers) {
  const Error error = ErrorOf([&] {
    ThreadRanks(3).Run([](Communicator& communicator) {
      std::vector<float> values(1000);
      communicator.AllReduce(absl::MakeSpan(values), "first");
      if (communicator.rank() == 1) ThrowDataLoss("its disk is full");
      Pending pending;
      communicator.Start(CollectiveKind::kAllReduce, absl::MakeSpan(values), pending, "second");
      EXPECT_THAT(ErrorOf([&] { pending.Wait(); }).message(),
                  HasSubstr("rank 1 failed: its disk is full"));
    });
  });
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
}

TEST(Communicator, TheLogHasTheLastCollectives) {
  ThreadRanks(2).Run([](Communicator& communicator) {
    std::vector<float> values(10);
    communicator.set_step(3);
    communicator.Barrier("start");
    for (int i = 0; i < 99; ++i) communicator.AllReduce(absl::MakeSpan(values), "sums");
    const std::vector<CollectiveRecord> log = communicator.Log();
    ASSERT_EQ(log.size(), Communicator::kLogged);
    EXPECT_EQ(log.back().ToString(), "collective 100 at step 3: all-reduce of 10 f32 [sums]");
    EXPECT_EQ(log.front().sequence, 37);
  });
}

TEST(Communicator, SteadyCollectivesTakeNoMemory) {
  ThreadRanks ranks(2);
  ranks.Run([](Communicator& communicator) {
    std::vector<float> values(200000);
    communicator.AllReduce(absl::MakeSpan(values), "test");
    communicator.Barrier("test");
    const int64_t before = MemoryTracker::Global().system_allocations();
    for (int i = 0; i < 5; ++i) communicator.AllReduce(absl::MakeSpan(values), "test");
    EXPECT_EQ(MemoryTracker::Global().system_allocations(), before);
    communicator.Barrier("test");
  });
}

TEST(Communicator, ATransportThatIsNotLinkedNamesItsTarget) {
  EXPECT_THAT(ErrorOf([] { Communicator::Open(); }).message(),
              AllOf(HasSubstr("no transport \"mpi\" is linked (found: none)"),
                    HasSubstr("//nn/distributed:mpi")));
  EXPECT_THAT(ErrorOf([] { Communicator::Open("nccl"); }).message(),
              AllOf(HasSubstr("no transport \"nccl\" is linked (found: none)"),
                    HasSubstr("//nn/distributed:nccl among the program's deps")));
  EXPECT_THAT(ErrorOf([] { Communicator::Open("gloo"); }).message(),
              HasSubstr("Tidepool has //nn/distributed:mpi and :nccl"));
}

TEST(Communicator, MemoryOfADeviceIsRefusedByATransportThatMovesNone) {
  ThreadRanks ranks(1);
  ranks.Run([](Communicator& communicator) {
    EXPECT_EQ(communicator.device(), Host());
    float value = 1;  // stands for one on a device: nobody looks at it
    Pending pending;
    const Elements elements(&value, 1, ElementType::kFloat32, {DeviceType::Named("simulated"), 1});
    EXPECT_THAT(
        ErrorOf([&] { communicator.Start(CollectiveKind::kAllReduce, elements, pending, "sums"); }),
        IsError(absl::StatusCode::kUnimplemented,
                {"all-reduce [sums] of memory of simulated:1", "which \"nccl\" does"}));
    communicator.Barrier("goes on");
  });
}

TEST(Communicator, PartsAreConsecutiveAndDifferByOneAtMost) {
  for (const int64_t count : kCounts) {
    int64_t at = 0;
    for (int rank = 0; rank < 5; ++rank) {
      const auto [begin, end] = PartOf(count, rank, 5);
      EXPECT_EQ(begin, at);
      EXPECT_LE(end - begin, count / 5 + 1);
      EXPECT_GE(end - begin, count / 5);
      at = end;
    }
    EXPECT_EQ(at, count);
  }
}

}  // namespace
}  // namespace tidepool::nn
