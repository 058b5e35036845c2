#include "tidepool/ndarray/io/dlpack.h"

#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

int64_t Bytes(MemoryKind kind) { return MemoryTracker::Global().CurrentBytes(Host(), kind); }
Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(absl::StatusCode::kOk, "nothing was thrown");
}

// What another library would hand over; counts its deleter's calls.
struct Foreign {
  std::vector<float> data;
  std::vector<int64_t> shape, strides;
  DLManagedTensor tensor = {};
  int deleted = 0;

  Foreign(std::vector<float> values, std::vector<int64_t> sizes, std::vector<int64_t> steps = {})
      : data(std::move(values)), shape(std::move(sizes)), strides(std::move(steps)) {
    tensor.dl_tensor.data = data.data();
    tensor.dl_tensor.device = {kDLCPU, 0};
    tensor.dl_tensor.ndim = static_cast<int>(shape.size());
    tensor.dl_tensor.dtype = {kDLFloat, 32, 1};
    tensor.dl_tensor.shape = shape.data();
    tensor.dl_tensor.strides = strides.empty() ? nullptr : strides.data();
    tensor.manager_ctx = this;
    tensor.deleter = [](DLManagedTensor* self) {
      ++static_cast<Foreign*>(self->manager_ctx)->deleted;
    };
  }
};

TEST(DLPack, ImportSharesBytesAndLetsGoOfThemOnce) {
  Foreign foreign({1, 2, 3, 4, 5, 6}, {2, 3});
  const int64_t before = Bytes(MemoryKind::kExternal);
  NDArray view;
  {
    NDArray x = FromDLPack(&foreign.tensor);
    EXPECT_EQ(x.raw_data(), reinterpret_cast<std::byte*>(foreign.data.data()));
    EXPECT_EQ(Bytes(MemoryKind::kExternal) - before, 24);
    x.mutable_data<float>()[5] = 60;
    view = x.Index(0, 1);
  }
  EXPECT_EQ(foreign.deleted, 0);
  EXPECT_THAT(view.ToVector<float>(), ElementsAre(4, 5, 60));
  EXPECT_EQ(foreign.data[5], 60);
  view = NDArray();
  EXPECT_EQ(foreign.deleted, 1);
  EXPECT_EQ(Bytes(MemoryKind::kExternal), before);
}

// Whose an imported array is, is the rule of every array: the manager's that was entered last.
TEST(DLPack, ImportIsTheEnteredManagers) {
  NDManager manager = NDManager::NewBaseManager(Host(), "importer");
  Foreign loose({1, 2}, {2}), owned({3, 4}, {2}), capped({5, 6}, {2});
  NDArray x = FromDLPack(&loose.tensor), y;
  EXPECT_FALSE(NDManager::ManagerOf(x));
  {
    const ManagerScope scope(manager);
    y = FromDLPack(&owned.tensor);
    EXPECT_TRUE(manager.Manages(y));
    const ManagerCapScope cap(manager);
    EXPECT_THAT(ErrorOf([&] { FromDLPack(&capped.tensor); }).message(),
                HasSubstr("from_dlpack: an array of shape [2] f32: owner [importer] is capped"));
    const ManagerScope none(NDManager::Null());
    EXPECT_FALSE(NDManager::ManagerOf(FromDLPack(&capped.tensor)));
  }
  EXPECT_EQ(capped.deleted, 1);  // by the second, not by the one that was refused
  manager.Close();
  EXPECT_TRUE(y.is_closed());
  EXPECT_EQ(owned.deleted, 1);  // at once, handle or not
  EXPECT_EQ(loose.deleted, 0);
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(1, 2));
}

TEST(DLPack, ImportOfStridesAndOffsets) {
  // Columns from right to left, the second row first in memory.
  Foreign foreign({1, 2, 3, 4, 5, 6}, {2, 3}, {3, -1});
  foreign.tensor.dl_tensor.byte_offset = 2 * sizeof(float);
  NDArray x = FromDLPack(&foreign.tensor);
  EXPECT_THAT(x.ToVector<float>(), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_EQ(x.buffer()->bytes, 24u);
  x.Close();
  EXPECT_EQ(foreign.deleted, 1);
  x = NDArray();
  EXPECT_EQ(foreign.deleted, 1);
  Foreign repeated({7}, {4}, {0});
  EXPECT_THAT(FromDLPack(&repeated.tensor).ToVector<float>(), ElementsAre(7, 7, 7, 7));
  Foreign empty({}, {0, 3});
  EXPECT_EQ(FromDLPack(&empty.tensor).shape(), (Shape{0, 3}));
  EXPECT_EQ(empty.deleted, 1);
  Foreign scalar({9}, {});
  EXPECT_EQ(FromDLPack(&scalar.tensor).Item<float>(), 9);
}

// There is nothing to share: the tensor is done with at once.
TEST(DLPack, WithoutElements) {
  const int64_t external = Bytes(MemoryKind::kExternal);
  NDManager manager = NDManager::NewBaseManager(Host(), "manager");
  const ManagerScope scope(manager);
  Foreign foreign({}, {0, 3});
  foreign.tensor.dl_tensor.data = nullptr;
  const NDArray y = FromDLPack(&foreign.tensor);
  EXPECT_EQ(foreign.deleted, 1);
  EXPECT_EQ(y.shape(), (Shape{0, 3}));
  EXPECT_FALSE(manager.Manages(y));
  EXPECT_EQ(manager.arrays(), 0);
  EXPECT_EQ(Bytes(MemoryKind::kExternal), external);
  DLManagedTensor* const again = ToDLPack(y);
  EXPECT_EQ(again->dl_tensor.shape[0], 0);
  EXPECT_EQ(FromDLPack(again).shape(), y.shape());
}

TEST(DLPack, ExportKeepsTheBytesAlive) {
  const int64_t before = Bytes(MemoryKind::kAllocated);
  DLManagedTensor* tensor;
  {
    const NDArray x = Arange(0, 12, 1, DType::kInt32).Reshape({3, 4});
    tensor = ToDLPack(x.Slice(1, 1, 4, 2).Transpose());
  }
  EXPECT_GT(Bytes(MemoryKind::kAllocated), before);
  EXPECT_EQ(tensor->dl_tensor.ndim, 2);
  EXPECT_EQ(tensor->dl_tensor.dtype.code, kDLInt);
  EXPECT_EQ(tensor->dl_tensor.dtype.bits, 32);
  EXPECT_EQ(tensor->dl_tensor.shape[0], 2);
  EXPECT_EQ(tensor->dl_tensor.strides[0], 2);
  EXPECT_EQ(tensor->dl_tensor.strides[1], 4);
  EXPECT_EQ(static_cast<int32_t*>(tensor->dl_tensor.data)[0], 1);
  tensor->deleter(tensor);
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), before);
}

// Closing ends the array for its handles at once; who has the tensor has a pointer that nothing checks.
TEST(DLPack, ExportKeepsTheBytesWhenTheArrayOrItsManagerIsClosed) {
  const int64_t before = Bytes(MemoryKind::kAllocated);
  const auto values = [](const DLManagedTensor* tensor) {
    const auto* data = static_cast<const float*>(tensor->dl_tensor.data);
    return std::vector<float>(data, data + 1000);
  };
  for (const bool by_manager : {false, true}) {
    NDManager root = NDManager::NewRoot("exports");
    NDManager manager = root.NewSubManager("model");
    NDArray x = manager.Full({1000}, 7);
    DLManagedTensor* first = ToDLPack(x);
    DLManagedTensor* second = ToDLPack(x.Slice(0, 0, 1000));
    if (by_manager) {
      manager.Close();
    } else {
      x.Close();
      x.Close();
    }
    EXPECT_TRUE(x.is_closed());
    EXPECT_THAT(ErrorOf([&] { x.At<float>({0}); }).message(), HasSubstr("was closed before"));
    EXPECT_THAT(ErrorOf([&] { ToDLPack(x); }).message(), HasSubstr("was closed before"));
    EXPECT_EQ(Bytes(MemoryKind::kAllocated) - before, 4000);
    x = NDArray();
    const NDArray other = Full({1000}, 9);  // would have had the bytes
    EXPECT_EQ(values(first), std::vector<float>(1000, 7));
    first->deleter(first);
    EXPECT_EQ(values(second), std::vector<float>(1000, 7));
    EXPECT_EQ(Bytes(MemoryKind::kAllocated) - before, 8000);
    second->deleter(second);
    EXPECT_EQ(Bytes(MemoryKind::kAllocated) - before, 4000);
  }
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), before);
  // Closed afterwards, or never.
  NDArray x = Ones({1000});
  DLManagedTensor* tensor = ToDLPack(x);
  tensor->deleter(tensor);
  EXPECT_TRUE(x.IsInScope());
  x.Close();
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), before);
}

TEST(DLPack, WhatWasImportedIsExportedAgainAndClosed) {
  Foreign foreign({1, 2, 3}, {3});
  NDArray x = FromDLPack(&foreign.tensor);
  DLManagedTensor* tensor = ToDLPack(x);
  x.Close();
  EXPECT_EQ(foreign.deleted, 0);
  x = NDArray();
  EXPECT_EQ(foreign.deleted, 0);
  tensor->deleter(tensor);
  EXPECT_EQ(foreign.deleted, 1);
}

TEST(DLPack, ClosedOnOneThreadWhileExportedOnAnother) {
  const int64_t before = Bytes(MemoryKind::kAllocated);
  for (int i = 0; i < 500; ++i) {
    NDArray x = Full({16}, 5);
    DLManagedTensor* tensor = nullptr;
    std::thread closer([copy = x]() mutable { copy.Close(); });
    try {
      tensor = ToDLPack(x);
    } catch (const Error&) {
    }
    if (tensor != nullptr) {
      closer.join();
      const NDArray other = Full({16}, 6);
      EXPECT_EQ(static_cast<float*>(tensor->dl_tensor.data)[15], 5);
      tensor->deleter(tensor);
    } else {
      closer.join();
    }
  }
  EXPECT_EQ(Bytes(MemoryKind::kAllocated), before);
}

TEST(DLPack, EveryTypeGoesThereAndBack) {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    const NDArray x = Arange(0, 5, 1, dtype);
    const NDArray back = FromDLPack(ToDLPack(x));
    EXPECT_EQ(back.dtype(), dtype);
    EXPECT_EQ(back.raw_data(), x.raw_data());
    EXPECT_EQ(back.ToString(), x.ToString());
  }
}

// Windows over a series are read; two indices of one element are not written to.
TEST(DLPack, ElementsWithTwoIndicesAreNotWrittenTo) {
  Foreign windows({1, 1, 1, 1, 1}, {3, 3}, {1, 1});
  NDArray x = FromDLPack(&windows.tensor);
  EXPECT_EQ(Sum(x).Item<float>(), 9);
  EXPECT_EQ(
      ErrorOf([&] { x *= 2; }).message(),
      "Op [scale_shift]: output Z of shape [3, 3] with strides [1, 1] may have two indices of "
      "one element; Dup() makes an array of its own");
  EXPECT_THAT(windows.data, ElementsAre(1, 1, 1, 1, 1));
  struct Layout {
    std::vector<int64_t> shape, strides;
    bool written;
  };
  for (const Layout& layout : std::vector<Layout>{{{2, 3}, {3, 1}, true},
                                                  {{2, 3}, {1, 2}, true},
                                                  {{2, 3}, {2, 1}, false},
                                                  {{2, 3}, {-3, 1}, true},
                                                  {{2, 3}, {-2, -1}, false},
                                                  {{3, 1, 2}, {2, 0, 1}, true},
                                                  {{2, 2, 2}, {1, 5, 2}, true},
                                                  {{2, 2, 2}, {1, 3, 2}, false},
                                                  {{2, 1}, {4, 1}, true}}) {
    Foreign foreign(std::vector<float>(32, 1), layout.shape, layout.strides);
    foreign.tensor.dl_tensor.byte_offset = 8 * sizeof(float);
    NDArray y = FromDLPack(&foreign.tensor);
    const std::string message(ErrorOf([&] { y *= 2; }).message());
    EXPECT_EQ(message == "nothing was thrown", layout.written)
        << y.shape().ToString() << " " << layout.strides[0] << ": " << message;
    if (!layout.written) continue;
    EXPECT_EQ(Sum(y).Item<float>(), 2 * static_cast<float>(y.NumElements()));
  }
}

TEST(DLPack, Errors) {
  Workspace workspace("step");
  NDArray stale;
  {
    WorkspaceScope scope(workspace);
    stale = Ones({2});
    EXPECT_EQ(ErrorOf([&] { ToDLPack(stale); }).message(),
              "Op [to_dlpack] X is an array of workspace [step], whose cycle would end under its "
              "other owner; Detach() it first");
  }
  EXPECT_THAT(ErrorOf([&] { ToDLPack(stale); }).message(), HasSubstr("leaked workspace pointer"));
  Foreign foreign({1, 2}, {2});
  auto refused = [&](auto change) {
    Foreign other({1, 2}, {2});
    change(other.tensor.dl_tensor);
    const Error error = ErrorOf([&] { FromDLPack(&other.tensor); });
    EXPECT_NE(error.code(), absl::StatusCode::kOk);
    EXPECT_EQ(other.deleted, 0) << "a tensor that was refused is still its owner's";
    return std::string(error.message());
  };
  EXPECT_THAT(refused([](DLTensor& t) { t.device.device_type = kDLCUDA; }),
              HasSubstr("no memory provider is linked for cuda:0"));
  EXPECT_THAT(refused([](DLTensor& t) { t.device.device_type = kDLVulkan; }),
              HasSubstr("device type 7"));
  EXPECT_THAT(refused([](DLTensor& t) {
                const int32_t any = 18874374;
                std::memcpy(&t.device.device_type, &any, sizeof any);
              }),
              HasSubstr("device type 18874374"));
  EXPECT_THAT(refused([](DLTensor& t) { t.dtype.bits = 128; }), HasSubstr("128 bits"));
  EXPECT_THAT(refused([](DLTensor& t) { t.dtype.lanes = 4; }), HasSubstr("4 lanes"));
  EXPECT_THAT(refused([](DLTensor& t) { t.ndim = -1; }), HasSubstr("rank -1"));
  EXPECT_THAT(refused([](DLTensor& t) { t.ndim = INT32_MAX; }),
              HasSubstr("rank 2147483647, expected at most 8"));
  EXPECT_THAT(refused([](DLTensor& t) { t.byte_offset = UINT64_MAX - 3; }),
              HasSubstr("found byte_offset 18446744073709551612, expected at most"));
  EXPECT_THAT(refused([](DLTensor& t) { t.data = nullptr; }), HasSubstr("no data"));
  EXPECT_THAT(refused([](DLTensor& t) { t.byte_offset = 2; }), HasSubstr("aligned"));
  // Bytes of bools, on the way through a view of rows apart; what lies between them may be anything.
  const auto bools = [](DLTensor& t, uint8_t second, uint8_t gap) {
    t.dtype = {6, 8, 1};  // kDLBool
    static int64_t shape[3], strides[3];
    shape[0] = 2, shape[1] = 1000000, shape[2] = 2;
    strides[0] = -3, strides[1] = 0, strides[2] = 1;
    t.ndim = 3, t.shape = shape, t.strides = strides, t.byte_offset = 3;
    const uint8_t bytes[] = {0, 1, gap, 1, second};
    std::memcpy(t.data, bytes, 5);
  };
  EXPECT_THAT(refused([&](DLTensor& t) { bools(t, 2, 7); }),
              HasSubstr("found a bool of 2 at [0, 0, 1], expected 0 or 1"));
  Foreign good({1, 2}, {2});
  bools(good.tensor.dl_tensor, 0, 7);
  EXPECT_EQ(FromDLPack(&good.tensor).Slice(1, 0, 1).ToVector<bool>(),
            (std::vector<bool>{true, false, false, true}));
  int64_t far[1] = {int64_t{1} << 60};
  EXPECT_THAT(refused([&](DLTensor& t) { t.strides = far; }), HasSubstr("no memory holds"));
  // Addresses that leave the address space are not even computed, whatever pointer, offset and
  // strides they come from.
  EXPECT_THAT(refused([](DLTensor& t) { t.data = reinterpret_cast<void*>(~uintptr_t{0} - 7); }),
              HasSubstr("within the address space"));
  EXPECT_THAT(refused([](DLTensor& t) {
                t.data = reinterpret_cast<void*>(~uintptr_t{0} - 15), t.byte_offset = 16;
              }),
              HasSubstr("within the address space"));
  int64_t back[1] = {-1024};
  EXPECT_THAT(refused([&](DLTensor& t) {
                t.data = reinterpret_cast<void*>(uintptr_t{512}), t.strides = back;
              }),
              HasSubstr("within the address space"));
  EXPECT_THAT(refused([&](DLTensor& t) {
                bools(t, 0, 0);
                t.data = reinterpret_cast<void*>(~uintptr_t{0} - 1);
              }),
              HasSubstr("within the address space"));
  EXPECT_EQ(ErrorOf([] { FromDLPack(static_cast<DLManagedTensor*>(nullptr)); }).code(),
            absl::StatusCode::kInvalidArgument);
}

// Of an axis of one element a stride means nothing, so that anything may stand there: nothing is to
// add it up.
TEST(FromDLPack, StridesOfOneElementMeanNothing) {
  for (const int64_t stride : {INT64_MAX, INT64_MIN, int64_t{0}, int64_t{1} << 59}) {
    Foreign one({1, 0}, {2});
    int64_t shape[] = {1, 2, 1}, strides[] = {stride, 1, stride};
    uint8_t bytes[] = {1, 0};
    std::memcpy(one.tensor.dl_tensor.data, bytes, sizeof bytes);
    DLTensor& tensor = one.tensor.dl_tensor;
    tensor.dtype = {6, 8, 1};
    tensor.ndim = 3, tensor.shape = shape, tensor.strides = strides;
    const NDArray array = FromDLPack(&one.tensor);
    EXPECT_EQ(array.ToVector<bool>(), (std::vector<bool>{true, false}));
    EXPECT_TRUE(array.is_dense());
    EXPECT_EQ(array.Slice(0, 0, -1, -1).Transpose().ToVector<bool>(),
              (std::vector<bool>{true, false}));
  }
}

}  // namespace
}  // namespace tidepool
