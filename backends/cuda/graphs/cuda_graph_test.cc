// Captured work replayed: the same bits as work that is queued each time.
#include "tidepool/backends/cuda/graphs/cuda_graph.h"

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/runtime/cuda_device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool {
namespace {

constexpr Device kCuda{DeviceType::kCuda, 0};

class CudaGraphTest : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::CudaDevice::Find(0) == nullptr) {
      GTEST_SKIP() << "no CUDA device: " << cuda::CudaDevice::WhyAbsent();
    }
    workspace_.emplace("graph", config_, kCuda);
    std::vector<float> numbers(64);
    for (int i = 0; i < 64; ++i) numbers[i] = 0.01f * static_cast<float>(i % 7 - 3);
    weights_ = FromValues(numbers, {8, 8}).To(kCuda);
    Restart();
  }
  // state = state x weights + state, all within the workspace but for the state.
  void Step() {
    WorkspaceScope scope(*workspace_);
    const NDArray product = MatMul(state_, weights_);
    AddInto(product, state_, state_);
  }
  void Restart() { state_ = FromValues(std::vector<float>(32, 1.0f), {4, 8}).To(kCuda); }

  WorkspaceConfig config_ = WorkspaceConfig::Training();
  std::optional<Workspace> workspace_;
  NDArray weights_, state_;
};

TEST_F(CudaGraphTest, ReplaysTheBitsOfEagerSteps) {
  std::vector<std::vector<float>> eager;
  for (int i = 0; i < 8; ++i) {
    Step();
    eager.push_back(state_.ToVector<float>());
  }
  Restart();
  CudaGraph graph;
  int calls = 0;
  for (int i = 0; i < 8; ++i) {
    graph.Run(workspace_->stats().plans, [&] {
      ++calls;
      Step();
    });
    ASSERT_EQ(state_.ToVector<float>(), eager[i]) << "step " << i;
  }
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(graph.captures(), 1);
  EXPECT_EQ(graph.replays(), 8);
  EXPECT_GE(graph.nodes(), 2u);
}

TEST_F(CudaGraphTest, AnotherKeyCapturesAgain) {
  for (int i = 0; i < 3; ++i) Step();
  CudaGraph graph;
  int calls = 0;
  for (uint64_t key : {1, 1, 2, 2, 1}) {
    graph.Run(key, [&] {
      ++calls;
      Step();
    });
  }
  EXPECT_EQ(calls, 3);
  graph.Forget();
  graph.Run(1, [&] { Step(); });
  EXPECT_EQ(graph.captures(), 4);
}

TEST_F(CudaGraphTest, AStepThatWaitsOrThrowsIsNotCaptured) {
  for (int i = 0; i < 3; ++i) Step();
  CudaGraph graph;
  try {
    graph.Run(1, [&] { state_.ToVector<float>(); });
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition) << error.message();
  }
  EXPECT_THROW(graph.Run(1,
                         [&] {
                           Step();
                           throw std::runtime_error("mine");
                         }),
               std::runtime_error);
  EXPECT_EQ(graph.captures(), 0);
  // All goes on.
  const std::vector<float> before = state_.ToVector<float>();
  graph.Run(1, [&] { Step(); });
  EXPECT_NE(state_.ToVector<float>(), before);
  EXPECT_EQ(graph.captures(), 1);
}

// What they queue there is done at once, and they get memory and may wait.
TEST_F(CudaGraphTest, OtherThreadsGoOnWhileAStepIsCaptured) {
  for (int i = 0; i < 3; ++i) Step();
  CudaGraph alone;
  alone.Run(1, [&] { Step(); });
  Restart();
  Step();
  const std::vector<float> expected = state_.ToVector<float>();
  Restart();
  const NDArray shared = Full({64}, 2, DType::kFloat32, Place::On(kCuda));
  CudaGraph graph;
  const auto other = [&] {
    for (int i = 0; i < 5; ++i) {
      const NDArray sum =
          Add(shared, Full({64}, i, DType::kFloat32, Place::On(kCuda)));  // two blocks of the heap
      EXPECT_EQ(sum.ToVector<float>(), std::vector<float>(64, 2.0f + static_cast<float>(i)));
      EXPECT_EQ(MatMul(weights_, weights_).ToVector<float>().size(),
                64u);  // by the same handle of cuBLAS
      Workspace workspace("other", config_, kCuda);
      WorkspaceScope scope(workspace);
      EXPECT_EQ((shared * 3.0).At<float>({63}), 6);
    }
  };
  graph.Capture([&] {
    std::thread(other).join();
    Step();
    std::thread(other).join();
  });
  EXPECT_EQ(graph.nodes(), alone.nodes());
  graph.Launch();
  EXPECT_EQ(state_.ToVector<float>(), expected);
}

// A stream of the caller's own is captured itself: work of theirs goes there without asking.
TEST_F(CudaGraphTest, AnAdoptedStreamIsCapturedItself) {
  cudaStream_t theirs = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking), cudaSuccess);
  {
    const QueueScope scope(DeviceQueue::Adopt(kCuda, theirs));
    for (int i = 0; i < 3; ++i) Step();
    Restart();
    CudaGraph graph;
    graph.Capture([&] {
      cudaMemsetAsync(state_.raw_data(), 0, 16, theirs);
      EXPECT_EQ(DeviceQueue::Here(kCuda).native(), theirs);
      Step();
    });
    EXPECT_EQ(state_.ToVector<float>()[0], 1) << "nothing of it is done yet";
    graph.Launch();
    EXPECT_NE(state_.ToVector<float>()[0], 1);
  }
  cudaStreamDestroy(theirs);
}

TEST(CudaGraphDevices, AMissingDeviceIsNamed) {
  try {
    CudaGraph graph(15);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
    EXPECT_NE(error.message().find("cuda:15"), std::string::npos);
  }
}

}  // namespace
}  // namespace tidepool
