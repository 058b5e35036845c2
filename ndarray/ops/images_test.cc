// Convolutions of one and three dimensions beside those of two, transposed ones as adjoints, resizing beside numbers of
// PyTorch, and what they refuse.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution1d.h"
#include "tidepool/ndarray/ops/convolution3d.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/resize.h"
#include "tidepool/ndarray/ops/unary.h"

namespace tidepool {
namespace {

using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

NDArray Random(const Shape& shape, uint64_t stream) {
  return RandomUniform(shape, -1, 1, 31, stream);
}

double Difference(const NDArray& x, const NDArray& y) {
  EXPECT_EQ(x.shape(), y.shape());
  return x.shape() == y.shape() ? Max(Abs(x - y)).Item<float>() : 1e9;
}

double Inner(const NDArray& x, const NDArray& y) {
  return Sum(Cast(x * y, DType::kFloat64)).Item<double>();
}

std::string MessageOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(error.message());
  }
  return "nothing was thrown";
}

TEST(Convolution1d, IsThatOfTwoDimensionsWithAHeightOfOne) {
  const NDArray x = Random({2, 11, 4}, 1), filter = Random({6, 3, 2}, 2), bias = Random({6}, 3);
  Conv1dAttributes a;
  a.stride = 2, a.pad_before = 1, a.pad_behind = 3, a.dilation = 2, a.groups = 2, a.relu = true;
  Conv2dAttributes b;
  b.stride_width = 2, b.pad_left = 1, b.pad_right = 3, b.dilation_width = 2, b.groups = 2,
  b.relu = true;
  const NDArray z = Conv1d(x, filter, &bias, a);
  const auto high = [](const NDArray& array) { return array.ExpandDims(1); };
  EXPECT_EQ(z.shape(), (Shape{2, 6, 6}));
  EXPECT_EQ(Difference(z, Conv2d(high(x), high(filter), &bias, b).Squeeze(1)), 0);
  a.relu = b.relu = false;
  const NDArray g = Random(z.shape(), 4);
  EXPECT_EQ(Difference(Conv1dGradInput(g, filter, x.shape(), a),
                       Conv2dGradInput(high(g), high(filter), {2, 1, 11, 4}, b).Squeeze(1)),
            0);
  NDArray of_filter = Empty(filter.shape());
  Conv1dGradFilterInto(x, g, of_filter, a);
  EXPECT_NEAR(Inner(of_filter, filter), Inner(Conv1d(x, filter, nullptr, a), g), 1e-4);
}

TEST(Convolution1d, TransposedIsTheAdjoint) {
  Conv1dAttributes a;
  a.stride = 3, a.pad_before = 1, a.pad_behind = 2, a.dilation = 2;
  const NDArray x = Random({2, 5, 4}, 1), filter = Random({4, 3, 2}, 2);
  const NDArray z = Conv1dTranspose(x, filter, nullptr, a, /*output_padding=*/1);
  EXPECT_EQ(z.shape(), (Shape{2, 4 * 3 - 3 + 5 + 1, 2}));
  const NDArray g = Random(z.shape(), 3);
  EXPECT_NEAR(Inner(z, g), Inner(x, Conv1dTransposeGradInput(g, filter, a)), 1e-4);
  NDArray of_filter = Empty(filter.shape());
  Conv1dTransposeGradFilterInto(x, g, of_filter, a);
  EXPECT_NEAR(Inner(of_filter, filter), Inner(z, g), 1e-4);
}

// A volume of one image, and filters of one, are images and filters of two dimensions.
TEST(Convolution3d, OfFlatVolumesIsThatOfImages) {
  const NDArray x = Random({2, 6, 7, 4}, 1), filter = Random({6, 3, 2, 2}, 2),
                bias = Random({6}, 3);
  Conv2dAttributes b;
  b.stride_height = 2, b.pad_top = 1, b.pad_right = 2, b.dilation_width = 2, b.groups = 2,
  b.relu = true;
  Conv3dAttributes a;
  a.stride[1] = 2, a.pad_before[1] = 1, a.pad_behind[2] = 2, a.dilation[2] = 2, a.groups = 2,
  a.relu = true;
  const auto deep = [](const NDArray& array) { return array.ExpandDims(1); };
  EXPECT_LT(
      Difference(Conv3d(deep(x), deep(filter), &bias, a).Squeeze(1), Conv2d(x, filter, &bias, b)),
      1e-5);
}

TEST(Convolution3d, TransposedIsTheAdjoint) {
  Conv3dAttributes a;
  a.stride[0] = 2, a.stride[2] = 3, a.pad_before[1] = 1, a.pad_behind[2] = 1, a.dilation[1] = 2,
  a.groups = 2;
  const NDArray x = Random({2, 3, 2, 3, 4}, 1), filter = Random({4, 2, 2, 3, 3}, 2),
                bias = Random({6}, 3);
  const NDArray z = Conv3dTranspose(x, filter, nullptr, a, {1, 0, 2});
  EXPECT_EQ(z.shape(), (Shape{2, 2 * 2 + 2 + 1, 1 - 1 + 3, 2 * 3 - 1 + 3 + 2, 6}));
  const NDArray g = Random(z.shape(), 3);
  EXPECT_NEAR(Inner(z, g), Inner(x, Conv3dTransposeGradInput(g, filter, a)), 1e-3);
  NDArray of_filter = Empty(filter.shape());
  Conv3dTransposeGradFilterInto(x, g, of_filter, a);
  EXPECT_NEAR(Inner(of_filter, filter), Inner(z, g), 1e-3);
  a.relu = true;
  EXPECT_LT(
      Difference(Conv3dTranspose(x, filter, &bias, a, {1, 0, 2}), Maximum(z + bias, Zeros({}))),
      1e-6);
}

// F.interpolate of arange(4) to 6 elements, PyTorch 2.
TEST(Resize, GivesTheNumbersOfPyTorch) {
  const NDArray x = Arange(0, 4).Reshape({1, 1, 4, 1});
  const auto resized = [&](ResizeMode mode, bool align) {
    return Resize2d(x, 1, 6, {mode, align}).ToVector<float>();
  };
  const auto near = [](std::vector<float> values) { return Pointwise(FloatNear(4e-6f), values); };
  EXPECT_THAT(resized(ResizeMode::kNearest, false), near({0, 0, 1, 2, 2, 3}));
  EXPECT_THAT(resized(ResizeMode::kLinear, false),
              near({0, 0.5f, 1.1666666f, 1.8333333f, 2.5f, 3}));
  EXPECT_THAT(resized(ResizeMode::kLinear, true), near({0, 0.6f, 1.2f, 1.8f, 2.4f, 3}));
  EXPECT_THAT(resized(ResizeMode::kCubic, false),
              near({-0.0868056f, 0.40625f, 1.2129630f, 1.7870370f, 2.59375f, 3.0868056f}));
  EXPECT_THAT(resized(ResizeMode::kCubic, true), near({0, 0.504f, 1.248f, 1.752f, 2.496f, 3}));
}

TEST(Resize, ToTheSameSizeIsTheImageAndTheGradientIsTheAdjoint) {
  const NDArray x = Random({2, 5, 7, 3}, 1), g = Random({2, 9, 4, 3}, 2);
  for (const ResizeMode mode : {ResizeMode::kNearest, ResizeMode::kLinear, ResizeMode::kCubic}) {
    for (const bool align : {false, true}) {
      if (align && mode == ResizeMode::kNearest) continue;
      EXPECT_LT(Difference(Resize2d(x, 5, 7, {mode, align}), x), 1e-6);
      EXPECT_NEAR(Inner(Resize2d(x, 9, 4, {mode, align}), g),
                  Inner(x, Resize2dGrad(g, 5, 7, {mode, align})), 1e-4);
    }
  }
}

TEST(ImageOperators, RefuseWhatDoesNotFit) {
  EXPECT_EQ(MessageOf([] {
              Conv1d(Zeros({3, 4}), Zeros({2, 3, 4}));
            }),
            "Op [conv1d]: input has shape [3, 4], expected rank 3");
  EXPECT_THAT(MessageOf([] {
                Conv1d(Zeros({1, 3, 4}), Zeros({2, 3, 5}));
              }),
              HasSubstr("Op [conv2d]: input [1, 1, 3, 4]"));
  EXPECT_EQ(MessageOf([] {
              Conv3d(Zeros({3, 4, 5, 6}), Zeros({2, 3, 4, 4, 2}));
            }),
            "Op [conv3d]: input has shape [3, 4, 5, 6], expected rank 5");
  EXPECT_THAT(MessageOf([] {
                Conv3d(Zeros({1, 3, 3, 3, 4}), Zeros({2, 1, 1, 1, 3}));
              }),
              HasSubstr("expected 3 channels for each group"));
  EXPECT_THAT(MessageOf([] {
                Conv3d(Zeros({1, 1, 3, 3, 1}), Zeros({2, 2, 1, 1, 1}));
              }),
              HasSubstr("depth"));
  EXPECT_THAT(
      MessageOf([] {
        Conv3dTranspose(Zeros({1, 1, 1, 1, 1}), Zeros({1, 1, 1, 1, 1}), nullptr, {}, {0, 0, 1});
      }),
      HasSubstr("output padding of the width is 1, expected from 0 to less than the stride, 1"));
  EXPECT_THAT(MessageOf([] {
                Resize2d(Zeros({1, 2, 2, 1}), 0, 3);
              }),
              HasSubstr("Op [resize2d]: input has shape [1, 2, 2, 1], to height 0"));
  EXPECT_THAT(MessageOf([] {
                Resize2d(Zeros({1, 2, 2, 1}), 2, 3, {ResizeMode::kNearest, true});
              }),
              HasSubstr("align_corners"));
}

}  // namespace
}  // namespace tidepool
