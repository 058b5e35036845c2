// Loss of devices whose providers do not look whether they are lost: what they were not asked for
// in time is refused all the same, and nobody is told that work was done which was not.
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

const DeviceType kQuiet = DeviceType::Named("quiet");

// Memory of the host, whose work is done when it is asked for.
class QuietProvider final : public DeviceProvider {
 public:
  explicit QuietProvider(uint8_t index) : device_{kQuiet, index} {}
  static inline std::function<void()> at_wait = [] {};
  static inline std::atomic<int> sent{0};
  static inline bool passes = true;

  std::string name() const override { return DeviceName(device_); }
  Device device() const override { return device_; }
  MemoryTraits traits() const override {
    return {
        .alignment = 64, .granularity = 4096, .large_granularity = 4096, .reserve_bytes = 1 << 24};
  }
  std::byte* Reserve(size_t bytes) noexcept override {
    if (IsLost(device_)) return nullptr;
    return static_cast<std::byte*>(
        std::aligned_alloc(1 << 21, (bytes + (1 << 21) - 1) >> 21 << 21));
  }
  void Unreserve(std::byte* base, size_t) noexcept override { std::free(base); }
  bool Commit(std::byte*, size_t, bool) noexcept override { return true; }
  bool Decommit(std::byte*, size_t) noexcept override { return true; }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    return static_cast<std::byte*>(
        std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment));
  }
  void Release(std::byte* data, size_t) noexcept override { std::free(data); }
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    ++sent;
    std::memcpy(to, from, bytes);
  }
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    at_wait();
    std::memcpy(to, from, bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    std::memcpy(to, from, bytes);
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override {
    std::memset(to, static_cast<int>(value), bytes);
  }
  bool HasPassed(QueuePoint) override { return passes; }
  void WaitFor(QueuePoint) override { at_wait(); }

 private:
  const Device device_;
};

const DeviceProviderRegistrar registrar(kQuiet, [](uint8_t index) -> DeviceProvider* {
  static QuietProvider providers[] = {QuietProvider(0), QuietProvider(1), QuietProvider(2)};
  return index < 3 ? &providers[index] : nullptr;
});

const Device kSource{kQuiet, 0}, kTarget{kQuiet, 1}, kLast{kQuiet, 2};

class QuietLoss : public testing::Test {
 protected:
  void SetUp() override { Mend(); }
  void TearDown() override { Mend(); }
  static void Mend() {
    QuietProvider::at_wait = [] {};
    QuietProvider::passes = true;
    for (const Device device : {kSource, kTarget, kLast}) {
      FindDeviceProvider(device);
      ForgetLossForTesting(device);
    }
  }
};

const std::pair<const char*, std::function<void(NDArray&)>> kWays[] = {
    {"data", [](NDArray& x) { x.data<float>(); }},
    {"mutable_data", [](NDArray& x) { x.mutable_data<float>(); }},
    {"view", [](NDArray& x) { HostView<const float> view(x); }},
    {"view to write", [](NDArray& x) { HostView<float> view(x); }},
    {"element", [](NDArray& x) { x.At<float>({3}); }},
    {"all", [](NDArray& x) { x.ToVector<float>(); }},
    {"text", [](NDArray& x) { x.ToString(); }},
    {"to the host", [](NDArray& x) { x.To(Host()); }},
    {"an operator on the host", [](NDArray& x) { Add(x, x); }},
    {"wait", [](NDArray&) { DeviceQueue::First(kTarget).Wait(); }},
};

// Whether its loss is known before or told by another thread while the host waits for it.
TEST_F(QuietLoss, NoWayToReadGivesWhatALostDeviceHas) {
  for (const auto& [name, read] : kWays) {
    for (const bool meanwhile : {false, true}) {
      for (const bool by_its_source : {false, true}) {
        SCOPED_TRACE(
            absl::StrCat(name, meanwhile ? ", meanwhile" : "", by_its_source ? ", source" : ""));
        Mend();
        {
          NDArray x = Ones({1000}).To(kTarget);
          DeviceQueue::First(kTarget).Wait();
          PrepareToDepend(kTarget, kSource);
          DependOn(kTarget, kSource, {1});
          const auto lose = [&] { LoseDevice(by_its_source ? kSource : kTarget, "cosmic rays"); };
          if (meanwhile) {
            QuietProvider::at_wait = lose;
          } else {
            lose();
          }
          try {
            read(x);
            ADD_FAILURE() << "nothing was thrown";
          } catch (const DeviceLostError& error) {
            EXPECT_EQ(error.device(), kTarget);
            EXPECT_THAT(error.message(), HasSubstr("quiet:1 is lost"));
            EXPECT_THAT(error.message(), HasSubstr("cosmic rays"));
          }
        }
      }
    }
  }
}

TEST_F(QuietLoss, WhatTheHostHasCanBeRead) {
  NDArray x = Ones({1000}).To(kTarget);
  EXPECT_EQ(x.data<float>()[999], 1);
  LoseDevice(kTarget, "cosmic rays");
  EXPECT_EQ(x.data<float>()[999], 1);
  EXPECT_EQ(x.ToVector<float>().size(), 1000u);
}

// However many pieces the host has written of them, which are sent together when they are too many.
TEST_F(QuietLoss, PiecesThatTheHostHasCanBeRead) {
  for (int pieces = 1; pieces < 80; ++pieces) {
    Mend();
    NDArray x = Ones({1000}).To(kTarget);
    for (int i = 0; i < pieces; ++i) {
      HostView<float> piece(x.Slice(0, 7 * i, 7 * i + 1), ViewContents::kOverwritten);
      piece[0] = i;
    }
    LoseDevice(kTarget, "cosmic rays");
    HostView<const float> last(x.Slice(0, 7 * pieces - 7, 7 * pieces - 6));
    EXPECT_EQ(last[0], pieces - 1);
    EXPECT_THROW(HostView<const float>(x.Slice(0, 900, 901)), DeviceLostError);
  }
}

TEST_F(QuietLoss, NothingIsSentToIt) {
  NDArray x = Ones({1000}).To(kTarget);
  x.mutable_data<float>()[5] = 2;
  LoseDevice(kTarget, "cosmic rays");
  const int before = QuietProvider::sent;
  EXPECT_THROW(x.To(kSource), DeviceLostError);
  EXPECT_EQ(QuietProvider::sent, before);
  EXPECT_EQ(x.data<float>()[5], 2);
}

TEST_F(QuietLoss, QueuesSaySo) {
  const DeviceQueue first = DeviceQueue::First(kTarget);
  first.Wait();
  LoseDevice(kTarget, "cosmic rays");
  EXPECT_THROW(first.Wait(), DeviceLostError);
  EXPECT_THROW(first.After(first), DeviceLostError);
}

// Of a chain of devices, told by one thread, found by another: whoever knows that the first is lost
// knows it of the last.
TEST_F(QuietLoss, NobodyFindsADependentWellOnceItsSourceIsLost) {
  constexpr int kRounds = 5000;
  for (int round = 0; round < kRounds; ++round) {
    Mend();
    QuietProvider::passes = false;
    for (const auto& [target, source] : {std::pair{kTarget, kSource}, std::pair{kLast, kTarget}}) {
      PrepareToDepend(target, source);
      DependOn(target, source, {1});
    }
    std::atomic<int> ready{0};
    const auto meet = [&] {
      ++ready;
      // At once, but there may be fewer processors than threads.
      for (int spins = 0; ready < 3; ++spins) {
        if (spins > 2000) std::this_thread::yield();
      }
    };
    std::thread teller([&] {
      meet();
      LoseDevice(kSource, "cosmic rays");
    });
    std::atomic<int> well{0};
    const auto ask = [&](Device device) {
      meet();
      for (int i = 0; i < 100; ++i) {
        const bool lost = IsLost(kSource);
        try {
          CheckSources(device, "test");
          well += lost;
        } catch (const DeviceLostError&) {
          break;
        }
      }
    };
    std::thread asker([&] { ask(kLast); });
    ask(kTarget);
    teller.join();
    asker.join();
    ASSERT_EQ(well, 0) << round;
    EXPECT_TRUE(IsLost(kLast));
  }
}

TEST_F(QuietLoss, ADependentsOwnOperatorsAreNotBlamed) {
  NoteOperation(kTarget, 0, "innocent");
  NoteOperation(kSource, 0, "guilty");
  PrepareToDepend(kTarget, kSource);
  DependOn(kTarget, kSource, {1});
  LoseDevice(kSource, "cosmic rays", "guilty");
  const absl::Status told = CatchStatus([] { CheckNotLost(kTarget, "test"); });
  EXPECT_EQ(told.message(),
            "test: quiet:1 is lost: a copy from quiet:0 had not been seen to end when that was "
            "lost (cosmic rays; the "
            "operator that failed is [guilty]); what its memory holds is gone, and nothing is done "
            "on it any more in this "
            "process");
}

// Though its provider would give memory, and workspaces have some.
TEST_F(QuietLoss, NothingNewBeginsOnIt) {
  WorkspaceConfig config = WorkspaceConfig::Training();
  config.initial_size = 1 << 20;
  Workspace open("open", config, kTarget), closed("closed", config, kTarget);
  RingWorkspace ring("ring", WorkspaceConfig::Ring(2), kTarget);
  WorkspacePool pool("pool", WorkspaceConfig::Inference(), kTarget);
  const auto array = [](Place place) { return Empty({100}, DType::kFloat32, place); };
  for (int i = 0; i < 2; ++i) {
    WorkspaceScope scope(closed);
    array(Place::CurrentOn(kTarget));
  }
  const std::pair<const char*, std::function<void()>> begin[] = {
      {"heap", [&] { array(Place::On(kTarget)); }},
      {"workspace [closed]", [&] { const WorkspaceScope scope(closed); }},
      {"workspace [ring", [&] { const RingSlotScope slot(ring); }},
      {"workspace [pool", [&] { const PooledScope scope(pool); }},
  };
  {
    WorkspaceScope scope(open);
    LoseDevice(kTarget, "cosmic rays");
    for (const auto& [who, call] : begin) {
      const absl::Status told = CatchStatus(call);
      EXPECT_EQ(told.code(), absl::StatusCode::kInternal) << who;
      EXPECT_THAT(std::string(told.message()), StartsWith(who));
      EXPECT_THAT(told.message(), HasSubstr("quiet:1 is lost: cosmic rays"));
    }
    // A cycle that is open has its memory; what is done with it is refused.
    const NDArray x = array(Place::CurrentOn(kTarget));
    EXPECT_THROW(Add(x, x), DeviceLostError);
  }
  EXPECT_EQ(closed.stats().cycles, 2u);
  Mend();
  for (const auto& [who, call] : begin) EXPECT_TRUE(CatchStatus(call).ok()) << who;
}

TEST_F(QuietLoss, CyclesOnItEndWithoutAWord) {
  Workspace workspace("quiet", WorkspaceConfig::Training(), kTarget);
  testing::internal::CaptureStderr();
  {
    WorkspaceScope scope(workspace);
    const NDArray x = Empty({1 << 20}, DType::kFloat32, Place::CurrentOn(kTarget));
    LoseDevice(kTarget, "cosmic rays");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

}  // namespace
}  // namespace tidepool
