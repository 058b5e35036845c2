// Arrays of an emulated device that go while kernels which write them are queued, and wait on another device, on the host and in a file.
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/spill/spillable_array.h"

namespace tidepool {
namespace {

constexpr Device kDevice{DeviceType::kCuda, 0}, kOther{DeviceType::kCuda, 1};
constexpr int64_t kElements = 16 << 10, kBytes = 4 * kElements;

bool IsFilled(const NDArray& array, float value) {
  return array.CopyTo(Place::Heap()).ToVector<float>() == std::vector<float>(kElements, value);
}

TEST(SpillableTiersOnCuda, QueuedWorkIsInWhatComesBack) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    SpillFile file({.folder = testing::TempDir(), .block_bytes = 16 * SpillFile::kPageBytes});
    Spillables spillables(
        file, {{.device = kOther, .bytes = kBytes}, {.device = Host(), .bytes = 2 * kBytes}});
    std::vector<SpillableArray> arrays;
    for (int i = 0; i < 5; ++i)
      arrays.emplace_back(spillables, Zeros({kElements}, DType::kFloat32, Place::On(kDevice)));
    for (int round = 1; round <= 4; ++round) {
      for (size_t i = 0; i < arrays.size(); ++i) {
        {
          const SpillableArray::Pinned array = arrays[i].Write();
          ASSERT_EQ(array->device(), kDevice);
          *array += Scalar(static_cast<double>(i + 1));  // queued, as it goes
          // And the host's copy is the newer one of some.
          if (i == 2) array->mutable_data<float>()[0] = static_cast<float>(3 * round);
        }
        EXPECT_TRUE(arrays[i].Spill());
      }
      EXPECT_EQ(spillables.stats().here_bytes, 0);
    }
    for (size_t i = 0; i < arrays.size(); ++i)
      EXPECT_TRUE(IsFilled(*arrays[i].Read(), 4.0f * static_cast<float>(i + 1)))
          << "seed " << seed << ", array " << i;
    const SpillablesStats stats = spillables.stats();
    EXPECT_GT(stats.tiers[0].went_on, 0);
    EXPECT_GT(stats.tiers[1].returned, 0);
    EXPECT_GT(file.stats().read.bytes, 0);
  }
  EmulatedCuda::Get().set_seed(0);
}

TEST(SpillableTiersOnCuda, ABudgetOfTheDeviceAsksThem) {
  EmulatedCuda::Get().Finish();
  Reclaimer::Global().RunNow();  // what the device's pool keeps would go first
  SpillFile file({.folder = testing::TempDir()});
  Spillables spillables(file, {{.device = Host()}});
  std::vector<SpillableArray> arrays;
  for (int i = 0; i < 6; ++i) {
    arrays.emplace_back(
        spillables, Full({kElements}, static_cast<float>(i), DType::kFloat32, Place::On(kDevice)));
  }
  MemoryBudget::Global().SetDeviceLimit(
      kDevice, MemoryBudget::Global().Of(kDevice).taken_bytes - 3 * kBytes);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < arrays.size(); ++i)
      EXPECT_TRUE(IsFilled(*arrays[i].Read(), static_cast<float>(i)));
  }
  MemoryBudget::Global().SetDeviceLimit(kDevice, MemoryBudget::kUnlimited);
  EXPECT_GE(spillables.stats().tiers[0].returned, 12);
  EXPECT_EQ(file.stats().written.bytes, 0);
}

// What the pools of devices give back first is not what was asked for.
TEST(SpillableTiersOnCuda, ALoweredLimitOfATierHoldsAtOnce) {
  SpillFile file({.folder = testing::TempDir()});
  Spillables spillables(file, {{.device = kOther}, {.device = Host(), .bytes = kBytes}});
  MemoryOwner& owner = MemoryOwner::Process().Child("lowered");
  std::vector<SpillableArray> arrays;
  {
    const MemoryOwnerScope scope(owner);
    for (int i = 0; i < 6; ++i) {
      arrays.emplace_back(spillables, Full({kElements}, static_cast<float>(i), DType::kFloat32,
                                           Place::On(kDevice)));
    }
  }
  for (SpillableArray& array : arrays) EXPECT_TRUE(array.Spill());
  MemoryBudget& budget = MemoryBudget::Global();
  EXPECT_EQ(budget.SetOwnerLimit(owner, kOther, kBytes / 2).taken_bytes, 0);
  budget.SetOwnerLimit(owner, kOther, MemoryBudget::kUnlimited);
  for (size_t i = 0; i < arrays.size(); ++i)
    EXPECT_TRUE(IsFilled(*arrays[i].Read(), static_cast<float>(i)));
}

}  // namespace
}  // namespace tidepool
