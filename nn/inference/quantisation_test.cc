// 8 bits: ranges, the computation beside one in whole numbers of our own, refusals, the report, digits.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/inference/quantisation_report.h"
#include "tidepool/nn/inference/quantise.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/max_pool2d.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Layers = std::vector<AnyLayer>;

std::string ErrorOf(const std::function<void()>& call,
                    absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

class QuantisationTest : public testing::Test {
 protected:
  void SetUp() override {
    if (LinkedFrozenEngine() == nullptr) GTEST_SKIP() << "no engine is linked";
    if (!LinkedFrozenEngine()->WhyNotHere().empty())
      GTEST_SKIP() << LinkedFrozenEngine()->WhyNotHere();
  }
};

// Convolutions of each kind, a pooling, two dense layers.
Network Mixed(bool is_strided = false) {
  Layers layers;
  Conv2dAttributes padded;
  padded.pad_top = padded.pad_bottom = padded.pad_left = padded.pad_right = 1;
  layers.push_back(std::make_unique<Conv2D>(8, 3, 3, Activation::kRelu, padded));
  Conv2dAttributes depthwise = padded;
  depthwise.groups = 8;
  if (is_strided) depthwise.stride_height = 2, depthwise.pad_left = 3, depthwise.dilation_width = 2;
  layers.push_back(std::make_unique<Conv2D>(8, 3, 3, Activation::kIdentity, depthwise));
  Conv2dAttributes grouped;
  grouped.groups = 2;
  if (is_strided) grouped.stride_width = 3, grouped.pad_bottom = 2, grouped.dilation_height = 2;
  layers.push_back(std::make_unique<Conv2D>(10, 2, 2, Activation::kRelu, grouped));
  layers.push_back(std::make_unique<MaxPool2D>());
  layers.push_back(std::make_unique<Dense>(20, Activation::kRelu));
  layers.push_back(std::make_unique<Dense>(5));
  Network network({9, 9, 3}, std::move(layers), 11);
  for (const NamedParameter& parameter : network.named_parameters()) {
    NDArray value = parameter.value;
    if (value.rank() == 1)
      CopyInto(RandomUniform(value.shape(), -0.5, 0.5, 3, 7, Place::Heap()), value);
  }
  return network;
}

NDArray Samples(int64_t count, const Shape& input, uint64_t seed) {
  std::vector<int64_t> dims = {count};
  dims.insert(dims.end(), input.span().begin(), input.span().end());
  return RandomUniform(Shape(dims), -1, 1, seed, 99, Place::Heap());
}

FrozenOptions Int8(const NDArray& calibration) {
  FrozenOptions options{.type = FrozenType::kInt8, .batches = {4}};
  options.calibration = calibration;
  return options;
}

double Real(int64_t value, const Quantisation& q) {
  return q.scale * static_cast<double>(value - q.zero_point);
}
int8_t Quantise(double real, const Quantisation& q) {
  return static_cast<int8_t>(
      std::clamp(std::nearbyint(real / q.scale) + q.zero_point, -128.0, 127.0));
}

// The graph of one example in whole numbers, one step after the other, from its constants.
std::vector<double> Reference(const FrozenGraph& graph, const float* x) {
  std::vector<int64_t> at;
  for (int64_t i = 0; i < graph.input_shape.NumElements(); ++i)
    at.push_back(Quantise(x[i], graph.ops[0].input));
  for (const FrozenOp& op : graph.ops) {
    std::vector<int64_t> next;
    const auto finish = [&](int64_t sum, int64_t filter) {
      const double scale =
          op.input.scale *
          op.weight_scales[op.weight_scales.size() == 1 ? 0 : static_cast<size_t>(filter)];
      double real = static_cast<double>(sum) * scale;
      if (op.relu) real = std::max(real, 0.0);
      next.push_back(Quantise(real, op.output));
    };
    if (op.kind == FrozenOp::Kind::kDense) {
      const auto inputs = static_cast<int64_t>(at.size());
      for (int64_t unit = 0; unit < op.weight_shape[0]; ++unit) {
        int64_t sum = op.quantised_bias[static_cast<size_t>(unit)];
        for (int64_t i = 0; i < inputs; ++i) {
          sum += (at[static_cast<size_t>(i)] - op.input.zero_point) *
                 op.quantised_weight[static_cast<size_t>(unit * inputs + i)];
        }
        finish(sum, unit);
      }
    } else {
      const bool is_pool = op.kind == FrozenOp::Kind::kMaxPool2d;
      const int64_t height = op.input_shape[0], width = op.input_shape[1],
                    channels = op.input_shape[2];
      const int64_t kernel_height = is_pool ? op.pooling.kernel_height : op.weight_shape[1];
      const int64_t kernel_width = is_pool ? op.pooling.kernel_width : op.weight_shape[2];
      const int64_t each = is_pool ? 1 : op.weight_shape[3], filters = op.output_shape[2];
      for (int64_t y = 0; y < op.output_shape[0]; ++y) {
        for (int64_t xx = 0; xx < op.output_shape[1]; ++xx) {
          for (int64_t filter = 0; filter < filters; ++filter) {
            const int64_t first =
                is_pool ? filter : filter / (filters / op.convolution.groups) * each;
            int64_t sum = is_pool ? -128 : op.quantised_bias[static_cast<size_t>(filter)];
            for (int64_t ky = 0; ky < kernel_height; ++ky) {
              for (int64_t kx = 0; kx < kernel_width; ++kx) {
                const Conv2dAttributes& a = op.convolution;
                const int64_t row =
                    is_pool ? 2 * y + ky : y * a.stride_height + ky * a.dilation_height - a.pad_top;
                const int64_t column =
                    is_pool ? 2 * xx + kx
                            : xx * a.stride_width + kx * a.dilation_width - a.pad_left;
                if (row < 0 || column < 0 || row >= height || column >= width) continue;
                for (int64_t c = 0; c < each; ++c) {
                  const int64_t value =
                      at[static_cast<size_t>((row * width + column) * channels + first + c)];
                  if (is_pool) {
                    sum = std::max(sum, value);
                  } else {
                    sum += (value - op.input.zero_point) *
                           op.quantised_weight[static_cast<size_t>(
                               ((filter * kernel_height + ky) * kernel_width + kx) * each + c)];
                  }
                }
              }
            }
            if (is_pool) {
              next.push_back(sum);
            } else {
              finish(sum, filter);
            }
          }
        }
      }
    }
    at = std::move(next);
  }
  std::vector<double> result;
  for (const int64_t value : at) result.push_back(Real(value, graph.ops.back().output));
  return result;
}

void ExpectWholeNumbers(const Network& network) {
  const FrozenNetwork frozen(network, Int8(Samples(200, network.input_shape(), 1)));
  for (const FrozenOp& op : frozen.graph().ops) {
    EXPECT_TRUE(op.is_quantised()) << op.name;
    EXPECT_EQ(op.weight_scales.size(), op.kind == FrozenOp::Kind::kMaxPool2d ? 0u
                                       : op.kind == FrozenOp::Kind::kConv2d
                                           ? static_cast<size_t>(op.weight_shape[0])
                                           : 1u)
        << op.name;
  }
  const NDArray x = Samples(7, network.input_shape(), 2);
  const std::vector<float> found = frozen.Run(x).ToVector<float>();
  const int64_t size = network.input_shape().NumElements();
  int64_t different = 0;
  for (int64_t example = 0; example < 7; ++example) {
    const std::vector<double> expected =
        Reference(frozen.graph(), x.data<float>() + example * size);
    for (size_t i = 0; i < 5; ++i) {
      // Halves are rounded otherwise now and then, which later layers carry on.
      const double steps = std::abs(found[static_cast<size_t>(example) * 5 + i] - expected[i]) /
                           frozen.graph().ops.back().output.scale;
      EXPECT_LE(steps, 2.01) << example << ", " << i;
      different += steps > 0.01;
    }
  }
  EXPECT_LE(different, 7);
}

TEST_F(QuantisationTest, ItComputesWhatWholeNumbersDo) {
  ExpectWholeNumbers(Mixed());
  ExpectWholeNumbers(Mixed(/*is_strided=*/true));
}

TEST_F(QuantisationTest, ItIsNearF32WithEachMethodAndBitsDoNotDependOnThreads) {
  const Network network = Mixed();
  const NDArray x = Samples(100, network.input_shape(), 2);
  FrozenOptions options = Int8(Samples(200, network.input_shape(), 1));
  for (const CalibrationMethod method :
       {CalibrationMethod::kMeanSquaredError, CalibrationMethod::kPercentile,
        CalibrationMethod::kExtremes}) {
    options.method = method;
    const QuantisationReport report = ReportQuantisation(network, options, x);
    EXPECT_LT(report.error, 0.05) << report.ToString();
    EXPECT_GT(report.error, 0.001) << report.ToString();
    EXPECT_GT(report.agreement, 0.9) << report.ToString();
    EXPECT_LT(report.weight_bytes, report.float_weight_bytes / 2);
    EXPECT_FALSE(report.accuracy.has_value());
  }
  const std::vector<float> expected = FrozenNetwork(network, options).Run(x).ToVector<float>();
  options.threads = 3;
  EXPECT_EQ(FrozenNetwork(network, options).Run(x).ToVector<float>(), expected);
}

TEST_F(QuantisationTest, TheReportNamesTheLayerThatCostsMostAndF32MendsIt) {
  // One unit's weights a hundred times as large, which its ReLU hides: one scale for all leaves the others next to nothing.
  Network network = Mixed();
  NDArray weight = network.named_parameters()[6].value;  // of the first dense layer
  weight.Slice(0, 3, 4) = Scalar(-60.0f);
  FrozenOptions options = Int8(Samples(100, network.input_shape(), 1));
  const NDArray x = Samples(50, network.input_shape(), 2);
  const QuantisationReport report = ReportQuantisation(network, options, x);
  EXPECT_EQ(report.worst_layer, 4) << report.ToString();
  EXPECT_THAT(report.ToString(), AllOf(HasSubstr("layer 4 [dense 20 relu]"), HasSubstr("(worst)"),
                                       HasSubstr("50 samples")));
  options.float_layers = {4};
  const QuantisationReport mended = ReportQuantisation(network, options, x);
  EXPECT_FALSE(mended.layers[4].is_quantised);
  EXPECT_LT(mended.error, report.error / 4) << report.ToString() << mended.ToString();
  EXPECT_THAT(mended.ToString(), HasSubstr("stays f32"));
}

TEST_F(QuantisationTest, FloatLayersAnywhereAreF32) {
  const Network network = Mixed();
  const NDArray x = Samples(9, network.input_shape(), 2);
  FrozenOptions options = Int8(Samples(50, network.input_shape(), 1));
  options.softmax = true;
  const std::vector<float> exact =
      FrozenNetwork(network, {.softmax = true}).Run(x).ToVector<float>();
  for (int bits = 0; bits < 64; ++bits) {
    options.float_layers.clear();
    for (int layer = 0; layer < 6; ++layer) {
      if (bits >> layer & 1) options.float_layers.push_back(layer);
    }
    const std::vector<float> found = FrozenNetwork(network, options).Run(x).ToVector<float>();
    for (size_t i = 0; i < found.size(); ++i) {
      ASSERT_NEAR(found[i], exact[i], bits == 63 ? 1e-6 : 0.05) << bits << ", " << i;
    }
  }
}

TEST_F(QuantisationTest, LayersOfZerosAndOfLargeNumbersHaveAScale) {
  // A dead layer, weights of zeros with a bias, one huge and one tiny filter.
  for (const float scale : {0.0f, 1e-12f, 1e-3f, 1e6f, 1e15f}) {
    Network network = Mixed();
    NDArray filter = network.named_parameters()[0].value;
    filter *= scale;
    NDArray tiny = network.named_parameters()[4].value.Slice(0, 0, 1);
    tiny *= 1e-9f;
    const NDArray x = Samples(9, network.input_shape(), 2);
    const FrozenNetwork frozen(network, Int8(Samples(50, network.input_shape(), 1)));
    const std::vector<float> found = frozen.Run(x).ToVector<float>(),
                             exact = network.Forward(x).ToVector<float>();
    double largest = 0;
    for (const float value : exact) largest = std::max<double>(largest, std::abs(value));
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], exact[i], 0.1 * largest) << scale;
  }
}

TEST_F(QuantisationTest, LargeWeightsThatSamplesDoNotShowAreFrozenAllTheSame) {
  // The product of scales over the output's would be beyond what XNNPACK takes.
  Layers layers;
  layers.push_back(std::make_unique<Dense>(1));
  layers.push_back(std::make_unique<Dense>(1));  // which takes the output in the steps that it got
  Network network({2}, std::move(layers));
  NDArray weight = network.named_parameters()[0].value;
  CopyInto(FromValues(absl::Span<const float>({1e6f, 0.0f}), {1, 2}), weight);
  const FrozenNetwork frozen(
      network, Int8(FromValues(absl::Span<const float>({0.0f, 1.0f, 0.0f, 0.5f}), {2, 2})));
  EXPECT_EQ(frozen.Run(FromValues(absl::Span<const float>({0.0f, 1.0f}), {1, 2})).Item<float>(), 0);
}

TEST_F(QuantisationTest, BadOptionsAreRefused) {
  Network network = Mixed();
  const NDArray samples = Samples(10, network.input_shape(), 1);
  FrozenOptions options = Int8(NDArray());
  EXPECT_THAT(ErrorOf([&] { FrozenNetwork(network, options); }),
              AllOf(HasSubstr("calibration"), HasSubstr("[9, 9, 3]")));
  options.calibration = Samples(10, {9, 8, 3}, 1);
  EXPECT_THAT(ErrorOf([&] { FrozenNetwork(network, options); }), HasSubstr("[10, 9, 8, 3]"));
  options.calibration = samples;
  for (const double percentile : {50.0, 100.5, std::numeric_limits<double>::quiet_NaN()}) {
    options.percentile = percentile;
    EXPECT_THAT(ErrorOf([&] { FrozenNetwork(network, options); }), HasSubstr("percentile"));
  }
  options.percentile = 99;
  for (const int layer : {-1, 6}) {
    options.float_layers = {layer};
    EXPECT_THAT(ErrorOf([&] { FrozenNetwork(network, options); }),
                AllOf(HasSubstr("float_layers"), HasSubstr("0 to 5")));
  }
  options.float_layers = {};
  EXPECT_THAT(ErrorOf([&] {
                ReportQuantisation(network, options, samples, {1, 2});
              }),
              HasSubstr("2 labels, expected none or 10"));
  options.calibration = samples.Dup();
  options.calibration.mutable_data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_THAT(ErrorOf([&] { FrozenNetwork(network, options); }), HasSubstr("samples have nan"));
  options.type = FrozenType::kFloat32;
  EXPECT_THAT(ErrorOf([&] { ReportQuantisation(network, options, samples); }),
              HasSubstr("not int8"));
}

TEST_F(QuantisationTest, DigitsAreReadAsWellInEightAndSixteenBits) {
  const ImageFolder digits = LoadImageFolder("examples/data/mnist");
  Model model = MakeModel("lenet", {28, 28, 1}, 10, 17, WorkspaceMode::kEnabled);
  {
    Trainer trainer(model, UpdaterConfig::Of(UpdaterKind::kAdam));
    ImageBatches batches(digits.train, 64);
    batches.Shuffle(17, 1);
    for (int64_t i = 0; i < std::min<int64_t>(60, batches.size()); ++i)
      trainer.Step([&] { return batches.Make(i); });
  }
  const auto images_of = [](const LabelledImages& images, int64_t count) {
    std::vector<float> pixels;
    const int64_t wanted = std::min(count, images.count);
    for (int64_t i = 0; i < wanted * 784; ++i)
      pixels.push_back(images.pixels[static_cast<size_t>(i)] / 255.0f);
    return FromValues(absl::Span<const float>(pixels), {wanted, 28, 28, 1}, Place::Heap());
  };
  const NDArray x = images_of(digits.test, 2000);
  const std::vector<int64_t> labels(digits.test.labels.begin(),
                                    digits.test.labels.begin() + x.dim(0));
  const QuantisationReport report =
      ReportQuantisation(*model.network, Int8(images_of(digits.train, 256)), x, labels);
  std::puts(report.ToString().c_str());
  EXPECT_GT(*report.float_accuracy, 0.9) << report.ToString();
  EXPECT_GT(*report.accuracy, *report.float_accuracy - 0.005) << report.ToString();
  EXPECT_LT(report.weight_bytes, report.float_weight_bytes * 0.27);
  const FrozenOptions dynamic{
      .type = FrozenType::kInt8, .batches = {32}, .ranges = QuantisedRanges::kDynamic};
  const QuantisationReport without_samples = ReportQuantisation(*model.network, dynamic, x, labels);
  std::puts(without_samples.ToString().c_str());
  EXPECT_GT(*without_samples.accuracy, *report.float_accuracy - 0.005);
  EXPECT_LT(without_samples.error, report.error);
  EXPECT_LT(without_samples.weight_bytes, report.float_weight_bytes * 0.31);
  if (!LinkedFrozenEngine()->WhyNot({}, /*is_half=*/true).empty()) return;
  const FrozenNetwork whole(*model.network, {.batches = {32}});
  const FrozenNetwork bytes(*model.network, Int8(images_of(digits.train, 256)));
  const FrozenNetwork halves(*model.network, {.type = FrozenType::kFloat16, .batches = {32}});
  const std::vector<float> scores = halves.Run(x).ToVector<float>();
  int64_t right = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const auto row = scores.begin() + static_cast<int64_t>(i) * 10;
    right += std::max_element(row, row + 10) - row == labels[i];
  }
  const double accuracy = static_cast<double>(right) / static_cast<double>(labels.size());
  std::printf(
      "16 bits: accuracy %.2f %%, weights %lld bytes, packed %lld (f32 %lld, 8 bits %lld)\n",
      100 * accuracy, static_cast<long long>(halves.stats().weight_bytes),
      static_cast<long long>(halves.stats().shared_bytes),
      static_cast<long long>(whole.stats().shared_bytes),
      static_cast<long long>(bytes.stats().shared_bytes));
  EXPECT_GT(accuracy, *report.float_accuracy - 0.005);
  EXPECT_LT(halves.stats().weight_bytes, whole.stats().weight_bytes * 0.51);
  EXPECT_LT(halves.stats().shared_bytes, whole.stats().shared_bytes * 0.55);
  EXPECT_LT(bytes.stats().shared_bytes, whole.stats().shared_bytes * 0.3);
}

}  // namespace
}  // namespace tidepool::nn
