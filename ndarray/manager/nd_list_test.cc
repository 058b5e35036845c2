#include "tidepool/ndarray/manager/nd_list.h"

#include <functional>
#include <string>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"

namespace tidepool {
namespace {

std::string MessageOf(const std::function<void()>& call, absl::StatusCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return std::string(error.message());
  }
  return "nothing was thrown";
}

TEST(NdListTest, KeepsOrderAndNames) {
  NDList list = {Ones({2, 3}), Ones({4}, DType::kInt64)};
  list.SetName(0, "x");
  list.Add(Ones({1}), "y");
  EXPECT_EQ(list.size(), 3u);
  EXPECT_EQ(list.name(0), "x");
  EXPECT_EQ(list.name(1), "");
  EXPECT_EQ(list[1].shape(), (Shape{4}));
  EXPECT_EQ(list.At(2).shape(), (Shape{1}));
  EXPECT_EQ(list.Get("y").raw_data(), list[2].raw_data());
  EXPECT_TRUE(list.Has("x"));
  EXPECT_FALSE(list.Has("z"));
  EXPECT_EQ(list.ToString(), "x f32 [2, 3], 1: i64 [4], y f32 [1]");
  int64_t elements = 0;
  for (const NDArray& array : std::as_const(list)) elements += array.NumElements();
  EXPECT_EQ(elements, 11);
  EXPECT_EQ(list.arrays().size(), 3u);
}

TEST(NdListTest, OfTwoThatHaveANameTheFirst) {
  NDList list;
  list.Add(Ones({1}), "x");
  list.Add(Ones({2}), "x");
  EXPECT_EQ(list.Get("x").shape(), (Shape{1}));
}

TEST(NdListTest, Errors) {
  NDList list = {Ones({2, 3}), Ones({4})};
  list.SetName(1, "labels");
  EXPECT_EQ(MessageOf([&] { list.At(2); }, absl::StatusCode::kInvalidArgument),
            "NDList: array 2 of a list of 2");
  EXPECT_EQ(MessageOf([&] { list.Get("label"); }, absl::StatusCode::kNotFound),
            "NDList: no array is named \"label\"; there are 0: f32 [2, 3], labels f32 [4]");
  EXPECT_EQ(MessageOf([&] { NDList().Get("x"); }, absl::StatusCode::kNotFound),
            "NDList: no array is named \"x\"; there are none");
  EXPECT_EQ(MessageOf([&] { list.Single(); }, absl::StatusCode::kInvalidArgument),
            "NDList: expected one array, found 2");
  EXPECT_EQ(MessageOf([&] { NDList().Single(); }, absl::StatusCode::kInvalidArgument),
            "NDList: expected one array, found 0");
}

TEST(NdListTest, CopiesShareTheArraysAndSingleIsTheOnlyOne) {
  NDList list = {Ones({2})};
  NDList copy = list;
  copy[0].mutable_data<float>()[0] = 2;
  EXPECT_EQ(list.Single().At<float>({0}), 2);
  copy[0] = Ones({3});  // the handle, not the array
  EXPECT_EQ(list.Single().shape(), (Shape{2}));
}

TEST(NdListTest, CloseClosesAllAndEmptiesTheList) {
  NDList list = {Ones({2}), Ones({3}), Zeros({0})};
  const NDArray x = list[0], y = list[1];
  list.SetName(0, "x");
  list.Close();
  EXPECT_TRUE(list.empty());
  EXPECT_FALSE(list.Has("x"));
  EXPECT_TRUE(x.is_closed() && y.is_closed());
  list.Close();
}

}  // namespace
}  // namespace tidepool
