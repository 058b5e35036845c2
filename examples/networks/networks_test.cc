// Networks written with operators alone learn, in memory that a workspace has learned.
#include <gtest/gtest.h>

#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "tidepool/examples/networks/lstm_classifier.h"
#include "tidepool/examples/networks/residual_net.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool::examples {
namespace {

constexpr int kClasses = 4;
constexpr int64_t kBatch = 16;

// Arrays of `shape` whose axis `batch_axis` holds examples; each class has a pattern of its own, under
// noise.
struct Data {
  NDArray features, labels;

  Data(const Shape& shape, int batch_axis, uint64_t seed) {
    std::mt19937_64 random(seed);
    std::normal_distribution<float> noise(0, 0.5f);
    features = NDArray(shape, DType::kFloat32, Place::Heap());
    labels = NDArray({kBatch}, DType::kInt64, Place::Heap());
    int64_t* classes = labels.mutable_data<int64_t>();
    for (int64_t i = 0; i < kBatch; ++i) classes[i] = static_cast<int64_t>(random() % kClasses);
    int64_t inner = 1;
    for (int axis = batch_axis + 1; axis < shape.rank(); ++axis) inner *= shape[axis];
    float* values = features.mutable_data<float>();
    for (int64_t i = 0; i < features.NumElements(); ++i) {
      const int64_t example = i / inner % kBatch, place = i % inner;
      const bool high = (place >> classes[example]) % 2 != 0;
      values[i] = (high ? 1.0f : -1.0f) + noise(random);
    }
  }
};

// Trains, and says what a learned step asks the system for.
void ExpectItLearnsInItsWorkspace(const char* name, const std::function<double(const Data&)>& step,
                                  const std::function<Data(uint64_t seed)>& make) {
  Workspace workspace(name, WorkspaceConfig::Training());
  double first = 0, last = 0;
  constexpr int kSteps = 60;
  int64_t requests_to_system = 0;
  for (int i = 0; i < kSteps; ++i) {
    const Data data = make(static_cast<uint64_t>(i));
    const int64_t before = MemoryTracker::Global().system_allocations();
    double loss;
    {
      const WorkspaceScope scope(workspace);
      loss = step(data);
    }
    if (i >= 3) requests_to_system += MemoryTracker::Global().system_allocations() - before;
    if (i < 5) first += loss / 5;
    if (i >= kSteps - 5) last += loss / 5;
  }
  const WorkspaceStats& stats = workspace.stats();
  const double ratio = static_cast<double>(stats.planned_peak_bytes) /
                       static_cast<double>(stats.live_lower_bound_bytes);
  std::printf("%s: loss %.3f, then %.3f; %zu requests a step, planned peak %zu, ratio %.4f\n", name,
              first, last, static_cast<size_t>(stats.planned_requests),
              static_cast<size_t>(stats.planned_peak_bytes), ratio);
  EXPECT_LT(last, first / 3);
  EXPECT_EQ(requests_to_system, 0);
  EXPECT_EQ(stats.misses, 0u);
  EXPECT_EQ(stats.leaked_arrays, 0u);
  EXPECT_LE(ratio, 1.02);
}

TEST(NetworksTest, AResidualNetLearns) {
  ResidualNet net(1, {8, 16}, kClasses, 3);
  ExpectItLearnsInItsWorkspace(
      "residual net", [&](const Data& data) { return net.Step(data.features, data.labels, 0.05); },
      [](uint64_t seed) {
        return Data({kBatch, 8, 8, 1}, 0, seed);
      });
}

TEST(NetworksTest, AnLstmLearns) {
  LstmClassifier net(8, 16, kClasses, 5);
  ExpectItLearnsInItsWorkspace(
      "lstm", [&](const Data& data) { return net.Step(data.features, data.labels, 0.2); },
      [](uint64_t seed) {
        return Data({12, kBatch, 8}, 1, seed);
      });
}

}  // namespace
}  // namespace tidepool::examples
