// operator new refused at each of its calls while a network is frozen and runs: an error, nothing lost, and the same again
// works.
#include "tidepool/memory/testing/failing_new.h"

#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

int64_t TotalBytes() { return MemoryTracker::Global().Snapshot()[Host()].total.current_bytes; }

void FailOperatorNewAnywhere(FrozenType type, QuantisedRanges ranges = QuantisedRanges::kStatic) {
  const Network network({16, 16, 1}, LeNetLayers(10), 3);
  const NDArray x = RandomUniform({5, 16, 16, 1}, -1, 1, 1, 1, Place::Heap());
  FrozenOptions options{.type = type, .batches = {4, 1}};
  options.calibration = x.Slice(0, 0, 1);
  options.ranges = ranges;
  std::vector<float> expected;
  {
    const FrozenNetwork frozen(network, options);
    expected = frozen.Run(x).ToVector<float>();
  }
  Reclaimer::Global().RunNow();
  const int64_t before = TotalBytes();
  int failed = 0;
  // Freezing.
  for (int64_t n = 0;; ++n) {
    ASSERT_LT(n, 2000);
    until_fault = n, fault_happened = false;
    std::unique_ptr<FrozenNetwork> frozen;
    const bool went_through =
        Try([&] { frozen = std::make_unique<FrozenNetwork>(network, options); });
    EXPECT_EQ(went_through, frozen != nullptr);
    if (frozen != nullptr) {
      EXPECT_EQ(frozen->Run(x).ToVector<float>(), expected);
    }
    frozen.reset();
    if (type == FrozenType::kInt8)
      Reclaimer::Global().RunNow();  // what kernels packed to calibrate
    EXPECT_LE(TotalBytes(), before + (1 << 12)) << n;
    failed += !went_through;
    if (!fault_happened) break;
  }
  EXPECT_GT(failed, 20);
  // Runs, the first of which makes its runtimes.
  FrozenNetwork frozen(network, options);
  failed = 0;
  for (int64_t n = 0;; ++n) {
    ASSERT_LT(n, 2000);
    frozen.Trim();
    until_fault = n, fault_happened = false;
    NDArray y;
    const bool went_through = Try([&] { y = frozen.Run(x); });
    EXPECT_EQ(frozen.stats().runtimes, frozen.stats().idle_runtimes) << n;
    EXPECT_EQ(frozen.Run(x).ToVector<float>(), expected) << n;
    failed += !went_through;
    if (!fault_happened) break;
  }
  EXPECT_GT(failed, 10);
  // Preparing, which leaves what there was.
  frozen.Trim();
  for (int64_t n = 0;; ++n) {
    ASSERT_LT(n, 2000);
    until_fault = n, fault_happened = false;
    const bool went_through = Try([&] { frozen.Prepare(2, 3); });
    EXPECT_EQ(frozen.stats().runtimes, went_through ? 3 : 0) << n;
    EXPECT_EQ(frozen.stats().idle_runtimes, frozen.stats().runtimes) << n;
    if (!fault_happened) break;
    frozen.Trim();
  }
}

TEST(FrozenNetworkFault, OperatorNewMayFailAnywhere) {
  if (LinkedFrozenEngine() == nullptr || !LinkedFrozenEngine()->WhyNotHere().empty())
    GTEST_SKIP() << "no engine";
  FailOperatorNewAnywhere(FrozenType::kFloat32);
  FailOperatorNewAnywhere(FrozenType::kInt8);
  FailOperatorNewAnywhere(FrozenType::kInt8, QuantisedRanges::kDynamic);
  if (LinkedFrozenEngine()->WhyNot({}, /*is_half=*/true).empty())
    FailOperatorNewAnywhere(FrozenType::kFloat16);
}

}  // namespace
}  // namespace tidepool::nn
