// Arrays that went to another library and came back, often.
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/dlpack.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;

int64_t Bytes(MemoryKind kind) { return MemoryTracker::Global().CurrentBytes(Host(), kind); }

// Each export owns an import, whose end is the end of the export before: a chain of owners, which
// must not end as a chain of calls.
TEST(DLPackChain, EndsOnAnyStack) {
  const int64_t external = Bytes(MemoryKind::kExternal), allocated = Bytes(MemoryKind::kAllocated);
  NDArray x = Arange(0, 3);
  for (int i = 0; i < 200000; ++i) {
    x = i % 2 == 0 ? FromDLPack(ToDLPack(x)) : FromDLPack(ToDLPackVersioned(x));
  }
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(0, 1, 2));
  std::thread([&x] { x = NDArray(); }).join();
  EXPECT_EQ(Bytes(MemoryKind::kExternal), external);
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), allocated);
}

// What is let go of within another one's end is gone when that has ended.
TEST(DLPackChain, WhatEndsWithinAnotherEndsWithIt) {
  struct Outer {
    NDArray inner[3];
    bool* is_deleted;
    float data[2] = {1, 2};
    int64_t shape[1] = {2};
    DLManagedTensor tensor = {};
  };
  int inner_deleted = 0;
  bool outer_deleted = false;
  auto* const outer = new Outer;
  outer->is_deleted = &outer_deleted;
  struct Inner {
    int* count;
    float data[1] = {3};
    int64_t shape[1] = {1};
    DLManagedTensor tensor = {};
  };
  const auto fill = [](auto& of) {
    of.tensor.dl_tensor = {of.data, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, of.shape, nullptr, 0};
    of.tensor.manager_ctx = &of;
  };
  for (NDArray& array : outer->inner) {
    auto* const inner = new Inner;
    inner->count = &inner_deleted;
    fill(*inner);
    inner->tensor.deleter = [](DLManagedTensor* self) {
      auto* const of = static_cast<Inner*>(self->manager_ctx);
      ++*of->count;
      delete of;
    };
    array = FromDLPack(&inner->tensor);
  }
  fill(*outer);
  outer->tensor.deleter = [](DLManagedTensor* self) {
    auto* const of = static_cast<Outer*>(self->manager_ctx);
    *of->is_deleted = true;
    delete of;
  };
  NDArray x = FromDLPack(&outer->tensor);
  x = NDArray();
  EXPECT_TRUE(outer_deleted);
  EXPECT_EQ(inner_deleted, 3);
}

}  // namespace
}  // namespace tidepool
