// What is the same on every device: refusals, and a stand-in that records how it is used.
#include "tidepool/ndarray/capture/step_capture.h"

#include <functional>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/capture/replayed_step.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/updaters.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

struct Log {
  int captures = 0, launches = 0, fail_captures = 0, fail_launches = 0;
  bool captured = false;
  std::string throws_in;  // "factory", "capture", "launch", "forget", "nodes"
  std::function<void()> thrower;
};
Log the_log;

void MayThrow(const char* where) {
  if (the_log.throws_in == where) the_log.thrower();
}

// As if the host were a device: the step is done when it is captured, which is not what launches
// do, but enough to see when they come.
class FakeStep final : public CapturedStep {
 public:
  void Capture(absl::FunctionRef<void()> step) override {
    const CapturingThreadScope scope;
    if (the_log.fail_captures > 0) {
      --the_log.fail_captures;
      ThrowInternal("fake: no capture");
    }
    MayThrow("capture");
    step();
    ++the_log.captures;
    the_log.captured = true;
  }
  void Launch() override {
    ASSERT_TRUE(the_log.captured);
    if (the_log.fail_launches > 0) {
      --the_log.fail_launches;
      ThrowInternal("fake: no launch");
    }
    MayThrow("launch");
    ++the_log.launches;
  }
  void Forget() override {
    the_log.captured = false;
    MayThrow("forget");
  }
  size_t nodes() const override { return MayThrow("nodes"), 1; }
};
const StepCaptureRegistrar registrar(DeviceType::kHost,
                                     [](uint8_t) -> std::unique_ptr<CapturedStep> {
                                       MayThrow("factory");
                                       return std::make_unique<FakeStep>();
                                     });

class ReplayedStepTest : public testing::Test {
 protected:
  void SetUp() override { the_log = Log(); }
  void Run(ReplayedStep& step, const NDArray& x, NDArray& z) {
    step.Run({&x}, {&z}, [&] {
      ++calls_;
      CopyInto(x + 1.0, z);
      if (refuse_) ThrowInvalidArgument("mine");
    });
  }

  Workspace workspace_{"step", WorkspaceConfig::Training()};
  NDArray x_ = Ones({100}), z_ = Zeros({100});
  int calls_ = 0;
  bool refuse_ = false;
};

TEST_F(ReplayedStepTest, LearnsFollowsCapturesAndReplays) {
  ReplayedStep step(workspace_, "test");
  for (int i = 0; i < 6; ++i) {
    Run(step, x_, z_);
    EXPECT_EQ(workspace_.is_open(), i >= 2) << i;
  }
  EXPECT_EQ(calls_, 3);
  EXPECT_EQ(step.stats().done_as_it_is, 2);
  EXPECT_EQ(step.stats().captures, 1);
  EXPECT_EQ(step.stats().launches, 4);
  EXPECT_EQ(the_log.launches, 4);
  const NDArray other = Ones({100});
  Run(step, other, z_);  // another array
  EXPECT_FALSE(step.is_captured());
  EXPECT_FALSE(workspace_.is_open());
  Run(step, other, z_);
  EXPECT_EQ(step.stats().captures, 2);
  step.Forget();
  EXPECT_FALSE(workspace_.is_open());
  Run(step, other, z_);
  EXPECT_EQ(step.stats().captures, 2);
  Run(step, other, z_);
  EXPECT_EQ(step.stats().captures, 3);
}

TEST_F(ReplayedStepTest, OtherUsersOfTheWorkspaceEndTheCapture) {
  ReplayedStep step(workspace_, "test");
  for (int i = 0; i < 3; ++i) Run(step, x_, z_);
  ASSERT_TRUE(step.is_captured());
  {
    WorkspaceScope scope(workspace_);
    Ones({5});
  }
  Run(step, x_, z_);
  EXPECT_EQ(step.stats().launches, 1);
  EXPECT_EQ(step.stats().done_as_it_is, 3);
}

TEST_F(ReplayedStepTest, FailuresAreDoneAsTheyAreAndNotTriedForever) {
  ReplayedStep step(workspace_, "test");
  the_log.fail_captures = 100;
  for (int i = 0; i < 10; ++i) Run(step, x_, z_);
  EXPECT_EQ(step.stats().failures, ReplayedStep::kMostFailures);
  EXPECT_EQ(step.stats().last_failure, "fake: no capture");
  EXPECT_EQ(step.stats().done_as_it_is, 10);
  EXPECT_EQ(calls_, 10);
  the_log.fail_captures = 0;
  const NDArray other = Ones({100});
  for (int i = 0; i < 2; ++i) Run(step, other, z_);
  EXPECT_EQ(step.stats().captures, 1);
  the_log.fail_launches = 1;
  Run(step, other, z_);
  EXPECT_EQ(step.stats().last_failure, "fake: no launch");
  EXPECT_FALSE(step.is_captured());
  Run(step, other, z_);
  EXPECT_TRUE(step.is_captured());
}

TEST_F(ReplayedStepTest, ErrorsOfTheStepAndDeadOperandsAreThrown) {
  ReplayedStep step(workspace_, "test");
  for (int i = 0; i < 2; ++i) Run(step, x_, z_);
  refuse_ = true;
  EXPECT_THAT(CatchStatus([&] { Run(step, x_, z_); }).message(), HasSubstr("mine"));
  EXPECT_FALSE(workspace_.is_open());
  refuse_ = false;
  for (int i = 0; i < 2; ++i) Run(step, x_, z_);
  EXPECT_TRUE(step.is_captured());
  NDArray gone = Ones({100});
  gone.Close();
  EXPECT_THAT(CatchStatus([&] { Run(step, gone, z_); }).message(), HasSubstr("was closed"));
}

TEST_F(ReplayedStepTest, AnUnsteadyStepIsNeverCaptured) {
  ReplayedStep step(workspace_, "test");
  for (int i = 1; i < 8; ++i) {
    step.Run({&x_}, {&z_}, [&] { Ones({1000 * i}); });
  }
  EXPECT_EQ(step.stats().captures, 0);
}

TEST(StepCapture, WhatWouldBeWrongInReplaysIsRefused) {
  NDArray x = Ones({4}), y = Ones({4}), z = Ones({4}), w = Ones({4});
  EXPECT_FALSE(IsCapturingStep());
  const CapturingThreadScope scope;
  EXPECT_TRUE(IsCapturingStep());
  const auto refused = [](auto&& call) {
    const absl::Status status = CatchStatus(call);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  EXPECT_THAT(refused([&] { Dropout(x, 0.5, 1, 1); }),
              HasSubstr("Op [dropout]: not in a captured"));
  EXPECT_THAT(refused([&] { RandomUniform({4}, 0, 1, 1); }), HasSubstr("random_uniform"));
  EXPECT_THAT(refused([&] { RandomNormal({4}, 0, 1, 1); }), HasSubstr("random_normal"));
  EXPECT_THAT(refused([&] { RandomPermutation(4, 1); }), HasSubstr("random_permutation"));
  EXPECT_THAT(refused([&] { AdamUpdate(x, y, z, w, {}); }), HasSubstr("step number"));
  const NDArray numbers = Ones({5}), too_many = Ones({6});
  AdamUpdate(x, y, z, w, {}, &numbers);
  SgdUpdate(x, y, {});
  EXPECT_FALSE(CatchStatus([&] { AdamUpdate(x, y, z, w, {}, &too_many); }).ok());
}

TEST(StepCapture, DevicesWithoutItAreTold) {
  EXPECT_FALSE(CanCaptureSteps({DeviceType::Named("simulated"), 0}));
  EXPECT_EQ(NewCapturedStep({DeviceType::Named("simulated"), 0}), nullptr);
  WorkspaceConfig config;
  config.workspace_mode = WorkspaceMode::kNone;
  Workspace off("off", config);
  EXPECT_THAT(CatchStatus([&] { ReplayedStep(off, "me"); }).message(),
              HasSubstr("me: graphs need a workspace"));
}

// Of any type: the step is done as it is, nothing stays open, and the next ones are as ever.
TEST_F(ReplayedStepTest, WhatADevicesCaptureThrowsIsAFailureToCapture) {
  const std::pair<std::function<void()>, const char*> throwers[] = {
      {[] { throw 7; }, "int"},
      {[] { throw std::bad_alloc(); }, "bad_alloc"},
      {[] { throw std::runtime_error("out of events"); }, "out of events"},
      {[] { ThrowInternal("no more graphs"); }, "no more graphs"}};
  for (const char* where : {"capture", "launch", "nodes", "forget"}) {
    for (const auto& [thrower, what] : throwers) {
      SCOPED_TRACE(testing::Message() << where << ": " << what);
      the_log = Log();
      {
        ReplayedStep step(workspace_, "test");
        the_log.throws_in = where;
        the_log.thrower = thrower;
        for (int i = 0; i < 8; ++i) Run(step, x_, z_);
        EXPECT_EQ(z_.At<float>({99}), 2);
        if (std::string(where) == "forget") {
          EXPECT_TRUE(step.is_captured());
          EXPECT_THAT(CatchStatus([&] { step.Forget(); }).message(), HasSubstr(what));
          EXPECT_FALSE(step.is_captured());
          EXPECT_FALSE(workspace_.is_open());
          Run(step, x_, z_);
        } else {
          EXPECT_EQ(step.stats().failures, 3);
          EXPECT_THAT(step.stats().last_failure, HasSubstr(what));
          EXPECT_EQ(step.stats().launches, 0);
        }
        the_log.throws_in.clear();
        step.Forget();
        NDArray other = Zeros({100});  // other arrays, so that it is tried again
        for (int i = 0; i < 8; ++i) Run(step, x_, other);
        EXPECT_TRUE(step.is_captured());
        the_log.throws_in = where;  // in the destructor
      }
      EXPECT_FALSE(workspace_.is_open());
    }
  }
  the_log.throws_in = "factory";
  the_log.thrower = [] { throw 7; };
  EXPECT_THAT(CatchStatus([&] { ReplayedStep step(workspace_, "test"); }).message(),
              HasSubstr("the provider of host threw an exception of type int"));
}

// A launch that was quiet would be taken for work that is done.
TEST_F(ReplayedStepTest, OfALostDeviceNothingIsLaunched) {
  ReplayedStep step(workspace_, "test");
  for (int i = 0; i < 4; ++i) Run(step, x_, z_);
  ASSERT_TRUE(step.is_captured());
  const int launches = the_log.launches;
  LoseDevice(Host(), "the test wanted it");
  EXPECT_THROW(Run(step, x_, z_), DeviceLostError);
  EXPECT_EQ(the_log.launches, launches);
  ForgetLossForTesting(Host());
  Run(step, x_, z_);
  EXPECT_EQ(the_log.launches, launches + 1);
}

// The step's own exception comes out of it where it is done as it is.
TEST_F(ReplayedStepTest, WhatTheStepThrowsComesOutOfIt) {
  ReplayedStep step(workspace_, "test");
  for (int i = 0; i < 2; ++i) Run(step, x_, z_);
  EXPECT_THROW(step.Run({&x_}, {&z_}, [] { throw std::runtime_error("mine"); }),
               std::runtime_error);
  EXPECT_FALSE(workspace_.is_open());
  for (int i = 0; i < 6; ++i) Run(step, x_, z_);
  EXPECT_TRUE(step.is_captured());
}

}  // namespace
}  // namespace tidepool
