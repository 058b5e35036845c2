// Frozen networks that many share: who freezes when, and processes that fork meanwhile.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;
using Batches = Predictor<NDList, NDList>;

class SharedFreezing : public testing::Test {
 protected:
  void SetUp() override {
    if (LinkedFrozenEngine() == nullptr) GTEST_SKIP() << "no engine is linked";
    if (!LinkedFrozenEngine()->WhyNotHere().empty())
      GTEST_SKIP() << LinkedFrozenEngine()->WhyNotHere();
  }

  Model mlp_ = MakeModel("mlp", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
  NoopTranslator translator_;
};

NDArray Images(int64_t batch) {
  return RandomUniform({batch, 28, 28, 1}, -1, 1, 1, 99, Place::Heap());
}

int64_t Allocated() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated); }

std::string ErrorOf(const std::function<void()>& call, absl::StatusCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST_F(SharedFreezing, NothingIsFrozenForBatchesOfKernels) {
  Model lenet = MakeModel("lenet", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
  Batches predictor(lenet, translator_);
  predictor.set_engine(EngineUse::kWhereAhead, {.batches = {1, 32}});
  const std::shared_ptr<const FrozenNetwork> first = predictor.frozen();
  const int64_t copy = first->stats().weight_bytes, before = Allocated();
  lenet.network->parameters() *= 0.5;
  // Of no size that was asked for, and where kernels are ahead.
  for (const int64_t batch : {3, 32}) {
    predictor.Predict({Images(batch)});
    EXPECT_NE(predictor.why_not_engine(), "");
    EXPECT_LT(Allocated(), before + copy);
  }
  predictor.Predict({Images(1)});
  EXPECT_EQ(predictor.why_not_engine(), "");
  EXPECT_GE(Allocated(), before + copy);  // beside the first one, which we hold
}

TEST_F(SharedFreezing, BatchesAreTheSameInAnyOrder) {
  Batches a(mlp_, translator_, "a"), b(mlp_, translator_, "b");
  a.set_engine(EngineUse::kAlways, {.batches = {1, 8}});
  for (const std::vector<int64_t>& batches : {std::vector<int64_t>{8, 1}, {1, 8, 8, 1}}) {
    b.set_engine(EngineUse::kAlways, {.batches = batches});
    EXPECT_EQ(a.frozen(), b.frozen());
  }
  EXPECT_EQ(a.frozen()->stats().made_runtimes, 2);
  b.set_engine(EngineUse::kAlways, {.batches = {8}});
  EXPECT_NE(a.frozen(), b.frozen());
}

TEST_F(SharedFreezing, AModelThatIsClosedFreezesNothing) {
  Batches known(mlp_, translator_, "known"), other(mlp_, translator_, "other");
  known.set_engine(EngineUse::kAlways);
  mlp_.Close();
  const auto of = [](const std::function<void()>& call) {
    return ErrorOf(call, absl::StatusCode::kFailedPrecondition);
  };
  EXPECT_THAT(of([&] { known.frozen(); }), HasSubstr("model \"mlp\""));
  EXPECT_THAT(of([&] { known.set_engine(EngineUse::kAlways); }), HasSubstr("model \"mlp\""));
  EXPECT_THAT(of([&] { other.set_engine(EngineUse::kAlways, {.batches = {2}}); }),
              HasSubstr("model \"mlp\""));
}

// What a child does in a process of its own; seconds later it is ended by a signal. 0: as expected.
int InChild(const std::function<bool()>& child) {
  const pid_t id = fork();
  if (id == 0) {
    alarm(30);
    _exit(child() ? 0 : 1);
  }
  int status = 0;
  waitpid(id, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

// By the same copy that a thread which does not exist in the child was about to make or by which it was computing.
TEST_F(SharedFreezing, AChildFreezesWhateverOtherThreadsWereDoing) {
  const std::shared_ptr<const Network> network = mlp_.network;
  const FrozenOptions options{.batches = {1}};
  const NDArray x = Images(1);
  const auto ask = [&] {
    std::string why_not;
    return SharedFrozen::Of(network, options)->Current(&why_not)->Run(x).ToVector<float>();
  };
  const std::vector<float> expected = ask();
  const FrozenNetwork held(*network, options);
  std::atomic<bool> ends = false;
  std::atomic<int> rounds = 0;
  std::vector<std::thread> threads;
  threads.emplace_back([&] {
    for (; !ends; ++rounds) ask();  // freezes each time: nobody else has it
  });
  threads.emplace_back([&] {
    for (; !ends; ++rounds) {
      held.Run(x);
      if (rounds % 16 == 0) held.Trim();
    }
  });
  const auto child = [&] { return ask() == expected && held.Run(x).ToVector<float>() == expected; };
  for (int i = 0; i < 20; ++i) {
    ASSERT_EQ(InChild(child), 0) << i;
    const int before = rounds;
    while (rounds < before + 5) std::this_thread::yield();
  }
  ends = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(ask(), expected);
}

}  // namespace
}  // namespace tidepool::nn
