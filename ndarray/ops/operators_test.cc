// What the operator functions refuse, in the words users read, and the values they work out
// themselves: folding of axes, empty sums, labels in views, conversions.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/ndarray/ops/updaters.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr DType kI64 = DType::kInt64;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}
NDArray I(std::vector<int64_t> values) {
  return FromValues(absl::MakeConstSpan(values), {static_cast<int64_t>(values.size())});
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }
std::vector<int64_t> Ints(const NDArray& x) { return x.ToVector<int64_t>(); }

// ---- elementwise ----------------------------------------------------------------------------

TEST(Elementwise, ShapesAndTypesAreNamed) {
  NDArray x = Ones({2, 3}), z = Ones({2, 2});
  EXPECT_EQ(Refusal([&] { x + Ones({2}); }),
            "Op [add]: X has shape [2, 3], Y has shape [2]; sizes 3 and 2 do not broadcast");
  EXPECT_EQ(Refusal([&] { MultiplyInto(x, x, z); }),
            "Op [multiply]: Z has shape [2, 2], expected [2, 3]");
  EXPECT_EQ(Refusal([&] {
              z /= Ones({3, 2, 2});
            }),
            "Op [divide]: Z has shape [2, 2], expected [3, 2, 2]");
  NDArray ints = Zeros({2, 3}, kI64);
  EXPECT_EQ(Refusal([&] { AddInto(x, x, ints); }),
            "Op [add]: X is f32, Y is f32, Z is i64, expected Z of type f32 or another float type");
  EXPECT_EQ(Refusal([&] { ReluInto(x, ints); }),
            "Op [relu]: X is f32, Z is i64, expected Z of type f32 or another float type");
  EXPECT_EQ(Refusal([&] { ScaleShiftInto(x, 1, 2, z); }),
            "Op [scale_shift]: Z has shape [2, 2], expected [2, 3]");
  EXPECT_EQ(Refusal([&] { ReluGradInto(x, z, x); }),
            "Op [relu_grad]: dZ has shape [2, 2], expected [2, 3]");
  EXPECT_EQ(Refusal([&] { CopyInto(x, z); }), "Op [copy]: Z has shape [2, 2], expected [2, 3]");
}

TEST(Elementwise, IntegerDivisionByZeroIsRefusedBeforeAnythingIsWritten) {
  NDArray x = I({4, 6}), zero = I({2, 0});
  EXPECT_EQ(Refusal([&] { x / zero; }),
            "Op [divide]: Y of shape [2] has a zero; integer division by zero is not defined");
  EXPECT_EQ(Refusal([&] { x /= zero; }),
            "Op [divide]: Y of shape [2] has a zero; integer division by zero is not defined");
  EXPECT_THAT(Ints(x), ElementsAre(4, 6));
  // Only the divisor's own elements count, not what lies between them.
  const NDArray even = FromValues(absl::MakeConstSpan(std::vector<int64_t>{2, 0, 3, 0}), {2, 2});
  EXPECT_THAT(Ints(x / even.Index(1, 0)), ElementsAre(2, 2));
  EXPECT_THAT(Refusal([&] { x / even.Transpose().Index(0, 1); }), testing::HasSubstr("has a zero"));
  EXPECT_THAT(Ints(Empty({0}, kI64) / Empty({0}, kI64)), IsEmpty());
  EXPECT_EQ((Empty({0, 2}, kI64) / zero).shape(), (Shape{0, 2}));  // of nothing by a zero
  EXPECT_THAT(Values(Ones({1}) / Zeros({1})), ElementsAre(INFINITY));
}

TEST(Elementwise, IntegersByNumbers) {
  NDArray x = I({49, -50, int64_t{1} << 62});
  x /= 49;
  EXPECT_THAT(Ints(x), ElementsAre(1, -1, (int64_t{1} << 62) / 49));
  x += 2;
  x *= 3;
  EXPECT_THAT(Ints(x), ElementsAre(9, 3, ((int64_t{1} << 62) / 49 + 2) * 3));
  EXPECT_EQ(Refusal([&] { x /= 2.5; }),
            "Op [divide]: Y is 2.5, expected a whole number that i64 holds");
  EXPECT_EQ(Refusal([&] { x /= 0; }),
            "Op [divide]: Y of shape [] has a zero; integer division by zero is not defined");
}

TEST(Elementwise, CopiesConvert) {
  NDArray ints = Empty({5}, kI64);
  const std::vector<float> floats = {1.9f, -1.9f, NAN, INFINITY, 1e30f};
  CopyInto(FromValues(floats, {5}), ints);
  EXPECT_THAT(Ints(ints), ElementsAre(1, -1, INT64_MIN, INT64_MIN, INT64_MIN));
  NDArray back = Empty({2});
  CopyInto(I({3, -4}), back);
  EXPECT_THAT(Values(back), ElementsAre(3, -4));
}

TEST(Elementwise, BroadcastInPlace) {
  NDArray x = Zeros({2, 3});
  x += Arange(0, 3);
  x += Arange(0, 2).Reshape({2, 1});
  EXPECT_THAT(Values(x), ElementsAre(0, 1, 2, 1, 2, 3));
}

// ---- matmul ---------------------------------------------------------------------------------

TEST(MatMulOp, ShapesAreNamed) {
  const NDArray x = Ones({2, 3}), y = Ones({4, 5});
  EXPECT_EQ(Refusal([&] { MatMul(x, y); }),
            "Op [matmul]: X has shape [2, 3], Y has shape [4, 5]; inner sizes 3 and 4 differ");
  EXPECT_EQ(Refusal([&] { MatMul(x, y, {.transpose_x = true, .transpose_y = true}); }),
            "Op [matmul]: X has shape [2, 3] (transposed), Y has shape [4, 5] (transposed); inner "
            "sizes 2 and 5 differ");
  EXPECT_EQ(Refusal([&] { MatMul(Ones({3}), y); }),
            "Op [matmul]: X has shape [1, 3], Y has shape [4, 5]; inner sizes 3 and 4 differ");
  EXPECT_EQ(Refusal([&] {
              MatMul(Ones({2, 4}, DType::kBool), Ones({4, 5}, DType::kBool));
            }).substr(0, 52),
            "Op [matmul]: operands are bool, expected numbers; Ca");
  const NDArray bias = Ones({4});
  EXPECT_EQ(Refusal([&] {
              MatMul(Ones({2, 4}), y, {}, &bias);
            }),
            "Op [matmul]: bias has shape [4], expected [5]");
  EXPECT_EQ(Refusal([&] {
              MatMul(Ones({2, 4}), y, {.accumulate = true});
            }),
            "Op [matmul]: accumulate needs an output array; use MatMulInto");
  NDArray z = Ones({5, 2});
  EXPECT_EQ(Refusal([&] {
              MatMulInto(Ones({2, 4}), y, z);
            }),
            "Op [matmul]: Z has shape [5, 2], expected [2, 5]");
}

TEST(MatMulOp, TypesPromoteAndIntegersWrap) {
  const NDArray x = Full({2, 2}, 100, DType::kInt8), y = Full({2, 2}, 200, DType::kUInt8);
  EXPECT_EQ(MatMul(x, x).ToString(), "[[32, 32],\n [32, 32]]");  // 20000 modulo 2^8
  EXPECT_EQ(MatMul(x, y).dtype(), DType::kInt16);
  EXPECT_EQ(MatMul(x, y).At<int16_t>({1, 1}), static_cast<int16_t>(40000));
  EXPECT_EQ(MatMul(Full({2}, 3, kI64), Full({2}, 0.5)).Item<double>(), 3);
  const NDArray bias = Full({2}, 1, DType::kInt16);
  NDArray z = Full({2, 2}, 7, DType::kInt16);
  MatMulInto(x, y, z, {.accumulate = true}, &bias);
  EXPECT_EQ(z.At<int16_t>({0, 1}), static_cast<int16_t>(40008));
  EXPECT_EQ(Refusal([&] { MatMulInto(x, x, z); }), "Op [matmul]: Z is i16, expected i8");
}

// The ReLU is of the result: unsigned numbers have no sign, and wrapped ones theirs.
TEST(MatMulOp, ReluOfIntegersIsThatOfTheResult) {
  const auto relu = [](int64_t x, int64_t y, DType dtype) {
    return Cast(MatMul(Full({1, 1}, x, dtype), Full({1, 1}, y, dtype), {.relu = true}),
                DType::kUInt64)
        .Item<uint64_t>();
  };
  EXPECT_EQ(relu(-5, 1, DType::kUInt64), UINT64_MAX - 4);
  EXPECT_EQ(relu(3000000000, 1, DType::kUInt32), 3000000000u);
  EXPECT_EQ(relu(50000, 1, DType::kUInt16), 50000u);
  EXPECT_EQ(relu(300, 150, DType::kInt16), 0u);  // 45000 wraps to -20536
  EXPECT_EQ(relu(-300, 150, DType::kInt16), 20536u);
  EXPECT_EQ(relu(16, 10, DType::kInt8), 0u);  // 160 wraps to -96
  EXPECT_EQ(relu(-3, 5, DType::kInt32), 0u);
  NDArray z = Full({1, 1}, 40000, DType::kUInt16);
  MatMulInto(Full({1, 1}, 1, DType::kUInt16), Full({1, 1}, 5, DType::kUInt16), z,
             {.relu = true, .accumulate = true});
  EXPECT_EQ(z.At<uint16_t>({0, 0}), 40005);
}

// ---- convolution and pooling ----------------------------------------------------------------

TEST(ConvolutionOp, OutputShape) {
  Conv2dAttributes a;
  EXPECT_EQ(Conv2dOutputShape({8, 28, 28, 1}, {20, 5, 5, 1}, a), (Shape{8, 24, 24, 20}));
  a.stride_height = 2, a.pad_top = 1, a.pad_bottom = 2, a.dilation_width = 3;
  EXPECT_EQ(Conv2dOutputShape({1, 10, 10, 2}, {4, 3, 3, 2}, a), (Shape{1, 6, 4, 4}));
  EXPECT_EQ(MaxPool2dOutputShape({8, 25, 24, 3}, {}), (Shape{8, 12, 12, 3}));
}

TEST(ConvolutionOp, Refusals) {
  const NDArray image = Ones({1, 4, 4, 2}), filter = Ones({3, 2, 2, 2});
  Conv2dAttributes a;
  EXPECT_EQ(Refusal([&] {
              Conv2d(Ones({4, 4, 2}), filter, nullptr, a);
            }),
            "Op [conv2d]: input has shape [4, 4, 2], expected rank 4");
  EXPECT_EQ(Refusal([&] {
              Conv2d(image, Ones({3, 2, 2, 1}), nullptr, a);
            }),
            "Op [conv2d]: input [1, 4, 4, 2] has 2 channels, filter [3, 2, 2, 1] has 1");
  EXPECT_EQ(Refusal([&] {
              Conv2d(image, Ones({3, 5, 2, 2}), nullptr, a);
            }),
            "Op [conv2d]: height: the kernel covers 5 of an input of 4 with 0 padding");
  const NDArray bias = Ones({2});
  EXPECT_EQ(Refusal([&] { Conv2d(image, filter, &bias, a); }),
            "Op [conv2d]: bias has shape [2], expected [3]");
  EXPECT_EQ(Refusal([&] {
              Conv2dGradInput(Ones({1, 4, 4, 3}), filter, image.shape(), a);
            }),
            "Op [conv2d_grad_input]: output_gradient has shape [1, 4, 4, 3], expected [1, 3, 3, "
            "3]");
  NDArray dfilter = Ones({3, 2, 2, 2});
  EXPECT_EQ(Refusal([&] {
              Conv2dGradFilterInto(image, Ones({1, 3, 3, 4}), dfilter, a);
            }),
            "Op [conv2d_grad_filter]: output_gradient has shape [1, 3, 3, 4], expected [1, 3, 3, "
            "3]");
  a.stride_width = 0;
  EXPECT_EQ(Refusal([&] { Conv2d(image, filter, nullptr, a); }),
            "Op [conv2d]: width: kernel 2, stride 0, dilation 1, padding 0; expected at least 1, "
            "1, 1 and 0");
  a = {};
  a.pad_top = -1, a.pad_bottom = 1;
  EXPECT_EQ(Refusal([&] { Conv2d(image, filter, nullptr, a); }),
            "Op [conv2d]: a padding is negative");
  // Sums and products of these would overflow.
  for (int64_t Conv2dAttributes::*member :
       {&Conv2dAttributes::pad_top, &Conv2dAttributes::pad_left, &Conv2dAttributes::stride_height,
        &Conv2dAttributes::dilation_height, &Conv2dAttributes::dilation_width}) {
    for (const int64_t huge : {INT64_MAX, INT64_MAX / 2, int64_t{1} << 31}) {
      a = {};
      a.*member = a.pad_bottom = a.pad_right = huge;
      EXPECT_THAT(Refusal([&] { Conv2d(image, filter, nullptr, a); }),
                  testing::HasSubstr("at most 2147483647"));
      EXPECT_THAT(Refusal([&] {
                    Conv2dTranspose(Ones({1, 4, 4, 3}), filter, nullptr, a);
                  }),
                  testing::HasSubstr("at most 2147483647"));
      a.pad_bottom = a.pad_right = 0;
      EXPECT_THAT(Refusal([&] { Conv2d(image, filter, nullptr, a); }),
                  testing::HasSubstr("at most 2147483647"));
    }
  }
  Pool2dAttributes pool;
  pool.kernel_height = INT64_MAX, pool.pad_top = pool.pad_bottom = INT64_MAX - 1;
  EXPECT_THAT(Refusal([&] { MaxPool2d(image, pool); }),
              testing::HasSubstr("expected at most 2147483647 each"));
  EXPECT_EQ(Refusal([&] {
              MaxPool2d(Ones({1, 1, 4, 2}), {});
            }),
            "Op [max_pool2d]: height: the kernel covers 2 of an input of 1 with 0 padding");
  EXPECT_EQ(Refusal([&] { MaxPool2dGrad(image, image, image, {}); }),
            "Op [max_pool2d_grad]: output has shape [1, 4, 4, 2], expected [1, 2, 2, 2]");
}

// ---- softmax and updates --------------------------------------------------------------------

TEST(SoftmaxOp, LabelsMayBeAViewAndMustBeClasses) {
  const NDArray logits = Zeros({2, 3});
  const NDArray columns = FromValues(absl::MakeConstSpan(std::vector<int64_t>{0, 9, 2, 9}), {2, 2});
  const NDArray loss = SoftmaxCrossEntropy(logits, columns.Index(1, 0)).loss;
  EXPECT_NEAR(loss.At<float>({1}), std::log(3.0), 1e-6);
  EXPECT_EQ(Refusal([&] { SoftmaxCrossEntropy(logits, columns.Index(1, 1)); }),
            "Op [softmax_cross_entropy]: label 0 is 9, expected 0 to 2");
  EXPECT_EQ(Refusal([&] {
              SoftmaxCrossEntropy(logits, I({0, -1}));
            }),
            "Op [softmax_cross_entropy]: label 1 is -1, expected 0 to 2");
  EXPECT_EQ(Refusal([&] { SoftmaxCrossEntropy(logits, I({0})); }),
            "Op [softmax_cross_entropy]: labels has shape [1], expected [2]");
  EXPECT_EQ(Refusal([&] { SoftmaxCrossEntropy(logits, Zeros({2})); }),
            "Op [softmax_cross_entropy]: labels is f32, expected i64");
  NDArray ints = Zeros({2, 3}, kI64);
  EXPECT_EQ(Refusal([&] {
              SoftmaxCrossEntropyGradInto(logits, I({0, 1}), 1, ints);
            }),
            "Op [softmax_cross_entropy_grad]: gradient is i64, expected f32");
  EXPECT_EQ(Refusal([] { Softmax(Ones({})); }), "Op [softmax]: X has rank 0, expected at least 1");
  NDArray over = SoftmaxCrossEntropy(logits, I({0, 1})).probabilities;
  SoftmaxCrossEntropyGradInto(over, I({0, 1}), 3, over);  // written over the probabilities
  EXPECT_NEAR(over.At<float>({0, 0}), -2, 1e-6);
}

TEST(UpdatersOp, Refusals) {
  NDArray p = Ones({2}), state = Ones({3}), ints = Ones({2}, kI64);
  EXPECT_EQ(Refusal([&] { SgdUpdate(Ones({3}), p, {}); }),
            "Op [sgd_update]: parameters has shape [2], expected [3]");
  EXPECT_EQ(Refusal([&] { NesterovsUpdate(Ones({2}), p, state, {}); }),
            "Op [nesterovs_update]: velocity has shape [3], expected [2]");
  EXPECT_EQ(Refusal([&] { AdamUpdate(Ones({2}), p, ints, state, {}); }),
            "Op [adam_update]: first_moment is i64, expected f32");
  EXPECT_EQ(Refusal([&] { SgdUpdate(ints, p, {}); }),
            "Op [sgd_update]: gradient is i64, expected f32");
}

TEST(Cast, ConvertsAndSharesWhatHasTheType) {
  const std::vector<float> values = {1.5f, -2.0f, 300.0f, 0.0f};
  const NDArray x = FromValues(absl::MakeConstSpan(values), {2, 2});
  EXPECT_EQ(Cast(x, DType::kFloat32).raw_data(), x.raw_data());
  EXPECT_EQ(Cast(x, DType::kUInt8).ToVector<uint8_t>(), (std::vector<uint8_t>{1, 254, 44, 0}));
  EXPECT_EQ(Cast(x.Transpose(), DType::kFloat64).ToVector<double>(),
            (std::vector<double>{1.5, 300, -2, 0}));
  EXPECT_EQ(Cast(x, DType::kBool).ToVector<bool>(), (std::vector<bool>{true, true, true, false}));
  EXPECT_EQ(Cast(x, DType::kBFloat16).ToString(), "[[  1.5,  -2. ],\n [300. ,   0. ]]");
}

}  // namespace
}  // namespace tidepool
