// Ranks that are threads, with a heartbeat over loopback. Processes that are stopped or come late:
// mpi_test.cc; that are killed: tools/tidepool_distributed_test.cc.
#include "tidepool/nn/distributed/heartbeat.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/distributed/collective_alignment.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/heartbeat_link.h"
#include "tidepool/nn/distributed/thread_ranks.h"

namespace tidepool::nn {
namespace {

using ::absl::StatusCode;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Longer than a busy machine lets a thread wait.
const HeartbeatConfig kQuick{.interval = milliseconds(50), .limit = milliseconds(1500)};

CollectiveRecord Record(int64_t sequence, int64_t count, const std::string& site = "gradients") {
  return {sequence, sequence / 10, count, CollectiveKind::kAllReduce, ElementType::kFloat32, site};
}

TEST(CollectiveAlignment, NamesTheFirstDifference) {
  using Log = std::optional<std::vector<CollectiveRecord>>;
  const Log all = {{Record(18, 4), Record(19, 4), Record(20, 5)}};
  EXPECT_EQ(FirstDifference({all, all, std::nullopt, all}), "");
  const Log behind = {{Record(17, 9), Record(18, 4), Record(19, 4)}};
  EXPECT_EQ(FirstDifference({all, all, behind, std::nullopt, all}),
            "the ranks differ first at collective 20: ranks 0, 1 and 4: collective 20 at step 2: "
            "all-reduce of 5 f32 [gradients]; rank 2: "
            "not begun");
  const Log other = {{Record(18, 4), Record(19, 4, "losses"), Record(20, 5)}};
  EXPECT_THAT(FirstDifference({all, other}),
              AllOf(HasSubstr("collective 19: rank 0"), HasSubstr("rank 1: collective 19"),
                    HasSubstr("[losses]")));
  EXPECT_EQ(FirstDifference({}), "");
  EXPECT_EQ(FirstDifference({std::vector<CollectiveRecord>(), std::vector<CollectiveRecord>()}),
            "");
}

// Of a rank that is gone the others know that it has come to what needs all of them.
TEST(CollectiveAlignment, TheLastCollectiveThatNeedsAll) {
  using Log = std::optional<std::vector<CollectiveRecord>>;
  Log log = {{Record(18, 4), Record(19, 4), Record(20, 5), Record(21, 0), Record(22, 5)}};
  (*log)[2].kind = CollectiveKind::kBroadcast;
  EXPECT_EQ(LastOfAll({log, std::nullopt, log}, {18, 0, 21}),
            "all had come to collective 19 at step 1");
  EXPECT_EQ(LastOfAll({log, std::nullopt, log}, {22, 0, 21}),
            "all had come to collective 22 at step 2");
  (*log)[3].kind = CollectiveKind::kBarrier;
  EXPECT_EQ(LastOfAll({std::nullopt, log}, {99, 21}), "all had come to collective 21 at step 2");
  EXPECT_EQ(LastOfAll({std::nullopt, log}, {99, 17}), "");
  EXPECT_EQ(LastOfAll({std::nullopt}, {99}), "");
}

TEST(CollectiveAlignment, LogsAreReadBackAndAnythingElseIsLeftOut) {
  const std::vector<CollectiveRecord> log = {Record(3, 100), Record(4, 0, "a b")};
  const std::vector<CollectiveRecord> back = ParseLog(FormatLog(log));
  ASSERT_EQ(back.size(), 2u);
  EXPECT_TRUE(back[0].IsLike(log[0]) && back[1].IsLike(log[1]));
  EXPECT_TRUE(ParseLog("").empty());
  EXPECT_TRUE(
      ParseLog("1\t2\t3\n\n1\t2\tx\t0\t0\tsite\n1\t2\t3\t9\t0\tsite\n1\t2\t3\t0\t-1\tsite\n")
          .empty());
  EXPECT_EQ(ParseLog("1\t2\t3\t0\t0\ta\x01\x7f\n")[0].site, "a??");
}

TEST(HeartbeatLink, FramesComeWholeAndWhatIsNoneEndsTheLink) {
  int port = 0;
  Descriptor listener = ListenAnywhere(&port);
  Descriptor out = Connect("127.0.0.1", port, milliseconds(1000));
  ASSERT_GE(out.get(), 0);
  int come = -1;
  while (come < 0) come = accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC);
  HeartbeatLink in{Descriptor(come)};
  HeartbeatLink link(std::move(out));
  const std::string text(HeartbeatLink::kMostText + 5, 'x');
  EXPECT_TRUE(link.Send(FrameKind::kVerdict, 3, {7, 8, 9}, text));
  EXPECT_TRUE(link.Send(FrameKind::kBye, 4, {}));
  std::vector<Frame> frames;
  while (frames.size() < 2)
    ASSERT_TRUE(in.Receive([&](const Frame& frame) { frames.push_back(frame); }));
  EXPECT_EQ(frames[0].text.size(), HeartbeatLink::kMostText);
  EXPECT_EQ(frames[0].rank, 3);
  EXPECT_EQ(frames[0].progress.done, 9);
  EXPECT_EQ(frames[1].kind, FrameKind::kBye);
  const std::string noise(100, 'n');
  ASSERT_EQ(write(link.descriptor(), noise.data(), noise.size()), 100);
  while (in.Receive([](const Frame&) { ADD_FAILURE(); })) std::this_thread::yield();
}

TEST(Heartbeat, AJobThatIsWellIsLeftAlone) {
  ThreadRanks(3).Run([](Communicator& communicator) {
    Heartbeat heartbeat(communicator, kQuick);
    std::vector<float> values(5000, 1);
    const auto until = std::chrono::steady_clock::now() + 3 * kQuick.limit / 2;
    bool goes_on = true;
    while (goes_on) {
      double vote = std::chrono::steady_clock::now() < until ? 1 : 0;
      communicator.AllReduce(absl::MakeSpan(values), "test");
      communicator.AllReduce(absl::MakeSpan(&vote, 1), "test");
      goes_on = vote > 0;
    }
    // Nobody waits in a collective, however long that takes.
    std::this_thread::sleep_for(3 * kQuick.limit / 2);
    EXPECT_EQ(heartbeat.verdict(), "");
    communicator.Barrier("end");
  });
}

TEST(Heartbeat, ARankThatDoesNotComeIsNamedWithItsStepAndCollective) {
  std::atomic<int> ended{0};
  ThreadRanks(3).Run([&](Communicator& communicator) {
    std::string said;
    HeartbeatConfig config = kQuick;
    config.on_verdict = [&](const std::string& verdict) { said = verdict; };
    Heartbeat heartbeat(communicator, config);
    communicator.set_step(41);
    communicator.Barrier("start");
    std::vector<float> values(100);
    if (communicator.rank() == 2) {
      while (ended < 2) std::this_thread::yield();  // it hangs
    } else {
      const Error error =
          ErrorOf([&] { communicator.AllReduce(absl::MakeSpan(values), "gradients"); });
      ++ended;
      EXPECT_THAT(error, IsError(StatusCode::kUnavailable,
                                 {"rank 2 has not come to collective",
                                  "at step 41, where others have waited for 1.5 s",
                                  "ranks 0 and 1: collective",
                                  "all-reduce of 100 f32 [gradients]; rank 2: not begun"}));
      EXPECT_EQ(said, error.message());
    }
    while (heartbeat.verdict().empty()) std::this_thread::yield();
    EXPECT_EQ(ErrorOf([&] { communicator.Barrier("later"); }).code(), StatusCode::kUnavailable);
  });
}

TEST(Heartbeat, RanksThatDoOtherThingsAreToldWhereTheyParted) {
  ThreadRanks(2).Run([](Communicator& communicator) {
    Heartbeat heartbeat(communicator, kQuick);
    std::vector<float> values(100);
    communicator.AllReduce(absl::MakeSpan(values), "same");
    const Error error = ErrorOf([&] {
      communicator.AllReduce(
          absl::MakeSpan(values).subspan(0, 50 + static_cast<size_t>(communicator.rank())),
          "gradients");
    });
    EXPECT_THAT(error,
                IsError(StatusCode::kUnavailable,
                        {"the ranks have waited for each other for 1.5 s",
                         "the ranks differ first at collective",
                         "all-reduce of 50 f32 [gradients]; rank 1", "all-reduce of 51 f32"}));
  });
}

TEST(Heartbeat, WhatARankThrowsEndsTheOthersAtOnce) {
  for (const int whose : {0, 2}) {
    std::array<std::atomic<Communicator*>, 3> all = {};
    const auto waits_for_gradients = [&](size_t rank) {
      const Communicator* const its = all[rank];
      if (its == nullptr) return false;
      const std::vector<CollectiveRecord> log = its->Log();
      return !log.empty() && log.back().site == "gradients";
    };
    ThreadRanks(3).Run([&](Communicator& communicator) {
      const auto rank = static_cast<size_t>(communicator.rank());
      all[rank] = &communicator;
      // No limit is waited for.
      Heartbeat heartbeat(communicator,
                          {.interval = milliseconds(1000), .limit = milliseconds(100000)});
      communicator.set_step(7);
      const Error error = ErrorOf([&] {
        heartbeat.Guard([&] {
          communicator.Barrier("start");
          if (communicator.rank() == whose) {
            while (!waits_for_gradients((rank + 1) % 3) || !waits_for_gradients((rank + 2) % 3))
              std::this_thread::yield();
            ThrowDataLoss("its disk is full");
          }
          communicator.Barrier("gradients");
        });
      });
      if (communicator.rank() == whose) {
        EXPECT_THAT(error, IsError(StatusCode::kDataLoss, {"its disk is full"}));
      } else {
        EXPECT_THAT(error, IsError(StatusCode::kUnavailable,
                                   {absl::StrCat("rank ", whose, " failed: its disk is full"),
                                    "barrier [gradients]"}));
      }
      while (heartbeat.verdict().empty()) std::this_thread::yield();
    });
  }
}

// Whatever it is.
TEST(Heartbeat, WhatIsNoExceptionOfTheStandardsEndsTheOthersToo) {
  ThreadRanks ranks(3);
  ranks.Run([&](Communicator& communicator) {
    Heartbeat heartbeat(communicator,
                        {.interval = milliseconds(20), .limit = std::chrono::hours(1)});
    const auto body = [&] {
      communicator.Barrier("start");
      if (communicator.rank() == 1) throw 42;
      communicator.Barrier("gradients");
    };
    if (communicator.rank() == 1) {
      EXPECT_THROW(heartbeat.Guard(body), int);
    } else {
      EXPECT_THAT(
          ErrorOf([&] { heartbeat.Guard(body); }),
          IsError(StatusCode::kUnavailable, {"rank 1 failed: an exception of an unknown type"}));
    }
    while (heartbeat.verdict().empty()) std::this_thread::yield();
  });
  EXPECT_THROW(ranks.Run([&](Communicator& communicator) {
    if (communicator.rank() == 1) throw 42;
    EXPECT_THROW(communicator.Barrier("others"), Error);
  }),
               int);
}

TEST(Heartbeat, ARankThatLeavesWhileOthersWaitIsNoticed) {
  std::atomic<int> ended{0};
  ThreadRanks(3).Run([&](Communicator& communicator) {
    std::optional<Heartbeat> heartbeat(std::in_place, communicator, kQuick);
    if (communicator.rank() == 1) {
      heartbeat.reset();  // as if its data had ended
      while (ended < 2) std::this_thread::yield();
      return;
    }
    EXPECT_THAT(ErrorOf([&] { communicator.Barrier("gradients"); }),
                IsError(StatusCode::kUnavailable, {"rank 1 has not come to collective"}));
    ++ended;
  });
}

// Nobody else watches the others.
TEST(Heartbeat, Rank0ThatIsDoneFirstWatchesTheOthersOn) {
  ThreadRanks(3).Run([](Communicator& communicator) {
    Heartbeat heartbeat(communicator, kQuick);
    if (communicator.rank() == 0) return;
    EXPECT_THAT(ErrorOf([&] { communicator.Barrier("gradients"); }),
                IsError(StatusCode::kUnavailable, {"rank 0 has not come to collective"}));
  });
  std::atomic<bool> is_done{false};
  ThreadRanks(3).Run([&](Communicator& communicator) {
    // No limit is waited for.
    Heartbeat heartbeat(communicator,
                        {.interval = milliseconds(20), .limit = milliseconds(100000)});
    if (communicator.rank() == 0) {
      is_done = true;
      return;
    }
    const Error error = ErrorOf([&] {
      heartbeat.Guard([&] {
        if (communicator.rank() == 2) communicator.Barrier("gradients");
        while (!is_done) std::this_thread::yield();
        std::this_thread::sleep_for(milliseconds(100));
        ThrowDataLoss("its disk is full");
      });
    });
    if (communicator.rank() == 2) {
      EXPECT_THAT(error, IsError(StatusCode::kUnavailable, {"rank 1 failed: its disk is full"}));
    }
  });
}

TEST(Heartbeat, WhatAListenerToTheVerdictThrowsIsWrittenAndTheJobEnds) {
  testing::internal::CaptureStderr();
  ThreadRanks(2).Run([](Communicator& communicator) {
    HeartbeatConfig config = kQuick;
    config.on_verdict = [&](const std::string&) {
      if (communicator.rank() == 0) throw std::runtime_error("no such file");
      throw 42;
    };
    Heartbeat heartbeat(communicator, config);
    const Error error = ErrorOf([&] {
      heartbeat.Guard([&] {
        if (communicator.rank() == 1) ThrowDataLoss("its disk is full");
        communicator.Barrier("gradients");
      });
    });
    EXPECT_EQ(error.code(),
              communicator.rank() == 1 ? StatusCode::kDataLoss : StatusCode::kUnavailable);
    while (heartbeat.verdict().empty()) std::this_thread::yield();
  });
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("heartbeat: on_verdict has thrown: no such file; distributed: rank 1 "
                              "failed: its disk is full"),
                    HasSubstr("heartbeat: on_verdict has thrown; distributed: rank 1 failed")));
}

TEST(Heartbeat, NeverIsTheLargestNumberThereIs) {
  ThreadRanks(2).Run([](Communicator& communicator) {
    Heartbeat heartbeat(communicator, {.interval = milliseconds(5),
                                       .limit = milliseconds::max(),
                                       .patience = milliseconds::max()});
    heartbeat.Guard([&] {
      for (int i = 0; i < 20; ++i) {
        std::this_thread::sleep_for(milliseconds(5));
        communicator.Barrier("turn");
      }
    });
    EXPECT_EQ(heartbeat.verdict(), "");
  });
}

TEST(Heartbeat, OneRankNeedsNoneAndWrongTimesAreRefused) {
  ThreadRanks(1).Run([](Communicator& communicator) {
    Heartbeat heartbeat(communicator);
    EXPECT_THROW(heartbeat.Guard([] { ThrowDataLoss("disk"); }), Error);
    EXPECT_THAT(ErrorOf([&] {
                  Heartbeat(communicator,
                            {.interval = milliseconds(10), .limit = milliseconds(15)});
                }),
                IsError(StatusCode::kInvalidArgument,
                        {"interval of 10 ms, a limit of 15 ms and a patience of 10000 ms"}));
  });
}

}  // namespace
}  // namespace tidepool::nn
