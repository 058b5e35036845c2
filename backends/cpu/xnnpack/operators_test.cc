// The operators of whichever XNNPACK is installed, beside plain loops.
#include "tidepool/backends/cpu/xnnpack/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/backends/cpu/xnnpack/runtime.h"

namespace tidepool::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint64_t kSeed = 20240229;

std::vector<float> Values(size_t count, uint64_t salt) {
  std::mt19937_64 random(kSeed + salt);
  std::vector<float> values(count + XNN_EXTRA_BYTES);
  for (float& value : values)
    value = static_cast<float>(static_cast<double>(random() >> 11) * 0x1p-52 - 1);
  return values;
}

class Operators : public testing::Test {
 protected:
  void SetUp() override {
    if (!XnnpackIsUsable()) GTEST_SKIP() << XnnpackDescription();
  }
  void TearDown() override {
    if (op_ != nullptr) xnn_delete_operator(op_);
  }
  xnn_operator_t op_ = nullptr;
};

TEST_F(Operators, FullyConnectedKeepsItsWeightsForAnyNumberOfRows) {
  constexpr int kInputs = 33, kOutputs = 19;
  const auto weights = Values(kInputs * kOutputs, 1), bias = Values(kOutputs, 2);
  ASSERT_EQ(CreateFullyConnected(kInputs, kOutputs, kOutputs, weights.data(), bias.data(),
                                 /*lowest=*/0, XNN_FLAG_TRANSPOSE_WEIGHTS, &op_),
            xnn_status_success);
  for (const int rows : {7, 1, 40}) {
    const auto x = Values(rows * kInputs, rows);
    std::vector<float> z(rows * kOutputs);
    ASSERT_EQ(RunFullyConnected(op_, rows, x.data(), z.data()), xnn_status_success);
    for (int row = 0; row < rows; ++row) {
      for (int out = 0; out < kOutputs; ++out) {
        double expected = bias[out];
        for (int i = 0; i < kInputs; ++i) {
          expected += static_cast<double>(x[row * kInputs + i]) * weights[i * kOutputs + out];
        }
        ASSERT_NEAR(z[row * kOutputs + out], std::max(expected, 0.0), 1e-5);
      }
    }
  }
}

void CheckConvolution(xnn_operator_t* op, Conv2dProblem p, int64_t groups) {
  const int64_t in = p.in_channels / groups, out = p.out_channels / groups;
  const auto filter = Values(p.out_channels * p.kernel_height * p.kernel_width * in, 3);
  const auto bias = Values(p.out_channels, 4);
  ASSERT_EQ(CreateConvolution(p, {groups, in, out}, filter.data(), bias.data(), -kInfinity, op),
            xnn_status_success);
  for (const int64_t batch : {2, 1, 3}) {
    p.batch = batch;
    p.in_height += batch;  // another size with the same weights
    const auto x = Values(batch * p.in_height * p.in_width * p.in_channels, batch);
    const int64_t height =
        (p.in_height + p.pad_top + p.pad_bottom - (p.kernel_height - 1) * p.dilation_height - 1) /
            p.stride_height +
        1;
    const int64_t width =
        (p.in_width + p.pad_left + p.pad_right - (p.kernel_width - 1) * p.dilation_width - 1) /
            p.stride_width +
        1;
    std::vector<float> z(batch * height * width * p.out_channels);
    size_t bytes = 0;
    ASSERT_EQ(ConvolutionWorkspace(*op, p, &bytes), xnn_status_success);
    EXPECT_TRUE(bytes == 0 || ConvolutionsTakeWorkspace());
    struct alignas(64) Line {
      char bytes[64];
    };
    std::vector<Line> workspace((bytes + 63) / 64 + 1);
    ASSERT_EQ(RunConvolution(*op, p, x.data(), z.data(), bytes > 0 ? workspace.data() : nullptr),
              xnn_status_success);
    const auto product_at = [&](int64_t image, int64_t row, int64_t column, int64_t channel) {
      double sum = bias[channel];
      for (int64_t i = 0; i < p.kernel_height; ++i) {
        for (int64_t j = 0; j < p.kernel_width; ++j) {
          const int64_t y = row * p.stride_height - p.pad_top + i * p.dilation_height;
          const int64_t c = column * p.stride_width - p.pad_left + j * p.dilation_width;
          if (y < 0 || y >= p.in_height || c < 0 || c >= p.in_width) continue;
          const float* pixel = &x[((image * p.in_height + y) * p.in_width + c) * p.in_channels];
          const float* tap = &filter[((channel * p.kernel_height + i) * p.kernel_width + j) * in];
          for (int64_t k = 0; k < in; ++k) {
            sum += static_cast<double>(pixel[channel / out * in + k]) * tap[k];
          }
        }
      }
      return sum;
    };
    for (int64_t at = 0; at < batch * height * width * p.out_channels; ++at) {
      const int64_t pixel = at / p.out_channels;
      ASSERT_NEAR(z[at],
                  product_at(pixel / width / height, pixel / width % height, pixel % width,
                             at % p.out_channels),
                  1e-5)
          << "batch " << batch << ", element " << at;
    }
  }
}

TEST_F(Operators, ConvolutionOfAnySize) {
  CheckConvolution(&op_,
                   {.batch = 1,
                    .in_height = 7,
                    .in_width = 9,
                    .in_channels = 5,
                    .out_channels = 18,
                    .kernel_height = 3,
                    .kernel_width = 2,
                    .stride_height = 2,
                    .pad_top = 1,
                    .pad_right = 1,
                    .dilation_width = 2},
                   1);
}

TEST_F(Operators, ConvolutionOfOnePixelFiltersInGroups) {
  CheckConvolution(&op_,
                   {.batch = 1,
                    .in_height = 4,
                    .in_width = 5,
                    .in_channels = 12,
                    .out_channels = 6,
                    .kernel_height = 1,
                    .kernel_width = 1},
                   3);
}

// Depthwise, with filters larger than one pass of the 2024 interface's micro-kernels takes.
TEST_F(Operators, DepthwiseConvolution) {
  CheckConvolution(&op_,
                   {.batch = 1,
                    .in_height = 9,
                    .in_width = 8,
                    .in_channels = 21,
                    .out_channels = 21,
                    .kernel_height = 7,
                    .kernel_width = 6,
                    .pad_top = 3,
                    .pad_bottom = 3,
                    .pad_left = 2,
                    .pad_right = 3},
                   21);
}

TEST_F(Operators, SoftmaxOfAnyNumberOfRows) {
  constexpr int kColumns = 67;
  ASSERT_EQ(CreateSoftmax(kColumns, &op_), xnn_status_success);
  for (const int rows : {3, 1, 8}) {
    const auto x = Values(rows * kColumns, rows);
    std::vector<float> z(rows * kColumns);
    ASSERT_EQ(RunSoftmaxRows(op_, rows, kColumns, x.data(), z.data()), xnn_status_success);
    for (int row = 0; row < rows; ++row) {
      double sum = 0;
      for (int i = 0; i < kColumns; ++i)
        sum += std::exp(static_cast<double>(x[row * kColumns + i]));
      for (int i = 0; i < kColumns; ++i) {
        const double expected = std::exp(static_cast<double>(x[row * kColumns + i])) / sum;
        ASSERT_NEAR(z[row * kColumns + i], expected, 1e-6 * expected);
      }
    }
  }
}

TEST_F(Operators, AWrongCallIsAStatus) {
  Conv2dProblem p{.batch = 1,
                  .in_height = 4,
                  .in_width = 4,
                  .in_channels = 4,
                  .out_channels = 4,
                  .kernel_height = 0,
                  .kernel_width = 3};
  const auto filter = Values(64, 5);
  EXPECT_EQ(CreateConvolution(p, {1, 4, 4}, filter.data(), nullptr, 0, &op_),
            xnn_status_invalid_parameter);
  EXPECT_EQ(CreateFullyConnected(0, 4, 4, filter.data(), nullptr, 0, 0, &op_),
            xnn_status_invalid_parameter);
}

TEST(Runtime, DescribesWhatItFound) {
  EXPECT_THAT(XnnpackDescription(),
              testing::StartsWith(std::string("interface of ") + XnnpackInterface() + ", "));
  EXPECT_THAT(XnnpackDescription(),
              testing::HasSubstr(XnnpackIsUsable() ? "kernel choice" : "not used: "));
}

TEST(Runtime, TheCheckAtTheStartSeesAWrongElementAndAFailure) {
  float change = 0;
  xnn_status status = xnn_status_success;
  const auto product = [&](const float* x, const float* weights, const float* bias, float* z) {
    for (int row = 0; row < 6; ++row) {
      for (int out = 0; out < 37; ++out) {
        float sum = bias[out];
        for (int i = 0; i < 21; ++i) sum += x[row * 21 + i] * weights[out * 21 + i];
        z[row * 37 + out] = sum;
      }
    }
    z[5 * 37 + 36] += change;
    return status;
  };
  EXPECT_TRUE(MultipliesExactly(product));
  change = 1;
  EXPECT_FALSE(MultipliesExactly(product));
  change = 0;
  status = xnn_status_out_of_memory;
  EXPECT_FALSE(MultipliesExactly(product));
}

}  // namespace
}  // namespace tidepool::cpu
