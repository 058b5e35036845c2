// What the operators of neural networks refuse, in the words users read, and what they make of empty
// arrays and views.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/contraction.h"  // beside loss.h: their names are different ones
#include "tidepool/ndarray/ops/convolution.h"
#include "tidepool/ndarray/ops/convolution_transpose.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
#include "tidepool/ndarray/ops/recurrent.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool {
namespace {

constexpr DType kF64 = DType::kFloat64, kI64 = DType::kInt64;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return error.message();
  }
  return "nothing was thrown";
}
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }

TEST(MatMulOp, BatchesAndVectors) {
  EXPECT_EQ(MatMul(Ones({2, 1, 3, 4}), Ones({5, 4, 6})).shape(), (Shape{2, 5, 3, 6}));
  EXPECT_EQ(MatMul(Ones({0, 3, 4}), Ones({4, 6})).shape(), (Shape{0, 3, 6}));
  EXPECT_EQ(Refusal([] {
              MatMul(Ones({2, 3, 4}), Ones({5, 4, 6}));
            }),
            "Op [matmul, leading axes]: X has shape [2], Y has shape [5]; sizes 2 and 5 do not "
            "broadcast");
  EXPECT_EQ(Refusal([] { MatMul(Ones({}), Ones({2})); }),
            "Op [matmul]: X has rank 0, expected at least 1");
  NDArray z = Ones({1, 3});
  EXPECT_EQ(Refusal([&] {
              MatMulInto(Ones({2}), Ones({2, 3}), z);
            }),
            "Op [matmul]: Z has shape [1, 3], expected [3]");
  // A column of a matrix as a vector, a transposed batch as it lies.
  const NDArray x = Arange(0, 6).Reshape({2, 3});
  EXPECT_EQ(Values(MatMul(x.Index(1, 2), x)), (std::vector<float>{15, 22, 29}));
  const NDArray batch = Arange(0, 12).Reshape({2, 2, 3});
  EXPECT_EQ(Values(MatMul(batch.Transpose({0, 2, 1}), Ones({2}))),
            (std::vector<float>{3, 5, 7, 15, 17, 19}));
}

TEST(ConvolutionOp, GroupsDivideChannelsAndFilters) {
  Conv2dAttributes a;
  a.groups = 2;
  EXPECT_EQ(
      Refusal([&] {
        Conv2d(Ones({1, 4, 4, 3}), Ones({2, 1, 1, 1}), nullptr, a);
      }),
      "Op [conv2d]: input [1, 4, 4, 3] has 3 channels, filter [2, 1, 1, 1] has 1 of each of 2 "
      "groups, and 2 filters to divide among them");
  EXPECT_EQ(Conv2dOutputShape({1, 4, 4, 4}, {6, 1, 1, 2}, a), (Shape{1, 4, 4, 6}));
  a.groups = 0;
  EXPECT_THAT(Refusal([&] {
                Conv2d(Ones({1, 4, 4, 4}), Ones({2, 1, 1, 2}), nullptr, a);
              }),
              testing::HasSubstr("of each of 0 groups"));
}

TEST(ConvolutionOp, TransposedRefusals) {
  const NDArray x = Ones({1, 3, 3, 2}), w = Ones({2, 2, 2, 1});
  Conv2dAttributes a;
  EXPECT_EQ(Refusal([&] {
              Conv2dTranspose(x, Ones({3, 2, 2, 1}), nullptr, a);
            }),
            "Op [conv2d_transpose]: input [1, 3, 3, 2] has 2 channels, filter [3, 2, 2, 1] has 3 "
            "filters");
  EXPECT_EQ(Refusal([&] {
              Conv2dTranspose(x, w, nullptr, a, {0, 1});
            }),
            "Op [conv2d_transpose]: width: output padding 1, expected 0 to 0");
  const NDArray bias = Ones({2});
  EXPECT_EQ(Refusal([&] { Conv2dTranspose(x, w, &bias, a); }),
            "Op [conv2d_transpose]: bias has shape [2], expected [1]");
  a.pad_top = 4;
  EXPECT_EQ(Refusal([&] { Conv2dTranspose(x, w, nullptr, a); }),
            "Op [conv2d_transpose]: height: padding 4 leaves nothing of the output");
  a.pad_top = 0, a.relu = true;
  for (const float value : Values(Conv2dTranspose(x, w * -1.0, nullptr, a))) EXPECT_EQ(value, 0);
}

TEST(PoolingOp, Refusals) {
  const NDArray image = Ones({1, 4, 4, 2});
  EXPECT_EQ(Refusal([&] {
              AveragePool2d(Ones({4, 4, 2}), {});
            }),
            "Op [average_pool2d]: input has shape [4, 4, 2], expected rank 4");
  EXPECT_EQ(Refusal([&] {
              MaxPool2d(Ones({1, 4, 4, 2}, kI64), {});
            }),
            "Op [max_pool2d]: input is i64, expected f32, f64, f16 or bf16");
  Pool2dAttributes a;
  a.pad_left = 2;
  EXPECT_EQ(Refusal([&] { MaxPool2d(image, a); }),
            "Op [max_pool2d]: width: padding 2 and 0 of a kernel of 2, expected 0 to 1");
  a.pad_left = -1;
  EXPECT_EQ(Refusal([&] { AveragePool2d(image, a); }),
            "Op [average_pool2d]: width: padding -1 and 0 of a kernel of 2, expected 0 to 1");
  EXPECT_EQ(Refusal([&] {
              AveragePool2dGrad(Ones({1, 3, 2, 2}), image.shape(), {});
            }),
            "Op [average_pool2d_grad]: output_gradient has shape [1, 3, 2, 2], expected [1, 2, 2, "
            "2]");
  EXPECT_EQ(Refusal([&] {
              GlobalAveragePool2dGrad(Ones({2, 2}), image.shape());
            }),
            "Op [average_pool2d_grad]: output_gradient has shape [2, 2], expected [1, 2]");
  a = {};
  a.pad_top = 1, a.pad_bottom = 1;
  EXPECT_EQ(Refusal([&] {
              MaxPool2d(Ones({1, 0, 4, 2}), a);
            }),
            "Op [max_pool2d]: height: an input of 0, expected at least 1");
  EXPECT_EQ(GlobalMaxPool2d(Ones({0, 4, 4, 2})).shape(), (Shape{0, 2}));
}

TEST(SoftmaxOp, AxesAndTypes) {
  EXPECT_EQ(Refusal([] { LogSoftmax(Ones({})); }),
            "Op [log_softmax]: X has rank 0, expected at least 1");
  EXPECT_EQ(Refusal([] {
              Softmax(Ones({2, 3}), 2);
            }),
            "Op [softmax]: axis 2 of an array of rank 2, expected -2 to 1");
  EXPECT_EQ(Refusal([] {
              SoftmaxGrad(Ones({2, 3}), Ones({2, 3}, kF64));
            }),
            "Op [softmax_grad]: dZ is f64, expected f32");
  EXPECT_EQ(Refusal([] {
              LogSoftmaxGrad(Ones({2, 3}), Ones({3, 2}));
            }),
            "Op [log_softmax_grad]: dZ has shape [3, 2], expected [2, 3]");
  // Of a transposed view, along the axis that is contiguous in memory.
  const NDArray z = Softmax(Zeros({2, 4}).Transpose(), 0);
  for (const float value : Values(z)) EXPECT_FLOAT_EQ(value, 0.25f);
  EXPECT_EQ(Softmax(Zeros({0, 3})).shape(), (Shape{0, 3}));
  EXPECT_EQ(Softmax(Zeros({3, 0})).shape(), (Shape{3, 0}));
}

TEST(LossOp, Refusals) {
  const NDArray x = Ones({2, 3});
  EXPECT_EQ(Refusal([&] { DenseCrossEntropy(x, Ones({2})); }),
            "Op [dense_cross_entropy]: targets has shape [2], expected [2, 3]");
  EXPECT_EQ(Refusal([&] {
              DenseCrossEntropy(Ones({2, 0}), Ones({2, 0}));
            }),
            "Op [dense_cross_entropy]: logits has shape [2, 0], expected at least one class");
  EXPECT_EQ(Refusal([&] {
              MeanSquaredError(x, Ones({2, 3}, kF64));
            }),
            "Op [squared_error]: targets is f64, expected f32");
  EXPECT_EQ(Refusal([&] { MeanSquaredError(Ones({}), Ones({})); }),
            "Op [squared_error]: predictions has rank 0, expected at least 1");
  NDArray wrong = Ones({3, 2});
  EXPECT_EQ(Refusal([&] { BinaryCrossEntropyGradInto(x, x, 1, wrong); }),
            "Op [binary_cross_entropy_grad]: gradient has shape [3, 2], expected [2, 3]");
  EXPECT_EQ(MeanSquaredError(Ones({0, 3}), Ones({0, 3})).NumElements(), 0);
  EXPECT_TRUE(std::isnan(MeanSquaredError(Ones({1, 0}), Ones({1, 0})).At<float>({0})));
  NDArray over = Ones({2, 3});
  MeanSquaredErrorGradInto(over, Zeros({2, 3}), 3, over);  // written over the predictions
  for (const float value : Values(over)) EXPECT_EQ(value, 2);
}

TEST(NormalizationOp, Refusals) {
  const NDArray x = Ones({4, 3}), one = Ones({3});
  EXPECT_EQ(Refusal([&] { BatchNorm(x, Ones({4}), one); }),
            "Op [batch_norm]: scale has shape [4], expected [3]");
  EXPECT_EQ(Refusal([&] { LayerNorm(x, one, Ones({3}, kF64)); }),
            "Op [layer_norm]: shift is f64, expected f32");
  EXPECT_EQ(Refusal([&] { BatchNorm(x, one, one, {-1.0}); }),
            "Op [batch_norm]: epsilon is -1, expected at least 0");
  EXPECT_EQ(Refusal([&] { LayerNormGrad(x, one, Ones({3}), Ones({4}), x); }),
            "Op [layer_norm_grad]: mean has shape [3], expected [4]");
  EXPECT_EQ(Refusal([&] { BatchNormGrad(x, one, one, Ones({3}, kF64), x); }),
            "Op [batch_norm_grad]: inverse_deviation is f64, expected f32");
  NDArray mean = Ones({3}), variance = Ones({2});
  EXPECT_EQ(Refusal([&] { UpdateRunningAverages(one, one, {}, mean, variance); }),
            "Op [batch_norm_running]: running_variance has shape [2], expected [3]");
  NDArray right = Ones({3});
  EXPECT_EQ(Refusal([&] {
              UpdateRunningAverages(one, one, {2.0, 0.0, 4}, mean, right);
            }),
            "Op [batch_norm_running]: momentum 2 and count 4, expected 0 to 1 and at least 1");
}

TEST(RecurrentOp, Refusals) {
  const NDArray x = Ones({2, 3}), h = Ones({2, 4});
  LstmWeights w{Ones({16, 3}), Ones({16, 4}), Ones({16})};
  EXPECT_EQ(Refusal([&] {
              LstmCell(Ones({2, 12}), h);
            }),
            "Op [lstm_cell]: gates has shape [2, 12], expected [2, 16]");
  EXPECT_EQ(Refusal([&] {
              LstmStep(Ones({3, 3}), h, h, w);
            }),
            "Op [lstm_step]: input has shape [3, 3], expected [2, 3]");
  LstmWeights narrow = w;
  narrow.recurrent = Ones({16, 3});
  EXPECT_EQ(Refusal([&] { LstmStep(x, h, h, narrow); }),
            "Op [lstm_step]: recurrent weights has shape [16, 3], expected [16, 4]");
  LstmWeights gradients{Zeros({16, 3}), Zeros({16, 4}), Zeros({15})};
  EXPECT_EQ(Refusal([&] { LstmStepGrad(x, h, h, w, LstmStep(x, h, h, w), h, nullptr, gradients); }),
            "Op [lstm_step_grad]: bias' gradient has shape [15], expected [16]");
  EXPECT_EQ(Values(gradients.input), std::vector<float>(48, 0));
  EXPECT_EQ(Refusal([&] {
              GruCell(Ones({2, 12}), Ones({2, 8}), h);
            }),
            "Op [gru_cell]: hidden_gates has shape [2, 8], expected [2, 12]");
  EXPECT_EQ(Refusal([&] {
              GruCell(Ones({2, 12}), Ones({2, 12}), Ones({2, 4}, kF64));
            }),
            "Op [gru_cell]: input_gates is f32, expected f64");
  EXPECT_EQ(LstmStep(Ones({0, 3}), Ones({0, 4}), Ones({0, 4}), w).cell.shape(), (Shape{0, 4}));
}

TEST(NormalizationOp, OfNothing) {
  const Normalized n = BatchNorm(Ones({0, 2}), Ones({2}), Ones({2}));
  EXPECT_TRUE(std::isnan(n.mean.At<float>({0})));
  const NormalizationGradients d =
      BatchNormGrad(Ones({0, 2}), Ones({2}), Ones({2}), Ones({2}), Ones({0, 2}));
  EXPECT_EQ(Values(d.scale), (std::vector<float>{0, 0}));
  EXPECT_EQ(LayerNorm(Ones({3, 0}), Ones({0}), Ones({0})).mean.shape(), (Shape{3}));
}

}  // namespace
}  // namespace tidepool
