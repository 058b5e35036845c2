// What is copied to the host, read only, refused, or fails while arrays are another library's too.
#include <climits>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/simulated/dlpack_library.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::HasSubstr;

const Device kDevice = SimulatedDevice::kDevice;

TEST_F(DLPackOnDeviceTest, HostCopiesAreAsOfEachAccessWhileOthersMayWrite) {
  TheDevice().set_asynchronous(11);
  Stream stream;
  {
    NDArray x = Full({kElements}, 1, DType::kFloat32, Place::On(kDevice));
    EXPECT_EQ(x.At<float>({0}), 1);
    x.mutable_data<float>()[1] = 50;  // on the host, newer than the device's
    DLManagedTensorVersioned* const tensor = ToDLPackVersioned(x, {.stream = stream.number()});
    stream.Add(DataOf(tensor), 1);
    stream.queue().Wait();
    EXPECT_EQ(x.data<float>()[1], 51);
    EXPECT_EQ(x.At<float>({0}), 2);
    EXPECT_EQ(x.data<float>()[0], 2);  // fresh on both sides
    stream.Add(DataOf(tensor), 1);
    tensor->deleter(tensor);
    EXPECT_EQ(x.data<float>()[1], 52);
    // Taken over: what was never written by us has been written.
    Foreign foreign;
    TheDevice().Fill(reinterpret_cast<std::byte*>(foreign.data), std::byte{0},
                     kElements * sizeof(float));
    const NDArray y = FromDLPack(&foreign.tensor, stream.number());
    EXPECT_EQ(y.data<float>()[3], 0);
    stream.Add(foreign.data, 9);
    stream.queue().Wait();
    EXPECT_EQ(y.data<float>()[3], 9);
    EXPECT_EQ(y.ToVector<float>(), All(9));
  }
}

TEST_F(DLPackOnDeviceTest, WhatIsReadOnlyIsNotWritten) {
  Foreign foreign;
  TheDevice().Fill(reinterpret_cast<std::byte*>(foreign.data), std::byte{0},
                   kElements * sizeof(float));
  foreign.tensor.flags = kDLPackReadOnly;
  {
    NDArray y = FromDLPack(&foreign.tensor);
    const auto refused = [](const std::function<void()>& call) {
      const Error error = ErrorOf(call);
      EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition) << error.message();
      EXPECT_THAT(error.message(),
                  HasSubstr("was imported to be read only; Dup() makes one of its own"));
    };
    refused([&] { y += 1; });
    refused([&] { y.mutable_data<float>(); });
    refused([&] { HostView<float> view(y); });
    refused([&] { CopyInto(Ones({kElements}), y); });
    NDArray slice = y.Slice(0, 1, 3);
    refused([&] { AddInto(y.Slice(0, 3, 5), y.Slice(0, 3, 5), slice); });
    EXPECT_EQ(Add(y, y).ToVector<float>(), All(0));
    EXPECT_THAT(ErrorOf([&] { ToDLPack(y); }).message(), HasSubstr("read only"));
    DLManagedTensorVersioned* const tensor = ToDLPackVersioned(y);
    EXPECT_EQ(tensor->flags, kDLPackReadOnly);
    tensor->deleter(tensor);
    DLManagedTensor* const copy = ToDLPack(y, {.copy = true});
    copy->deleter(copy);
  }
  EXPECT_EQ(foreign.deleted, 1);
}

TEST_F(DLPackOnDeviceTest, Errors) {
  const NDArray x = Full({kElements}, 1, DType::kFloat32, Place::On(kDevice));
  const auto exported = [&](std::optional<int64_t> stream) {
    return std::string(ErrorOf([&] { ToDLPackVersioned(x, {.stream = stream}); }).message());
  };
  EXPECT_EQ(exported(0),
            "to_dlpack: found stream 0 of simulated:0, expected the address of a queue of its "
            "interface, or -1");
  EXPECT_THAT(exported(-2), HasSubstr("found stream -2 of simulated:0"));
  EXPECT_THAT(ErrorOf([&] { ToDLPack(Ones({2}), {.stream = 1}); }).message(),
              HasSubstr("found stream 1 of host, expected none, as it has no streams, or -1"));
  Foreign foreign;
  const auto imported = [&](const std::function<void(DLManagedTensorVersioned&)>& change) {
    DLManagedTensorVersioned tensor = foreign.tensor;
    change(tensor);
    const Error error = ErrorOf([&] { FromDLPack(&tensor); });
    EXPECT_EQ(foreign.deleted, 0) << "a tensor that was refused is still its owner's";
    return std::to_string(static_cast<int>(error.code())) + " " + std::string(error.message());
  };
  EXPECT_EQ(imported([](auto& tensor) {
              tensor.version = {2, 0};
            }),
            "12 from_dlpack: found a tensor of DLPack version 2.0, expected 1.x; its other fields "
            "may lie "
            "elsewhere");
  EXPECT_THAT(
      imported([](auto& tensor) { tensor.dl_tensor.device.device_type = kDLVulkan; }),
      HasSubstr("12 from_dlpack: found a tensor on device type 7, expected one of 1 (host), 2 "
                "(cuda), 12 (simulated) or 3 (page-locked host memory of CUDA)"));
  EXPECT_THAT(imported([](auto& tensor) { tensor.dl_tensor.device.device_type = kDLCUDA; }),
              HasSubstr("12 from_dlpack: no memory provider is linked for cuda:0; add"));
  EXPECT_THAT(imported([](auto& tensor) { tensor.dl_tensor.device.device_id = 9; }),
              HasSubstr("5 from_dlpack: there is no device simulated:9"));
  EXPECT_THAT(
      imported([](auto& tensor) { tensor.dl_tensor.device.device_id = 77; }),
      HasSubstr("3 from_dlpack: found a tensor on number 77 of simulated, expected 0 to 15"));
  for (const int id : {-1, 1, 16, INT_MAX, INT_MIN}) {
    EXPECT_THAT(imported([&](auto& tensor) {
                  tensor.dl_tensor.device = {kDLCPU, id};
                }),
                HasSubstr("3 from_dlpack: found a tensor on number " + std::to_string(id) +
                          " of the host, expected 0"));
    if (id == 1) continue;
    EXPECT_THAT(imported([&](auto& tensor) {
                  tensor.dl_tensor.device = {kDLCUDAHost, id};
                }),
                HasSubstr("number " + std::to_string(id) +
                          " of CUDA's page-locked host memory, expected 0 to 15"));
    EXPECT_THAT(
        imported([&](auto& tensor) { tensor.dl_tensor.device.device_id = id == 1 ? -1 : id; }),
        HasSubstr("3 from_dlpack: found a tensor on number"));
  }
  EXPECT_THAT(ErrorOf([&] { FromDLPack(&foreign.tensor, 0); }).message(),
              HasSubstr("from_dlpack: found stream 0 of simulated:0"));
  EXPECT_EQ(DLPackStreamOf(DeviceQueue::New(kDevice)) > 2, true);
  EXPECT_THAT(ErrorOf([] { DLPackStreamOf(DeviceQueue::First(Host())); }).message(),
              HasSubstr("queue 0 of host has no native one to name"));
}

// Of every request of the device that fails: the error is thrown and nothing is taken over or given away; a deleter
// goes on quietly and still comes behind the consumer.
TEST_F(DLPackOnDeviceTest, TheDeviceRefuses) {
  for (int request = 0; request < 12; ++request) {
    TheDevice().set_asynchronous(static_cast<uint64_t>(request) + 1);
    {
      FailingProvider device(kDevice);
      Stream theirs;
      NDArray x = Full({kElements}, 1, DType::kFloat32, Place::On(kDevice));
      Foreign foreign;
      DLManagedTensorVersioned* tensor = nullptr;
      NDArray y;
      device.faults().FailRequest(request);
      const Error given =
          ErrorOf([&] { tensor = ToDLPackVersioned(x, {.stream = theirs.number()}); });
      EXPECT_EQ(tensor == nullptr, given.code() == absl::StatusCode::kInternal) << given.message();
      const Error taken = ErrorOf([&] { y = FromDLPack(&foreign.tensor, theirs.number()); });
      EXPECT_EQ(y.is_defined(), taken.code() == absl::StatusCode::kOk) << taken.message();
      y = NDArray();
      if (taken.code() == absl::StatusCode::kOk) {
        EXPECT_EQ(foreign.deleted, 1);
      }
      device.faults().Clear();
      std::vector<float> seen;
      if (tensor != nullptr) {
        x += 1;
        const DeviceQueue open = theirs.queue();
        device.ComputeAfter(open.number(), device.ComputePoint(0));  // as the program would
        theirs.Add(DataOf(tensor), 5);
        device.faults().FailRequest(request / 2, 1);
        tensor->deleter(tensor);
        device.faults().Clear();
        EXPECT_EQ(Add(x, x).ToVector<float>(), All(14));
      }
    }
    TheDevice().Reset();
  }
}

}  // namespace
}  // namespace tidepool
