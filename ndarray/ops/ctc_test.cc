// CTC against all paths, one after the other.
#include "tidepool/ndarray/ops/ctc.h"

#include <cmath>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"

namespace tidepool {
namespace {

using testing::Each;
using testing::HasSubstr;
using Ints = std::vector<int64_t>;

NDArray IntsOf(const Ints& values, const Shape& shape) {
  return FromValues(absl::MakeConstSpan(values), shape);
}

// What a path says: repeats once, without blanks.
Ints Said(const Ints& path, int64_t blank) {
  Ints said;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] != blank && (i == 0 || path[i] != path[i - 1])) said.push_back(path[i]);
  }
  return said;
}

struct Sums {
  double probability = 0;
  std::vector<double> shares;  // [frames, classes]: of the paths that go through there
};

Sums SumOfPaths(const std::vector<double>& x, int64_t frames, int64_t classes, const Ints& labels,
                int64_t blank) {
  Sums sums{0, std::vector<double>(static_cast<size_t>(frames * classes))};
  Ints path(static_cast<size_t>(frames));
  int64_t paths = 1;
  for (int64_t t = 0; t < frames; ++t) paths *= classes;
  for (int64_t number = 0; number < paths; ++number) {
    double product = 1;
    for (int64_t t = 0, rest = number; t < frames; ++t, rest /= classes) {
      path[static_cast<size_t>(t)] = rest % classes;
      product *= std::exp(x[static_cast<size_t>(t * classes + rest % classes)]);
    }
    if (Said(path, blank) != labels) continue;
    sums.probability += product;
    for (int64_t t = 0; t < frames; ++t)
      sums.shares[static_cast<size_t>(t * classes + path[static_cast<size_t>(t)])] += product;
  }
  return sums;
}

TEST(Ctc, IsTheSumOfAllPaths) {
  std::mt19937_64 random(20261126);
  const auto draw = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  int impossible = 0, empty = 0;
  for (int round = 0; round < 150; ++round) {
    const int64_t batch = draw(1, 3), time = draw(1, 6), classes = draw(2, 4), most = draw(0, 4),
                  blank = draw(0, classes - 1);
    const NDArray x =
        LogSoftmax(RandomNormal({batch, time, classes}, 0, 2, DType::kFloat64, random()));
    Ints labels(static_cast<size_t>(batch * most)), inputs, counts;
    for (int64_t& label : labels) label = (blank + draw(1, classes - 1)) % classes;
    for (int64_t b = 0; b < batch; ++b)
      inputs.push_back(draw(0, time)), counts.push_back(draw(0, most));
    const NDArray of_labels = IntsOf(labels, {batch, most}), of_inputs = IntsOf(inputs, {batch}),
                  of_counts = IntsOf(counts, {batch});
    const NDArray weights = RandomUniform({batch}, 0.5, 2, DType::kFloat64, random());
    const std::vector<double> loss =
        CtcLoss(x, of_labels, of_inputs, of_counts, {blank}, Labels::kChecked).ToVector<double>();
    const std::vector<double> forgiven =
        CtcLoss(x, of_labels, of_inputs, of_counts, {blank, true}).ToVector<double>();
    const NDArray gradient = CtcLossGrad(x, of_labels, of_inputs, of_counts, weights, {blank});
    const std::vector<double> values = x.ToVector<double>(), found = gradient.ToVector<double>();
    for (int64_t b = 0; b < batch; ++b) {
      const auto i = static_cast<size_t>(b);
      const auto first = values.begin() + b * time * classes;
      const Ints wanted(labels.begin() + b * most, labels.begin() + b * most + counts[i]);
      const Sums sums =
          SumOfPaths({first, first + time * classes}, inputs[i], classes, wanted, blank);
      const bool possible = sums.probability > 0;
      impossible += !possible;
      empty += counts[i] == 0 || inputs[i] == 0;
      if (possible) {
        EXPECT_NEAR(loss[i], -std::log(sums.probability), 1e-11) << round;
        EXPECT_EQ(forgiven[i], loss[i]);
      } else {
        EXPECT_EQ(loss[i], std::numeric_limits<double>::infinity());
        EXPECT_EQ(forgiven[i], 0);
      }
      for (int64_t e = 0; e < time * classes; ++e) {
        const bool inside = possible && e < inputs[i] * classes;
        const double share = inside ? sums.shares[static_cast<size_t>(e)] / sums.probability : 0;
        EXPECT_NEAR(found[static_cast<size_t>(b * time * classes + e)],
                    -weights.At<double>({b}) * share, 1e-11)
            << round;
      }
    }
  }
  EXPECT_GT(impossible, 20);
  EXPECT_GT(empty, 20);
}

// A thousand frames, whose probabilities no double holds: blanks alone, so that the loss is known.
TEST(Ctc, DoesNotUnderflow) {
  const NDArray x = Full({1, 1000, 2}, -3.0);
  const NDArray none = Zeros({1, 0}, DType::kInt64), thousand = IntsOf({1000}, {1}),
                zero = IntsOf({0}, {1});
  EXPECT_FLOAT_EQ(CtcLoss(x, none, thousand, zero).At<float>({0}), 3000);
  const std::vector<float> gradient =
      CtcLossGrad(x, none, thousand, zero, Ones({1})).ToVector<float>();
  for (size_t t = 0; t < 1000; ++t) {
    EXPECT_EQ(gradient[2 * t], -1);
    EXPECT_EQ(gradient[2 * t + 1], 0);
  }
}

TEST(Ctc, NanReachesItsOwnExampleOnly) {
  NDArray x = LogSoftmax(RandomNormal({2, 4, 3}, 0, 1, DType::kFloat64, 5));
  x.mutable_data<double>()[1 * 12 + 2 * 3 + 1] = std::numeric_limits<double>::quiet_NaN();
  const NDArray labels = IntsOf({1, 2, 1, 2}, {2, 2}), counts = IntsOf({2, 2}, {2});
  const auto loss = [&](const Ints& frames) {
    return CtcLoss(x, labels, IntsOf(frames, {2}), counts).ToVector<double>();
  };
  EXPECT_TRUE(std::isfinite(loss({4, 4})[0]));
  EXPECT_TRUE(std::isnan(loss({4, 4})[1]));
  EXPECT_TRUE(std::isfinite(loss({4, 2})[1]));  // behind its last frame
  // Nobody asks for the gradient of the one with NaN.
  const NDArray weights = FromValues(absl::MakeConstSpan(std::vector<double>{1, 0}), {2});
  const std::vector<double> gradient =
      CtcLossGrad(x, labels, IntsOf({4, 4}, {2}), counts, weights).ToVector<double>();
  EXPECT_THAT(std::vector<double>(gradient.begin() + 12, gradient.end()), Each(0));
}

TEST(Ctc, LabelsAndLengthsAreChecked) {
  const NDArray x = Zeros({1, 3, 3});
  const auto message = [&](const Ints& labels, int64_t frames, int64_t count,
                           const CtcAttributes& attributes = {}) {
    const auto most = static_cast<int64_t>(labels.size());
    return std::string(CatchStatus([&] {
                         CtcLoss(x, IntsOf(labels, {1, most}), IntsOf({frames}, {1}),
                                 IntsOf({count}, {1}), attributes);
                       }).message());
  };
  EXPECT_EQ(message({1, 2}, 3, 2), "");
  EXPECT_EQ(message({1, -5}, 3, 1), "");  // behind its last label
  EXPECT_EQ(message({1, 3}, 3, 2),
            "Op [ctc_loss]: example 0: label 1 is 3, expected 0 to 2 without the blank, 0");
  EXPECT_THAT(message({0}, 3, 1), HasSubstr("label 0 is 0"));
  EXPECT_EQ(message({0}, 3, 1, {2}), "");
  EXPECT_EQ(message({1}, 4, 1), "Op [ctc_loss]: example 0: input length 4, expected 0 to 3");
  EXPECT_EQ(message({1}, 3, 2), "Op [ctc_loss]: example 0: label length 2, expected 0 to 1");
  EXPECT_THAT(message({1, 1, 2}, 3, 3),
              HasSubstr("its 3 labels need 4 frames and it has 3; expected as many, or zero_inf"));
  EXPECT_EQ(message({1, 1, 2}, 3, 3, {0, true}), "");
  EXPECT_EQ(message({1}, 3, 1, {3}), "Op [ctc_loss]: blank is 3, expected one of 3 classes");
  // Unchecked, what is out of range has no probability and reads nothing else.
  const NDArray far = IntsOf({99}, {1, 1}), many = IntsOf({77}, {1});
  EXPECT_EQ(CtcLoss(x, far, many, many, {}, Labels::kChecked).At<float>({0}),
            std::numeric_limits<float>::infinity());
  EXPECT_THAT(CtcLossGrad(x, far, many, many, Ones({1})).ToVector<float>(), Each(0));
  EXPECT_THAT(std::string(CatchStatus([&] {
                            CtcLoss(x, far, many, IntsOf({1, 1}, {2}));
                          }).message()),
              HasSubstr("label_lengths has shape [2], expected [1]"));
}

}  // namespace
}  // namespace tidepool
