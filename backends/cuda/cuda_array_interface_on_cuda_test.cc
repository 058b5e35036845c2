// Arrays of an emulated device given to others and taken from them by the CUDA array interface.
#include "tidepool/ndarray/io/cuda_array_interface.h"

#include <cstdint>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cuda/emulation/emulated_cuda.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr Device kDevice{DeviceType::kCuda, 0};

NDArray OnDevice(const Shape& shape, DType dtype = DType::kFloat32, double value = 1) {
  return Full(shape, value, dtype, Place::On(kDevice));
}

TEST(CudaArrayInterfaceTest, SaysWhatTheArrayIs) {
  const NDArray x = OnDevice({2, 3});
  const CudaArrayExport given = ToCudaArrayInterface(x);
  const CudaArrayInterface& fields = given.fields();
  EXPECT_THAT(fields.shape, ElementsAre(2, 3));
  EXPECT_EQ(fields.data, reinterpret_cast<uint64_t>(x.raw_data()));
  EXPECT_EQ(fields.stream, DLPackStreamOf(DeviceQueue::First(kDevice)));
  EXPECT_EQ(fields.ToString(),
            "{'shape': (2, 3), 'typestr': '<f4', 'data': (" + std::to_string(fields.data) +
                ", False), 'strides': None, 'stream': " + std::to_string(*fields.stream) +
                ", 'version': 3}");
  const CudaArrayExport column =
      ToCudaArrayInterface(x.Transpose(), {.stream = 1, .read_only = true});
  EXPECT_EQ(column.fields().ToString(),
            "{'shape': (3, 2), 'typestr': '<f4', 'data': (" + std::to_string(fields.data) +
                ", True), 'strides': (4, 12), 'stream': 1, 'version': 3}");
  const CudaArrayExport free = ToCudaArrayInterface(OnDevice({5}, DType::kUInt8), {.stream = -1});
  EXPECT_THAT(free.fields().ToString(), HasSubstr("'shape': (5,), 'typestr': '|u1'"));
  EXPECT_THAT(free.fields().ToString(), HasSubstr("'stream': None"));
}

TEST(CudaArrayInterfaceTest, TypesHaveNumPysNames) {
  const std::pair<DType, const char*> names[] = {
      {DType::kFloat32, "<f4"}, {DType::kFloat64, "<f8"}, {DType::kFloat16, "<f2"},
      {DType::kInt8, "|i1"},    {DType::kUInt8, "|u1"},   {DType::kInt16, "<i2"},
      {DType::kUInt16, "<u2"},  {DType::kInt32, "<i4"},   {DType::kUInt32, "<u4"},
      {DType::kInt64, "<i8"},   {DType::kUInt64, "<u8"},  {DType::kBool, "|b1"}};
  for (const auto& [dtype, name] : names) {
    const NDArray x = OnDevice({3, 4}, dtype);
    const CudaArrayExport given = ToCudaArrayInterface(x);
    EXPECT_EQ(given.fields().typestr, name);
    // And are known when they come back.
    const NDArray y = FromCudaArrayInterface(given.fields(), kDevice, nullptr);
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.shape(), x.shape());
    EXPECT_EQ(y.raw_data(), x.raw_data());
  }
}

// The emulation's streams take turns as the seed says; who is not ordered comes early or late.
TEST(CudaArrayInterfaceTest, AConsumerBehindTheStreamSeesOurWorkAndTheBytesStay) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    void* theirs = nullptr;
    ASSERT_EQ(cudaMalloc(&theirs, 4096), cudaSuccess);
    {
      NDArray x = OnDevice({1024}, DType::kFloat32, 2);
      for (int i = 0; i < 5; ++i) x = Add(x, x);
      const CudaArrayExport given = ToCudaArrayInterface(x, {.stream = 1});
      x.Close();
      ASSERT_EQ(given.fields().stream, 1);
      cudaMemcpyAsync(theirs, reinterpret_cast<void*>(given.fields().data), 4096,
                      cudaMemcpyDeviceToDevice, nullptr);
    }
    for (int i = 0; i < 3; ++i) OnDevice({1024}, DType::kFloat32, 9);  // where it was, perhaps
    std::vector<float> seen(1024);
    ASSERT_EQ(cudaMemcpy(seen.data(), theirs, 4096, cudaMemcpyDeviceToHost), cudaSuccess);
    EXPECT_EQ(seen, std::vector<float>(1024, 64)) << "seed " << seed;
    cudaFree(theirs);
  }
}

TEST(CudaArrayInterfaceTest, WeComeBehindTheProducersStreamAndLetGoOnce) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    EmulatedCuda::Get().set_seed(seed);
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    void* theirs = nullptr;
    ASSERT_EQ(cudaMalloc(&theirs, 4096), cudaSuccess);
    const NDArray source = OnDevice({1024}, DType::kFloat32, 3);
    source.ToVector<float>();
    for (int i = 0; i < 5; ++i) cudaMemsetAsync(theirs, i, 4096, stream);
    cudaMemcpyAsync(theirs, source.raw_data(), 4096, cudaMemcpyDeviceToDevice, stream);
    int released = 0;
    CudaArrayInterface fields;
    fields.shape = {16, 32};
    fields.typestr = "<f4";
    fields.data = reinterpret_cast<uint64_t>(theirs);
    fields.strides = {256, 8};  // every second
    fields.stream = static_cast<int64_t>(reinterpret_cast<intptr_t>(stream));
    {
      const NDArray y = FromCudaArrayInterface(fields, kDevice, [&] { ++released; });
      EXPECT_EQ(Add(y, y).ToVector<float>(), std::vector<float>(512, 6)) << "seed " << seed;
      EXPECT_EQ(released, 0);
    }
    EXPECT_EQ(released, 1);
    fields.read_only = true;
    NDArray constant = FromCudaArrayInterface(fields, kDevice, [&] { ++released; });
    EXPECT_THROW(AddInto(constant, constant, constant), Error);
    constant.Close();
    EXPECT_EQ(released, 2);
    constant = NDArray();
    EXPECT_EQ(released, 2);
    EmulatedCuda::Get().Finish();
    cudaFree(theirs);
    cudaStreamDestroy(stream);
  }
}

TEST(CudaArrayInterfaceTest, WhatCannotBeIsRefusedAndNotLetGo) {
  int released = 0;
  const NDArray x = OnDevice({4});
  const CudaArrayExport given = ToCudaArrayInterface(x);
  const auto refusal = [&](auto&& change) {
    CudaArrayInterface fields = given.fields();
    change(fields);
    return CatchStatus([&] { FromCudaArrayInterface(fields, kDevice, [&] { ++released; }); })
        .ToString();
  };
  EXPECT_THAT(refusal([](auto& f) { f.typestr = ">f4"; }),
              HasSubstr("UNIMPLEMENTED: from_cuda_array_interface: found typestr '>f4'"));
  EXPECT_THAT(refusal([](auto& f) { f.typestr = "<f"; }), HasSubstr("found typestr '<f'"));
  EXPECT_THAT(refusal([](auto& f) { f.typestr = ""; }), HasSubstr("found typestr ''"));
  EXPECT_THAT(refusal([](auto& f) { f.version = 4; }),
              HasSubstr("found version 4, expected 2 or 3"));
  EXPECT_THAT(refusal([](auto& f) {
                f.strides = {{4, 4}};
              }),
              HasSubstr("found 2 strides, expected 1"));
  EXPECT_THAT(refusal([](auto& f) { f.strides = {{6}}; }),
              HasSubstr("found a stride of 6 bytes, expected a multiple of 4"));
  EXPECT_THAT(refusal([](auto& f) { f.stream = 0; }), HasSubstr("found stream 0"));
  EXPECT_THAT(refusal([](auto& f) { f.shape = {-1}; }), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_THAT(refusal([](auto& f) { f.data = 0; }), HasSubstr("INVALID_ARGUMENT"));
  EXPECT_EQ(released, 0);
  EXPECT_THAT(
      CatchStatus([&] { FromCudaArrayInterface(given.fields(), Host(), nullptr); }).ToString(),
      HasSubstr("expected one of a CUDA device"));
  EXPECT_THAT(CatchStatus([] { ToCudaArrayInterface(Ones({2})); }).ToString(),
              HasSubstr("found an array of host"));
  EXPECT_THAT(CatchStatus([] { ToCudaArrayInterface(OnDevice({2}, DType::kBFloat16)); }).ToString(),
              HasSubstr("bf16"));
}

TEST(CudaArrayInterfaceTest, WithoutElementsThereIsNoAddress) {
  const CudaArrayExport given = ToCudaArrayInterface(OnDevice({0, 3}));
  EXPECT_EQ(given.fields().data, 0u);
  EXPECT_FALSE(given.fields().strides.has_value());
  int released = 0;
  EXPECT_EQ(FromCudaArrayInterface(given.fields(), kDevice, [&] { ++released; }).shape(),
            Shape({0, 3}));
  EXPECT_EQ(released, 1);
}

}  // namespace
}  // namespace tidepool
