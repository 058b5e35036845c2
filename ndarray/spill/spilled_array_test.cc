#include "tidepool/ndarray/spill/spilled_array.h"

#include <cstring>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/testing/simulated_device.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

SpillFileOptions Options() {
  SpillFileOptions options;
  options.folder = testing::TempDir();
  options.block_bytes = 2 * SpillFile::kPageBytes;
  return options;
}

// Every bit another one, whatever the type.
NDArray Filled(const Shape& shape, DType dtype) {
  NDArray array(shape, dtype, Place::Heap());
  const auto bytes = static_cast<size_t>(shape.NumElements() * DTypeBytes(dtype));
  for (size_t i = 0; i < bytes; ++i) {
    array.raw_data()[i] =
        static_cast<std::byte>(dtype == DType::kBool ? i % 3 == 0 : i * 131 % 251);
  }
  return array;
}

void ExpectSame(const NDArray& found, const NDArray& expected) {
  ASSERT_EQ(found.shape(), expected.shape());
  ASSERT_EQ(found.dtype(), expected.dtype());
  const NDArray a = found.CopyTo(Place::Heap()), b = expected.CopyTo(Place::Heap());
  const auto bytes = static_cast<size_t>(a.NumElements() * DTypeBytes(a.dtype()));
  EXPECT_TRUE(bytes == 0 || std::memcmp(a.raw_data(), b.raw_data(), bytes) == 0);
}

TEST(SpilledArray, ArraysOfEveryTypeComeBackToTheBit) {
  SpillFile file(Options());
  for (int type = 0; type < kDTypes; ++type) {
    for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{7}, Shape{40, 5, 33}}) {
      const NDArray array = Filled(shape, static_cast<DType>(type));
      SpilledArray waits(file, array);
      EXPECT_EQ(waits.shape(), shape);
      ExpectSame(waits.Restore(), array);
      NDArray into = Zeros(shape, static_cast<DType>(type));
      waits.RestoreInto(into);
      ExpectSame(into, array);
      waits.Prefetch();
      waits.Prefetch();
      EXPECT_TRUE(waits.is_prefetched());
      ExpectSame(waits.Restore(), array);
      EXPECT_FALSE(waits.is_prefetched());
    }
  }
  EXPECT_EQ(file.stats().used_bytes, 0);
}

TEST(SpilledArray, ViewsAreWrittenAndRestoredAsTheyAreRead) {
  SpillFile file(Options());
  const NDArray array = Filled({60, 70}, DType::kFloat32);
  for (const NDArray& view : {array.Transpose(), array.Slice(1, 3, 50, 2), array.Slice(0, 10, 20),
                              array.Index(0, 3).BroadcastTo({5, 70})}) {
    SpilledArray waits(file, view);
    const NDArray back = waits.Restore();
    ExpectSame(back, view);
    EXPECT_TRUE(back.is_dense());
  }
  NDArray target = Zeros({70, 60});
  SpilledArray(file, array).RestoreInto(*std::make_unique<NDArray>(target.Transpose()));
  ExpectSame(target, array.Transpose());
}

// The memory is free meanwhile.
TEST(SpilledArray, ItsMemoryGoesAndComesBack) {
  const auto allocated = [] {
    return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
  };
  SpillFile file(Options());
  const int64_t before = allocated();
  NDArray array = Filled({1000, 100}, DType::kFloat64);
  const NDArray kept = array.Dup();
  SpilledArray waits(file, array);
  array = NDArray();
  EXPECT_EQ(allocated(), before + 800000);
  array = waits.Restore();
  EXPECT_EQ(allocated(), before + 1600000);
  ExpectSame(array, kept);
  EXPECT_EQ(file.stats().used_bytes, 800000 / 4096 * 4096 + 4096);
  waits = {};
  EXPECT_EQ(file.stats().used_bytes, 0);
}

TEST(SpilledArray, WhatIsPrefetchedInACycleOutlivesIt) {
  SpillFile file(Options());
  const NDArray array = Filled({300, 100}, DType::kInt64);
  Workspace workspace("spilled");
  SpilledArray waits;
  for (int cycle = 0; cycle < 6; ++cycle) {
    WorkspaceScope scope(workspace);
    if (cycle > 0) {
      const NDArray back = waits.Restore();
      EXPECT_TRUE(back.IsAttached());
      ExpectSame(back, array);
    }
    waits = SpilledArray(file, array.Migrate());
    if (cycle % 2 == 0) waits.Prefetch();
  }
}

TEST(SpilledArray, ArraysOfDevicesGoByWayOfTheHost) {
  SimulatedDevice& device = SimulatedDevice::Get();
  device.Reset();
  {
    SpillFile file(Options());
    const NDArray array = Filled({100, 50}, DType::kFloat32);
    SpilledArray waits;
    {
      const NDArray there = array.CopyTo(Place::On(device.device()));
      waits = SpilledArray(file, there);
    }
    EXPECT_EQ(waits.device(), device.device());
    NDArray back = waits.Restore();
    EXPECT_EQ(back.device(), device.device());
    ExpectSame(back, array);
    waits.Prefetch();
    back = waits.Restore();
    EXPECT_EQ(back.device(), device.device());
    ExpectSame(back, array);
    NDArray into = Zeros({100, 50}).CopyTo(Place::On(device.device()));
    waits.RestoreInto(into);
    ExpectSame(into, array);
    EXPECT_EQ(waits.Restore(Place::Heap()).device(), Host());
  }
  device.Reset();
}

TEST(SpilledArray, WhatIsRefusedIsStillThere) {
  SpillFileOptions options = Options();
  options.capacity_bytes = 10 * SpillFile::kPageBytes;
  SpillFile file(options);
  const NDArray array = Filled({20000}, DType::kFloat32);
  EXPECT_THROW(SpilledArray(file, array), Error);
  ExpectSame(array, Filled({20000}, DType::kFloat32));
  SpilledArray waits(file, Filled({1000}, DType::kFloat32));
  NDArray other = Zeros({1001});
  EXPECT_THROW(waits.RestoreInto(other), Error);
  NDArray wrong_type = Zeros({1000}, DType::kFloat64);
  EXPECT_THROW(waits.RestoreInto(wrong_type), Error);
  NDArray none;
  EXPECT_THROW(waits.RestoreInto(none), Error);
  ExpectSame(waits.Restore(), Filled({1000}, DType::kFloat32));
  EXPECT_THROW(SpilledArray().Restore(), Error);
  EXPECT_THROW(SpilledArray().Prefetch(), Error);
  EXPECT_THROW(SpilledArray(file, NDArray()), Error);
}

}  // namespace
}  // namespace tidepool
