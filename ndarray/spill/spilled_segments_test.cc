#include "tidepool/ndarray/spill/spilled_segments.h"

#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/indexing.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

constexpr int kLayers = 128;
constexpr int64_t kRows = 2048, kWidth = 32;
constexpr int64_t kActivation = kRows * kWidth * 4;

// Blocks of layers: y = tanh(tanh(x w) w).
struct Network {
  Network() {
    for (int i = 0; i < kLayers; ++i) {
      weights.push_back(RandomUniform({kWidth, kWidth}, -0.2, 0.2, static_cast<uint64_t>(i + 1)));
    }
  }
  std::vector<NDArray> weights;
};

enum class Way { kKept, kSpilled };

// One step of gradient descent; returns the loss.
float Step(Network& network, const NDArray& x, Way way, SpillFile* file) {
  GradientTape tape;
  for (const NDArray& w : network.weights) tape.Watch(w);
  NDArray h = x.Dup();
  std::optional<SpilledSegments> segments;
  if (way == Way::kSpilled) segments.emplace(*file);
  for (const NDArray& w : network.weights) {
    const auto layer = [w](absl::Span<const NDArray> in) {
      return std::vector<NDArray>{Tanh(MatMul(Tanh(MatMul(in[0], w)), w))};
    };
    h = segments ? segments->Run(layer, {h}, {w})[0] : layer({h})[0];
  }
  NDArray loss = Mean(Square(h));
  const float value = loss.Item<float>();
  h = NDArray();
  tape.Backward(loss);
  for (NDArray& w : network.weights) w -= tape.Gradient(w) * Scalar(10.0);
  return value;
}

SpillFileOptions Options() {
  SpillFileOptions options;
  options.folder = testing::TempDir();
  options.block_bytes = 16 * SpillFile::kPageBytes;
  options.in_flight = 2;
  return options;
}

void ExpectSame(const Network& a, const Network& b) {
  for (int i = 0; i < kLayers; ++i) {
    const size_t n = static_cast<size_t>(i);
    ASSERT_EQ(
        std::memcmp(a.weights[n].data<float>(), b.weights[n].data<float>(), kWidth * kWidth * 4), 0)
        << i;
  }
}

// The same bits, and what is in use at most is a sixteenth of what a tape keeps.
TEST(SpilledSegments, TrainToTheSameBitsInASixteenthOfTheMemory) {
  SpillFile file(Options());
  Network kept, spilled;
  const NDArray x = RandomUniform({kRows, kWidth}, -1, 1, 99);
  for (int step = 0; step < 3; ++step) {
    PeakScope of_kept;
    const float expected = Step(kept, x, Way::kKept, nullptr);
    of_kept.End();
    PeakScope of_spilled;
    EXPECT_EQ(Step(spilled, x, Way::kSpilled, &file), expected);
    of_spilled.End();
    ExpectSame(kept, spilled);
    const int64_t more_kept = of_kept.peak_in_use_bytes() - of_kept.start().in_use;
    const int64_t more_spilled = of_spilled.peak_in_use_bytes() - of_spilled.start().in_use;
    EXPECT_GE(more_kept, 2 * kLayers * kActivation);
    EXPECT_LE(more_spilled, more_kept / 16);
    EXPECT_EQ(file.stats().used_bytes, 0) << "nothing of a step stays";
  }
  EXPECT_EQ(file.stats().written.bytes, 3 * kLayers * kActivation);
  EXPECT_EQ(file.stats().read.bytes, file.stats().written.bytes);
}

TEST(SpilledSegments, GoOnWhereATapeThatKeepsAllIsRefused) {
  SpillFile file(Options());
  Network kept, spilled, unlimited;
  const NDArray x = RandomUniform({kRows, kWidth}, -1, 1, 99);
  Step(spilled, x, Way::kSpilled, &file);  // what is taken once
  Step(unlimited, x, Way::kKept, nullptr);
  MemoryBudget& budget = MemoryBudget::Global();
  const int64_t before = budget.Of(Host()).taken_bytes;
  budget.SetDeviceLimit(Host(), before + 2 * kLayers * kActivation / 16);
  EXPECT_THROW(Step(kept, x, Way::kKept, nullptr), OutOfMemoryError);
  for (int step = 0; step < 3; ++step) EXPECT_NO_THROW(Step(spilled, x, Way::kSpilled, &file));
  budget.SetDeviceLimit(Host(), MemoryBudget::kUnlimited);
  for (int step = 0; step < 3; ++step) Step(unlimited, x, Way::kKept, nullptr);
  ExpectSame(spilled, unlimited);
}

// In a workspace the step's memory is planned, and repeats.
TEST(SpilledSegments, StepsAreCyclesOfAWorkspace) {
  SpillFile file(Options());
  Network kept, spilled;
  const NDArray x = RandomUniform({kRows, kWidth}, -1, 1, 99);
  Workspace workspace("spilling");
  for (int step = 0; step < 5; ++step) {
    Step(kept, x, Way::kKept, nullptr);
    WorkspaceScope scope(workspace);
    Step(spilled, x, Way::kSpilled, &file);
  }
  ExpectSame(kept, spilled);
  EXPECT_LE(workspace.stats().size_bytes, static_cast<size_t>(16 * kActivation));
}

// A step that fails anywhere is done again.
TEST(SpilledSegments, AFullFileLosesNothing) {
  SpillFileOptions options = Options();
  options.capacity_bytes = kLayers / 2 * kActivation;
  SpillFile small(options), file(Options());
  Network kept, spilled;
  const NDArray x = RandomUniform({kRows, kWidth}, -1, 1, 99);
  EXPECT_THROW(Step(spilled, x, Way::kSpilled, &small), Error);
  EXPECT_EQ(small.stats().used_bytes, 0);
  EXPECT_EQ(Step(spilled, x, Way::kSpilled, &file), Step(kept, x, Way::kKept, nullptr));
  ExpectSame(kept, spilled);
}

// Inputs without gradients, several outputs of which one is not used, and no tape at all.
TEST(SpilledSegments, TakeWhatFunctionsTake) {
  SpillFile file(Options());
  SpilledSegments segments(file);
  const NDArray a = RandomUniform({3, 4}, -1, 1, 1), rows = Full({2}, 1, DType::kInt64);
  const auto function = [](absl::Span<const NDArray> in) {
    return std::vector<NDArray>{Gather(in[0], in[1], 0) * Scalar(2.0), Exp(in[0])};
  };
  EXPECT_EQ(segments.Run(function, {a, rows}).size(), 2u);
  EXPECT_EQ(segments.spilled_bytes(), 0);
  GradientTape tape;
  tape.Watch(a);
  const std::vector<NDArray> outputs = segments.Run(function, {a, rows});
  EXPECT_EQ(segments.spilled_bytes(), 3 * 4 * 4 + 2 * 8);
  tape.Backward(Sum(outputs[0]));
  const std::vector<float> expected = {0, 0, 0, 0, 4, 4, 4, 4, 0, 0, 0, 0};
  EXPECT_EQ(tape.Gradient(a).ToVector<float>(), expected);
  EXPECT_THROW(segments.Run(
                   [](absl::Span<const NDArray>) -> std::vector<NDArray> {
                     throw Error(absl::StatusCode::kInternal, "the function's own");
                   },
                   {a}),
               Error);
}

}  // namespace
}  // namespace tidepool
