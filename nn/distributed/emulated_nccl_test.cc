// The transport of NCCL on emulated devices, by an emulated library (backends/cuda/emulation/emulated_nccl.h): ranks are
// threads, each with a device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/backends/cuda/emulation/emulated_nccl.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/nccl_testing.h"
#include "tidepool/nn/distributed/nccl_transport.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

const std::string kKind = SetUpTheMachine();

class Nccl : public testing::Test {
 protected:
  void SetUp() override {
    if (kKind != "present") GTEST_SKIP() << "of another test";
    EmulatedCuda::Get().set_seed(7);
    before_ = EmulatedNcclLibrary::Get().counters();
  }
  void TearDown() override {
    EmulatedNcclLibrary& library = EmulatedNcclLibrary::Get();
    library.set_slow(false);
    for (int rank = 0; rank < kMostRanks; ++rank) library.set_async_error(rank, 0);
    library.faults().Clear();
    library.poll_faults().Clear();
    EmulatedCuda::Get().call_faults().Clear();
    // No communicator is left behind, whatever happened to it.
    const EmulatedNcclLibrary::Counters counters = library.counters();
    EXPECT_EQ(counters.made, counters.destroyed + counters.aborted);
  }
  EmulatedNcclLibrary::Counters before_;
};

TEST(NcclOfAnotherKind, IsRefusedOnAllRanksWithWhatWasLookedFor) {
  if (kKind == "present") GTEST_SKIP() << "it is there";
  const Errors errors = OnRanks(2, [](Communicator&) { FAIL() << "was opened"; });
  for (const std::optional<Error>& error : errors) {
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(error->message(), HasSubstr("distributed: NCCL: rank 0: found "));
    EXPECT_THAT(
        error->message(),
        HasSubstr(kKind == "absent"       ? "neither libnccl.so.2 nor libnccl.so (no emulated"
                  : kKind == "incomplete" ? "a library that has no ncclCommFinalize"
                  : kKind == "too_old" ? "version 2.8.4 of it, expected 2.17 or later of version 2"
                                       : "no CUDA device (cudaGetDeviceCount: cudaErrorNoDevice"));
  }
}

TEST_F(Nccl, EachRankHasADeviceAndTwoOnOneAreRefused) {
  ExpectNone(OnRanks(4, [](Communicator& communicator) {
    EXPECT_EQ(communicator.device(), OnDevice(communicator.rank()));
  }));
  const Errors errors = OnRanks(
      3, [](Communicator&) {}, [](int rank) { return NcclConfig{.device = rank == 2 ? 0 : rank}; });
  for (const std::optional<Error>& error : errors) {
    EXPECT_THAT(error.value(), IsError(absl::StatusCode::kFailedPrecondition,
                                       {"ranks 0 and 2 are both on device 0000:00:00.0"}));
  }
  const Errors none = OnRanks(
      2, [](Communicator&) {}, [](int rank) { return NcclConfig{.device = 7 * rank}; });
  for (const std::optional<Error>& error : none) {
    EXPECT_THAT(error.value(), IsError(absl::StatusCode::kFailedPrecondition,
                                       {"rank 1: found 4 CUDA devices, expected one of number 7"}));
  }
}

// Whole numbers, so that the order of a sum does not matter. Made by the device, twice what they were made from:
// who does not wait for that sums up something else.
float Value(int rank, int64_t i) { return static_cast<float>((i * 31 + rank * 17) % 101 * 2); }
NDArray ValuesOf(int rank, int64_t count, DType dtype, Device device) {
  NDArray values = Empty({count}, dtype, Place::Heap());
  for (int64_t i = 0; i < count; ++i) {
    NDArray at = values.Slice(0, i, i + 1);
    FillInto(Value(rank, i) / 2, at);
  }
  NDArray there = values.To(device);
  there *= 2.0;
  return there;
}
std::vector<double> In(const NDArray& array) {
  return Cast(array.To(Host()), DType::kFloat64).ToVector<double>();
}

void CheckCollectives(Communicator& communicator, int64_t count, DType dtype) {
  const int rank = communicator.rank(), size = communicator.size();
  const auto values = [&] { return ValuesOf(rank, count, dtype, communicator.device()); };
  std::vector<double> sum(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    for (int r = 0; r < size; ++r) sum[static_cast<size_t>(i)] += Value(r, i);
  }
  NDArray whole = values();
  communicator.AllReduce(ElementsOf(whole), "test");
  EXPECT_EQ(In(whole), sum);
  NDArray parts = values();
  communicator.ReduceScatter(ElementsOf(parts), "test");
  const auto [begin, end] = PartOf(count, rank, size);
  EXPECT_EQ(In(parts.Slice(0, begin, end)),
            std::vector<double>(sum.begin() + begin, sum.begin() + end));
  communicator.AllGather(ElementsOf(parts), "test");
  EXPECT_EQ(In(parts), sum);
  for (int root = 0; root < size; ++root) {
    NDArray one = values();
    communicator.Broadcast(ElementsOf(one), root, "test");
    EXPECT_EQ(In(one), In(ValuesOf(root, count, dtype, Host())));
  }
  // What is on the host goes by the other transport, in the same order.
  std::vector<float> here = {static_cast<float>(rank + 1)};
  communicator.AllReduce(absl::MakeSpan(here), "test");
  EXPECT_EQ(here[0], static_cast<float>(size * (size + 1) / 2));
  communicator.Barrier("test");
}

TEST_F(Nccl, CollectivesOnDevicesAddGatherAndCopy) {
  for (const int ranks : {2, 3, 4}) {
    for (const bool slow : {false, true}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, slow " << slow);
      EmulatedNcclLibrary::Get().set_slow(slow);
      EmulatedCuda::Get().set_seed(static_cast<uint64_t>(ranks));
      ExpectNone(OnRanks(ranks, [](Communicator& communicator) {
        for (const int64_t count : {1, 3, 12, 301}) {
          for (const DType dtype : {DType::kFloat32, DType::kFloat64})
            CheckCollectives(communicator, count, dtype);
        }
        const CommunicatorStats stats = communicator.stats();
        EXPECT_GT(stats.collectives, 0);
      }));
    }
  }
  const EmulatedNcclLibrary::Counters counters = EmulatedNcclLibrary::Get().counters();
  EXPECT_GT(counters.grouped, before_.grouped);
  EXPECT_EQ(counters.aborted, before_.aborted);
}

// Of two ranks a sum has one order.
TEST_F(Nccl, TwoRanksHaveTheBitsOfRanksOnTheHost) {
  constexpr int64_t kCount = 5001;
  const auto numbers = [](int rank) {
    return RandomUniform({kCount}, -1, 1, /*seed=*/static_cast<uint64_t>(rank + 1));
  };
  std::vector<float> expected;
  ThreadRanks ranks(2);
  ranks.Run([&](Communicator& communicator) {
    NDArray array = numbers(communicator.rank());
    communicator.AllReduce(ElementsOf(array), "test");
    if (communicator.rank() == 0) expected = array.ToVector<float>();
  });
  ExpectNone(OnRanks(2, [&](Communicator& communicator) {
    NDArray array = numbers(communicator.rank()).To(communicator.device());
    communicator.AllReduce(ElementsOf(array), "test");
    EXPECT_EQ(array.ToVector<float>(), expected);
  }));
}

TEST_F(Nccl, TheDeviceComputesWhileACollectiveWaitsForAnotherRank) {
  std::atomic<bool> computed{false};
  ExpectNone(OnRanks(2, [&](Communicator& communicator) {
    NDArray array = ValuesOf(communicator.rank(), 10, DType::kFloat32, communicator.device());
    Pending sum;
    while (communicator.rank() == 1 && !computed) std::this_thread::yield();
    communicator.Start(CollectiveKind::kAllReduce, ElementsOf(array), sum, "test");
    if (communicator.rank() == 0) {
      // Its stream's own end is waited for; that of the collective cannot come yet.
      EXPECT_EQ(In(tidepool::Ones({3}).To(communicator.device()) * 5.0),
                std::vector<double>({5, 5, 5}));
      EXPECT_EQ(communicator.Progress().done, 0);
      computed = true;
    }
    sum.Wait();
    EXPECT_EQ(In(array)[1], Value(0, 1) + Value(1, 1));
  }));
}

TEST_F(Nccl, MemoryOfAnotherDeviceIsRefusedAndTheCommunicatorGoesOn) {
  ExpectNone(OnRanks(2, [](Communicator& communicator) {
    NDArray other = tidepool::Ones({4}).To(OnDevice(3));
    EXPECT_THAT(ErrorOf([&] { communicator.AllReduce(ElementsOf(other), "sums"); }),
                IsError(absl::StatusCode::kUnimplemented,
                        {"all-reduce [sums] of memory of cuda:3, expected that of the host or of "
                         "cuda:"}));
    CheckCollectives(communicator, 5, DType::kFloat32);
  }));
}

TEST_F(Nccl, AnErrorThatTheLibraryMeetsMeanwhileEndsTheCollective) {
  EmulatedNcclLibrary& library = EmulatedNcclLibrary::Get();
  std::atomic<Communicator*> waits{nullptr};
  const Errors errors = OnRanks(2, [&](Communicator& communicator) {
    NDArray array = tidepool::Ones({4}).To(communicator.device());
    if (communicator.rank() == 0) {
      waits = &communicator;
      return communicator.AllReduce(ElementsOf(array), "sums");
    }
    // Rank 1 does not come. The other has been polling for a while.
    while (waits == nullptr || waits.load()->Progress().begun == 0) std::this_thread::yield();
    const int64_t polls = library.poll_faults().requests();
    for (int i = 0; i < 5000 && library.poll_faults().requests() < polls + 20; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (library.poll_faults().requests() < polls + 20) ThrowInternal("rank 0 does not poll");
    library.set_async_error(0, 6);
    communicator.Barrier("end");
  });
  EXPECT_THAT(errors[0].value_or(Error(absl::StatusCode::kOk, "none")),
              IsError(absl::StatusCode::kUnavailable,
                      {"NCCL: rank 0: all-reduce: remote process exited", "collective 1"}));
}

TEST_F(Nccl, ACollectiveThatHangsEndsByAbort) {
  std::atomic<Communicator*> hangs{nullptr};
  const Errors errors = OnRanks(2, [&](Communicator& communicator) {
    NDArray array = tidepool::Ones({4}).To(communicator.device());
    if (communicator.rank() == 1) {
      while (hangs == nullptr || hangs.load()->Progress().begun == 0) std::this_thread::yield();
      return hangs.load()->Abort(Error(absl::StatusCode::kUnavailable, "rank 1 is gone"));
    }
    hangs = &communicator;
    communicator.AllReduce(ElementsOf(array), "sums");
  });
  EXPECT_THAT(errors[0].value(), IsError(absl::StatusCode::kUnavailable, {"rank 1 is gone"}));
  EXPECT_GT(EmulatedNcclLibrary::Get().counters().aborted, before_.aborted);
}

TEST_F(Nccl, RanksThatDoNotComeTogetherAreNotWaitedForWithoutEnd) {
  EmulatedNcclLibrary::Get().set_async_error(0, 7);  // in progress, for ever
  const Errors errors = OnRanks(
      2, [](Communicator&) {},
      [](int rank) {
        return NcclConfig{.patience = std::chrono::milliseconds(rank == 0 ? 20 : 120000)};
      });
  EXPECT_THAT(errors[0].value(), IsError(absl::StatusCode::kUnavailable,
                                         {"rank 0: ncclCommInitRankConfig has not ended within 20 "
                                          "ms"}));
}

// A job with a fault in one call: the error's texts by rank, and whether the call was made.
std::vector<std::string> JobWithAFault(FaultPlan& faults, int64_t n, bool* was_met) {
  faults.FailRequest(n);
  const Errors errors = OnRanks(2, [](Communicator& communicator) {
    NDArray array = tidepool::Ones({5}).To(communicator.device());
    communicator.AllReduce(ElementsOf(array), "sums");
    communicator.ReduceScatter(ElementsOf(array), "sums");
    communicator.AllGather(ElementsOf(array.Slice(0, 0, 4)), "sums");
    communicator.Broadcast(ElementsOf(array), 1, "sums");
    communicator.Barrier("end");
  });
  *was_met = faults.failed() > 0;
  faults.Clear();
  std::vector<std::string> texts;
  for (const std::optional<Error>& error : errors) {
    if (error.has_value()) texts.push_back(error->message());
  }
  return texts;
}

void ExpectGoesOn() {
  ExpectNone(OnRanks(
      2, [](Communicator& communicator) { CheckCollectives(communicator, 5, DType::kFloat32); }));
}

TEST_F(Nccl, AFaultInAnyCallOfTheLibraryIsNamed) {
  EmulatedNcclLibrary& library = EmulatedNcclLibrary::Get();
  for (const bool slow : {false, true}) {
    library.set_slow(slow);
    std::set<std::string> named;
    bool was_met = true;
    for (int64_t n = 0; was_met; ++n) {
      ASSERT_LT(n, 100);
      const std::vector<std::string> texts = JobWithAFault(library.faults(), n, &was_met);
      const std::string fault = library.last_fault();
      for (const std::string& text : texts) {
        if (text.find(fault + ": unhandled system error") != std::string::npos) named.insert(fault);
      }
      // At the end of a communicator nobody is told.
      const bool is_end = fault == "ncclCommFinalize" || fault == "ncclCommDestroy";
      EXPECT_EQ(texts.empty(), !was_met || is_end || fault == "ncclCommAbort") << fault;
    }
    EXPECT_THAT(named,
                testing::UnorderedElementsAre("ncclGetUniqueId", "ncclCommInitRankConfig",
                                              "ncclAllReduce", "ncclGroupStart", "ncclReduce",
                                              "ncclGroupEnd", "ncclAllGather", "ncclBroadcast"));
    library.set_slow(false);
    ExpectGoesOn();
  }
}

TEST_F(Nccl, AFaultOfAPollEndsTheJob) {
  FaultPlan& faults = EmulatedNcclLibrary::Get().poll_faults();
  for (const int64_t n : {0, 1, 2, 3, 5, 8}) {
    bool was_met = false;
    const std::vector<std::string> texts = JobWithAFault(faults, n, &was_met);
    if (!was_met || texts.empty()) continue;
    EXPECT_THAT(texts, testing::Contains(HasSubstr("ncclCommGetAsyncError: unhandled system")));
  }
  ExpectGoesOn();
}

TEST_F(Nccl, AFaultInAnyCallOfTheDeviceEndsTheJob) {
  bool was_met = true;
  int failed = 0;
  for (int64_t n = 0; was_met; ++n) {
    ASSERT_LT(n, 300);
    const std::vector<std::string> texts =
        JobWithAFault(EmulatedCuda::Get().call_faults(), n, &was_met);
    if (!texts.empty()) {
      ++failed;
      EXPECT_THAT(texts, testing::Contains(HasSubstr("cuda")));
    }
  }
  EXPECT_GT(failed, 10);
  ExpectGoesOn();
}

NetworkConfig ConfigOf() {
  return NetworkConfig::Sequential(
      {6}, {Dense(17, Activation::kTanh), Dense(9, Activation::kTanh), Dense(3)});
}
Batch BatchOf(int64_t step, int part, int parts) {
  const NDArray points =
      Cast(RandomUniform({8, 6}, -1, 1, static_cast<uint64_t>(step + 1)), DType::kFloat64);
  NDArray labels = Zeros({8}, DType::kInt64);
  for (int64_t i = 0; i < 8; ++i) labels.mutable_data<int64_t>()[i] = (i + step) % 3;
  const int64_t of_each = 8 / parts;
  return Batch(points.Slice(0, part * of_each, (part + 1) * of_each).Dup(),
               labels.Slice(0, part * of_each, (part + 1) * of_each).Dup());
}

TEST_F(Nccl, TwoRanksOnDevicesTrainAsOneWithBothBatches) {
  constexpr int kSteps = 6;
  const NetworkOptions options{.seed = 5, .dtype = DType::kFloat64};
  Network one(ConfigOf(), options);
  Trainer alone(one, UpdaterConfig::Of(UpdaterKind::kAdam));
  for (int i = 0; i < kSteps; ++i) alone.Step([&] { return BatchOf(i, 0, 1); });
  const std::vector<double> expected = one.parameters().ToVector<double>();
  std::vector<double> whole;
  for (const bool shard_updater : {false, true}) {
    ExpectNone(OnRanks(2, [&](Communicator& communicator) {
      NetworkOptions there = options;
      there.device = communicator.device();
      there.seed = static_cast<uint64_t>(5 + communicator.rank());  // rank 0's goes to all
      Network network(ConfigOf(), there);
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      DistributedTrainer distributed(trainer, communicator,
                                     {.bucket_bytes = 200, .shard_updater = shard_updater});
      EXPECT_GT(distributed.buckets().count(), 2);
      for (int i = 0; i < kSteps; ++i) {
        distributed.Step([&] { return std::optional<Batch>(BatchOf(i, communicator.rank(), 2)); });
      }
      distributed.CheckSameParameters();
      const std::vector<double> found = In(network.parameters());
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) ASSERT_NEAR(found[i], expected[i], 1e-9);
      if (communicator.rank() == 0 && !shard_updater) whole = found;
      if (shard_updater) {
        EXPECT_EQ(found, whole);
      }
    }));
  }
}

TEST_F(Nccl, ANetworkElsewhereThanTheTransportsDeviceIsRefusedOnAllRanks) {
  const Errors errors = OnRanks(2, [](Communicator& communicator) {
    NetworkOptions options{.seed = 5};
    if (communicator.rank() == 0) options.device = communicator.device();
    Network network(ConfigOf(), options);
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    const Error error = ErrorOf([&] { DistributedTrainer distributed(trainer, communicator); });
    EXPECT_THAT(error.message(),
                communicator.rank() == 0
                    ? HasSubstr("rank 1 has another program, network")
                    : HasSubstr("where parameters are: found on the host, expected on the rank's "
                                "device, as rank 0 has"));
    communicator.Barrier("end");
  });
  ExpectNone(errors);
}

}  // namespace
}  // namespace tidepool::nn
