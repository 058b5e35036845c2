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
#include "tidepool/ndarray/ops/loss.h"
#include "tidepool/ndarray/ops/normalization.h"
#include "tidepool/ndarray/ops/pooling.h"
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

TEST(PoolingOp, Refusals) {
  const NDArray image = Ones({1, 4, 4, 2});
  EXPECT_EQ(Refusal([&] { AveragePool2d(Ones({4, 4, 2}), {}); }),
            "Op [average_pool2d]: input has shape [4, 4, 2], expected rank 4");
  EXPECT_EQ(Refusal([&] { MaxPool2d(Ones({1, 4, 4, 2}, kI64), {}); }),
            "Op [max_pool2d]: input is i64, expected f32, f64, f16 or bf16");
  Pool2dAttributes a;
  a.pad_left = 2;
  EXPECT_EQ(Refusal([&] { MaxPool2d(image, a); }),
            "Op [max_pool2d]: width: padding 2 and 0 of a kernel of 2, expected 0 to 1");
  a.pad_left = -1;
  EXPECT_EQ(Refusal([&] { AveragePool2d(image, a); }),
            "Op [average_pool2d]: width: padding -1 and 0 of a kernel of 2, expected 0 to 1");
  EXPECT_EQ(Refusal([&] { AveragePool2dGrad(Ones({1, 3, 2, 2}), image.shape(), {}); }),
            "Op [average_pool2d_grad]: output_gradient has shape [1, 3, 2, 2], expected [1, 2, 2, "
            "2]");
  EXPECT_EQ(Refusal([&] { GlobalAveragePool2dGrad(Ones({2, 2}), image.shape()); }),
            "Op [average_pool2d_grad]: output_gradient has shape [2, 2], expected [1, 2]");
  a = {};
  a.pad_top = 1, a.pad_bottom = 1;
  EXPECT_EQ(Refusal([&] { MaxPool2d(Ones({1, 0, 4, 2}), a); }),
            "Op [max_pool2d]: height: an input of 0, expected at least 1");
  EXPECT_EQ(GlobalMaxPool2d(Ones({0, 4, 4, 2})).shape(), (Shape{0, 2}));
}

TEST(SoftmaxOp, AxesAndTypes) {
  EXPECT_EQ(Refusal([] { LogSoftmax(Ones({})); }),
            "Op [log_softmax]: X has rank 0, expected at least 1");
  EXPECT_EQ(Refusal([] { Softmax(Ones({2, 3}), 2); }),
            "Op [softmax]: axis 2 of an array of rank 2, expected -2 to 1");
  EXPECT_EQ(Refusal([] { SoftmaxGrad(Ones({2, 3}), Ones({2, 3}, kF64)); }),
            "Op [softmax_grad]: dZ is f64, expected f32");
  EXPECT_EQ(Refusal([] { LogSoftmaxGrad(Ones({2, 3}), Ones({3, 2})); }),
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
  EXPECT_EQ(Refusal([&] { DenseCrossEntropy(Ones({2, 0}), Ones({2, 0})); }),
            "Op [dense_cross_entropy]: logits has shape [2, 0], expected at least one class");
  EXPECT_EQ(Refusal([&] { MeanSquaredError(x, Ones({2, 3}, kF64)); }),
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
  EXPECT_EQ(Refusal([&] { UpdateRunningAverages(one, one, {2.0, 0.0, 4}, mean, right); }),
            "Op [batch_norm_running]: momentum 2 and count 4, expected 0 to 1 and at least 1");
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
