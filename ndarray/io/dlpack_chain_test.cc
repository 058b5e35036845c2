// Arrays that went to another library and came back, often.
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int64_t Bytes(MemoryKind kind) { return MemoryTracker::Global().CurrentBytes(Host(), kind); }

// As another library hands on what it was given.
template <typename Tensor>
Tensor* HandedOn(Tensor* given) {
  auto* const own = new Tensor(*given);
  own->manager_ctx = given;
  own->deleter = [](Tensor* self) {
    auto* const inner = static_cast<Tensor*>(self->manager_ctx);
    inner->deleter(inner);
    delete self;
  };
  return own;
}

// Each export owns an import, whose end is the end of the export before: a chain of owners, which
// must not end as a chain of calls.
TEST(DLPackChain, EndsOnAnyStack) {
  const int64_t external = Bytes(MemoryKind::kExternal), allocated = Bytes(MemoryKind::kAllocated);
  NDArray x = Arange(0, 3);
  for (int i = 0; i < 200000; ++i) {
    x = i % 2 == 0 ? FromDLPack(HandedOn(ToDLPack(x))) : FromDLPack(HandedOn(ToDLPackVersioned(x)));
  }
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(0, 1, 2));
  std::thread([&x] { x = NDArray(); }).join();
  EXPECT_EQ(Bytes(MemoryKind::kExternal), external);
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), allocated);
}

// Nothing is kept for what comes straight back: it is the array.
TEST(DLPackChain, OfOursIsNone) {
  const int64_t external = Bytes(MemoryKind::kExternal), allocated = Bytes(MemoryKind::kAllocated);
  {
    const NDArray x = Arange(0, 12).Reshape({3, 4});
    NDArray y = x.Slice(1, 1, 4, 2).Transpose();
    for (int i = 0; i < 1000; ++i) {
      y = i % 2 == 0 ? FromDLPack(ToDLPack(y)) : FromDLPack(ToDLPackVersioned(y));
      ASSERT_EQ(y.buffer().get(), x.buffer().get());
      ASSERT_EQ(x.buffer()->references, 2);
    }
    EXPECT_EQ(Bytes(MemoryKind::kExternal), external);
    EXPECT_FALSE(x.buffer()->MayBeWrittenOutside());
    EXPECT_THAT(y.ToVector<float>(), ElementsAre(1, 5, 9, 3, 7, 11));
    y += 100;
    EXPECT_THAT(x.Index(0, 1).ToVector<float>(), ElementsAre(4, 105, 6, 107));
  }
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), allocated);
}

// Whatever the consumer did to the tensor, elements are the array's or those of the bytes that it names.
TEST(DLPackChain, OfOursChangedByTheConsumer) {
  const NDArray x = Arange(0, 6);
  DLManagedTensor* tensor = ToDLPack(x);
  tensor->dl_tensor.byte_offset = 2 * sizeof(float);
  int64_t two[] = {2}, three[] = {3};
  tensor->dl_tensor.shape = two;
  tensor->dl_tensor.strides = nullptr;
  const NDArray part = FromDLPack(tensor);
  EXPECT_EQ(part.buffer().get(), x.buffer().get());
  EXPECT_THAT(part.ToVector<float>(), ElementsAre(2, 3));
  float elsewhere[] = {7, 8, 9};
  tensor = ToDLPack(x);
  tensor->dl_tensor.data = elsewhere;
  tensor->dl_tensor.shape = three;
  tensor->dl_tensor.strides = nullptr;
  const NDArray other = FromDLPack(tensor);
  EXPECT_NE(other.buffer().get(), x.buffer().get());
  EXPECT_THAT(other.ToVector<float>(), ElementsAre(7, 8, 9));
}

// An array of its own where a view would be dead, another owner's or more writable.
TEST(DLPackChain, OfOursThatIsNoView) {
  NDArray closed = Arange(0, 3);
  DLManagedTensor* const of_closed = ToDLPack(closed);
  closed.Close();
  EXPECT_THAT(FromDLPack(of_closed).ToVector<float>(), ElementsAre(0, 1, 2));

  const NDArray x = Arange(0, 3);
  NDArray read = FromDLPack(ToDLPackVersioned(x, {.read_only = true}));
  EXPECT_NE(read.buffer().get(), x.buffer().get());
  EXPECT_THROW(read += 1, Error);

  NDManager mine = NDManager::NewBaseManager(Host(), "mine"),
            other = NDManager::NewBaseManager(Host(), "other");
  NDArray of_mine, of_other, of_nobody;
  {
    const ManagerScope scope(mine);
    const NDArray m = Arange(0, 3);
    of_mine = FromDLPack(ToDLPack(m));
    EXPECT_EQ(of_mine.buffer().get(), m.buffer().get());
    {
      const ManagerScope inner(other);
      of_other = FromDLPack(ToDLPack(m));
      EXPECT_TRUE(other.Manages(of_other));
    }
    const ManagerScope none(NDManager::Null());
    of_nobody = FromDLPack(ToDLPack(m));
  }
  mine.Close();
  EXPECT_TRUE(of_mine.is_closed());
  EXPECT_THAT(of_other.ToVector<float>(), ElementsAre(0, 1, 2));
  EXPECT_THAT(of_nobody.ToVector<float>(), ElementsAre(0, 1, 2));
}

// The same bytes under two buffers are one memory: an output is refused where it would be under one.
TEST(DLPackChain, OverlapsThroughTwoBuffersAreSeen) {
  const NDArray x = Arange(0, 20).Reshape({4, 5});
  NDArray other = FromDLPack(HandedOn(ToDLPack(x)));
  ASSERT_NE(x.buffer().get(), other.buffer().get());
  auto refused = [&](const std::function<void()>& call) {
    const absl::Status status = CatchStatus(call);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), HasSubstr("overlaps"));
  };
  NDArray lower = other.Slice(0, 1, 4);
  refused([&] { AddInto(x.Slice(0, 0, 3), Ones({3, 5}), lower); });
  NDArray own = x;  // an import is read, what was exported is written
  NDArray own_lower = own.Slice(0, 1, 4);
  refused([&] { AddInto(other.Slice(0, 0, 3), Ones({3, 5}), own_lower); });
  const NDArray m = Ones({3, 3});
  NDArray n = FromDLPack(HandedOn(ToDLPack(m))), third = FromDLPack(HandedOn(ToDLPack(m)));
  refused([&] { MatMulInto(m, m, n); });
  refused([&] { MatMulInto(third, third, n); });
  refused([&] { CopyInto(m.Transpose(), n); });
  EXPECT_EQ(x.At<float>({3, 4}), 19);
  // What is apart, or the very same view, is done.
  NDArray last = other.Slice(0, 3, 4);
  AddInto(x.Slice(0, 0, 1), x.Slice(0, 2, 3), last);
  EXPECT_THAT(x.Index(0, 3).ToVector<float>(), ElementsAre(10, 12, 14, 16, 18));
  NDArray left = other.Slice(1, 0, 2);
  CopyInto(x.Slice(1, 2, 4), left);
  EXPECT_THAT(x.Index(0, 0).ToVector<float>(), ElementsAre(2, 3, 2, 3, 4));
  AddInto(m, Ones({3, 3}), n);
  EXPECT_EQ(m.At<float>({2, 2}), 2);
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
