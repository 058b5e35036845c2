// Handles that show nothing: moved from, closed, asked for an axis they lack; and memory that is
// handed in.
#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool {
namespace {

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    return error.message();
  }
  return "nothing was thrown";
}

// Everything that may be asked of an array that is not there.
void ExpectUndefined(NDArray& x) {
  EXPECT_FALSE(x.is_defined());
  EXPECT_FALSE(x.buffer());
  EXPECT_EQ(x.raw_data(), nullptr);
  EXPECT_EQ(x.rank(), 0);
  EXPECT_EQ(x.dtype(), NDArray().dtype());
  EXPECT_EQ(x.NumElements(), NDArray().NumElements());
  EXPECT_EQ(x.device(), Host());
  EXPECT_TRUE(x.IsInScope());
  x.Close();
  x.MarkWritten();
  EXPECT_FALSE(x.IsAttached());
  EXPECT_FALSE(x.is_closed());
  EXPECT_EQ(MessageOf([&] { x.At<float>({0}); }), "Op [at] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { x.Dup(); }), "Op [dup] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { x.mutable_data<float>(); }),
            "Op [mutable_data] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { x += 1; }), "Op [add] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { Ones({4}) + x; }), "Op [add] Y argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { x.Reshape({2, 2}); }), "Op [reshape] X argument is an undefined array");
  EXPECT_EQ(MessageOf([&] { (void)x.dim(0); }), "dim: axis 0 of an undefined array");
}

TEST(NDArrayHandles, WhatWasMovedFromIsUndefined) {
  NDArray numbers = Ones({4}, DType::kInt64);
  NDArray taken = std::move(numbers);
  ExpectUndefined(numbers);  // NOLINT: that is the point
  numbers = std::move(taken);
  ExpectUndefined(taken);  // NOLINT
  EXPECT_EQ(numbers.dtype(), DType::kInt64);
  NDArray x = Arange(0, 4);
  const std::byte* const bytes = x.raw_data();
  NDArray made = std::move(x);
  ExpectUndefined(x);  // NOLINT: that is the point
  EXPECT_EQ(made.raw_data(), bytes);
  NDArray assigned = Ones({2, 3});
  assigned = std::move(made);
  ExpectUndefined(made);  // NOLINT
  EXPECT_EQ(assigned.shape(), (Shape{4}));
  EXPECT_EQ(assigned.At<float>({3}), 3);
  // Its memory is another array's by now, which it must not reach.
  assigned = NDArray();
  NDArray next = Full({4}, 7);
  EXPECT_EQ(MessageOf([&] { x *= 2; }), "Op [multiply] X argument is an undefined array");
  EXPECT_EQ(next.At<float>({0}), 7);
  x = std::move(next);
  EXPECT_EQ(x.At<float>({3}), 7);
  NDArray& same = x;
  x = std::move(same);
  EXPECT_EQ(x.At<float>({3}), 7);
  NDArray empty = Zeros({0, 3});
  const NDArray moved = std::move(empty);
  EXPECT_EQ(moved.shape(), (Shape{0, 3}));
  ExpectUndefined(empty);  // NOLINT
}

TEST(NDArrayHandles, AnAxisThatIsNotThereIsAnError) {
  const NDArray x = Ones({2, 3});
  EXPECT_EQ(x.dim(0), 2);
  EXPECT_EQ(x.dim(1), 3);
  EXPECT_EQ(MessageOf([&] { (void)x.dim(2); }),
            "dim: axis 2 of an array of shape [2, 3], expected 0 to 1");
  EXPECT_EQ(MessageOf([&] { (void)x.dim(-1); }),
            "dim: axis -1 of an array of shape [2, 3], expected 0 to 1");
  EXPECT_EQ(MessageOf([&] { (void)Ones({3}).dim(100); }),
            "dim: axis 100 of an array of shape [3], expected 0 to 0");
  EXPECT_EQ(MessageOf([&] { (void)Full({}, 1).dim(0); }),
            "dim: axis 0 of an array of shape [], which has none");
  EXPECT_EQ(MessageOf([&] { (void)NDArray().dim(0); }), "dim: axis 0 of an undefined array");
}

TEST(NDArrayHandles, BuffersAreAlignedToTheirElements) {
  alignas(64) std::array<std::byte, 64> memory = {};
  const auto at = [&](size_t offset) {
    return BufferHandle(NewImportedBuffer(memory.data() + offset, 32, nullptr, nullptr));
  };
  EXPECT_TRUE(NDArray(at(1), {32}, DType::kInt8).is_defined());
  EXPECT_TRUE(NDArray(at(4), {8}, DType::kFloat32).is_defined());
  for (const DType dtype : {DType::kFloat16, DType::kFloat32, DType::kFloat64, DType::kInt64}) {
    const std::string message = MessageOf([&] { NDArray(at(1), {2}, dtype); });
    EXPECT_NE(message.find("the buffer begins at "), std::string::npos) << message;
  }
  const std::string message = MessageOf([&] { NDArray(at(4), {2}, DType::kFloat64); });
  EXPECT_NE(message.find("expected a multiple of 8"), std::string::npos) << message;
}

}  // namespace
}  // namespace tidepool
