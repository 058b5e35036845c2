#include "tidepool/nn/data/normalizer.h"

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/data/multi_normalizer.h"

namespace tidepool::nn {
namespace {

using ::absl::StatusCode;

template <typename T>
NDArray Of(const std::vector<double>& values, const Shape& shape) {
  NDArray array(shape, DTypeOf<T>::value);
  for (size_t i = 0; i < values.size(); ++i) array.mutable_data<T>()[i] = static_cast<T>(values[i]);
  return array;
}

// [200, 3]: a large offset with a small spread, an ordinary column, a constant one; labels [200,
// 1].
const std::vector<double>& Features() {
  static const std::vector<double> values = [] {
    std::vector<double> made;
    for (int i = 0; i < 200; ++i) {
      made.push_back(1e9 + std::sin(i));
      made.push_back(i * 0.25 - 3);
      made.push_back(7);
    }
    return made;
  }();
  return values;
}

std::shared_ptr<const Examples<DataSet>> Table() {
  std::vector<double> labels;
  for (int i = 0; i < 200; ++i) labels.push_back(100 + 10 * std::cos(i));
  return std::make_shared<ArrayExamples>(Of<double>(Features(), {200, 3}),
                                         Of<float>(labels, {200, 1}));
}

// Column `column` of all batches.
std::vector<double> ColumnOf(DataSetIterator& batches, int64_t column) {
  std::vector<double> values;
  while (std::optional<DataSet> batch = batches.Next()) {
    for (int64_t i = 0; i < batch->size(); ++i)
      values.push_back(batch->features.At<double>({i, column}));
  }
  batches.Reset();
  return values;
}

// Two passes in long double: the oracle.
std::pair<double, double> MeanAndDeviation(const std::vector<double>& values) {
  long double mean = 0, squares = 0;
  for (const double value : values) mean += value;
  mean /= static_cast<long double>(values.size());
  for (const double value : values) squares += (value - mean) * (value - mean);
  return {static_cast<double>(mean),
          static_cast<double>(std::sqrt(squares / static_cast<long double>(values.size())))};
}

TEST(Normalizer, StandardizesAndRevertsWhateverTheBatches) {
  for (const int64_t batch_size : {7, 200}) {
    ExampleIterator<DataSet> plain(Table(), {.batch_size = batch_size});
    Normalizer normalizer = Normalizer::Standardize(/*labels_too=*/true);
    EXPECT_THAT(ErrorOf([&] { normalizer.ToText(); }),
                IsError(StatusCode::kFailedPrecondition, {"Fit() first"}));
    EXPECT_THROW(NormalizedIterator(plain, normalizer), Error);
    normalizer.Fit(plain);
    NormalizedIterator normalized(plain, normalizer);
    EXPECT_TRUE(normalized.goes_by_index());
    for (int64_t column = 0; column < 3; ++column) {
      const auto [mean, deviation] = MeanAndDeviation(ColumnOf(plain, column));
      std::vector<double> expected = ColumnOf(plain, column);
      for (double& value : expected) value = (value - mean) / (deviation > 0 ? deviation : 1);
      const std::vector<double> found = ColumnOf(normalized, column);
      ASSERT_EQ(found.size(), 200u);
      // 1e9 has a spacing of 1.2e-7 in double.
      for (size_t i = 0; i < 200; ++i)
        ASSERT_NEAR(found[i], expected[i], column == 0 ? 1e-6 : 1e-12) << column;
    }
    AsyncDataSetIterator ahead(normalized, {.prefetch = 3, .producers = 2});
    std::optional<DataSet> batch = ahead.Next();
    EXPECT_LT(std::abs(batch->labels.At<float>({0, 0})), 3);
    normalizer.RevertLabels(batch->labels);
    normalizer.RevertFeatures(batch->features);
    EXPECT_FLOAT_EQ(batch->labels.At<float>({3, 0}), 100 + 10 * std::cos(3.0f));
    for (int64_t column = 0; column < 3; ++column) {
      EXPECT_NEAR(batch->features.At<double>({5, column}),
                  Features()[static_cast<size_t>(15 + column)], 1e-6);
    }
  }
}

TEST(Normalizer, MinMaxAndImages) {
  ExampleIterator<DataSet> plain(Table(), {.batch_size = 64});
  Normalizer normalizer = Normalizer::MinMax(-1, 3);
  normalizer.Fit(plain);
  NormalizedIterator normalized(plain, normalizer);
  const std::vector<double> ordinary = ColumnOf(normalized, 1);
  EXPECT_EQ(ordinary.front(), -1);
  EXPECT_EQ(ordinary.back(), 3);
  EXPECT_NEAR(ordinary[50], -1 + 4 * 50.0 / 199, 1e-12);
  EXPECT_EQ(ColumnOf(normalized, 2)[9], -1);
  NDArray back = Of<double>({-1, 3, -1, 0, 0, 0}, {2, 3});
  normalizer.RevertFeatures(back);
  EXPECT_NEAR(back.At<double>({0, 1}), 199 * 0.25 - 3, 1e-12);
  EXPECT_NEAR(back.At<double>({1, 1}), -3 + 199 * 0.25 / 4, 1e-12);
  EXPECT_EQ(back.At<double>({0, 2}), 7);
  EXPECT_THAT(ErrorOf([&] {
                NDArray other = Ones({2, 4});
                normalizer.ApplyToFeatures(other);
              }),
              IsError(StatusCode::kInvalidArgument, {"features", "4 columns, expected 3"}));
  EXPECT_THROW(normalizer.RevertLabels(*std::make_unique<NDArray>(Ones({2, 1}))), Error);
  EXPECT_THROW(Normalizer::MinMax(1, 1), Error);
  EXPECT_THROW(Normalizer::MinMax(0, std::numeric_limits<double>::infinity()), Error);

  const Normalizer images = Normalizer::ImageScale(-1, 1);
  NDArray pixels = Of<uint8_t>({0, 51, 255, 102}, {1, 2, 2, 1});
  const NDArray bytes = pixels;
  images.ApplyToFeatures(pixels);
  EXPECT_THAT(pixels.ToVector<float>(), ::testing::ElementsAre(-1.0f, -0.6f, 1.0f, -0.2f));
  EXPECT_EQ(bytes.At<uint8_t>({0, 0, 1, 0}), 51);
}

// Steps that are not there do not count, and each feature of a step has its own scale.
TEST(Normalizer, MasksLeaveStepsOut) {
  const NDArray series = Of<float>({1, 10, 3, 30, 999, 999, 5, 50, 999, 999, 999, 999}, {2, 3, 2});
  const NDArray mask = Of<float>({1, 1, 0, 1, 0, 0}, {2, 3});
  ExampleIterator<DataSet> batches(std::make_shared<ArrayExamples>(series, Ones({2}), mask),
                                   {.batch_size = 1});
  Normalizer normalizer = Normalizer::Standardize();
  normalizer.Fit(batches);
  DataSet first = *batches.Next();
  normalizer.Apply(first);
  EXPECT_FLOAT_EQ(first.features.At<float>({0, 0, 0}), -std::sqrt(1.5f));
  EXPECT_FLOAT_EQ(first.features.At<float>({0, 1, 1}), 0);
}

// Whole examples, by both shapes that losses and evaluations take, and single values.
TEST(Normalizer, MasksLeaveExamplesAndValuesOut) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto fitted = [](const NDArray& features, const NDArray& features_mask,
                         const NDArray& labels, const NDArray& labels_mask, Normalizer normalizer) {
    ExampleIterator<DataSet> batches(
        std::make_shared<ArrayExamples>(features, labels, features_mask, labels_mask),
        {.batch_size = 2});
    normalizer.Fit(batches);
    return normalizer.ToText();
  };
  const NDArray features = Of<float>({1, 5, nan, 999, 3, 7}, {3, 2});
  const NDArray labels = Of<float>({10, 20, nan}, {3, 1});
  for (const Normalizer& normalizer :
       {Normalizer::Standardize(/*labels_too=*/true), Normalizer::MinMax(0, 1, true)}) {
    const std::string expected = fitted(Of<float>({1, 5, 3, 7}, {2, 2}), NDArray(),
                                        Of<float>({10, 20}, {2, 1}), NDArray(), normalizer);
    for (const Shape& shape : {Shape({3}), Shape({3, 1})}) {
      EXPECT_EQ(fitted(features, Of<float>({1, 0, 1}, shape), labels, Of<float>({1, 0.5, 0}, shape),
                       normalizer),
                expected);
    }
  }
  // Each value for itself; of a column without any 0 is taken for granted.
  const Normalizer min_max = Normalizer::MinMax(1, 2);
  EXPECT_EQ(fitted(features, Of<float>({1, 0, 0, 0, 1, 0}, {3, 2}), labels, NDArray(), min_max),
            "tidepool-normalizer-1 min_max 1 2 features 2 1 0 0.5 1 1 1");
  EXPECT_EQ(fitted(features, Of<float>({1, 1, 0, 0, 0, 1}, {3, 2}), labels, NDArray(),
                   Normalizer::Standardize()),
            "tidepool-normalizer-1 standardize 0 1 features 2 1 6 1 1 0 0");
  // Examples of series.
  const NDArray series = Of<float>({1, 2, 3, 4, nan, nan, nan, nan}, {2, 2, 2});
  EXPECT_EQ(fitted(series, Of<float>({1, 0}, {2}), Ones({2}), NDArray(), min_max),
            fitted(series.Slice(0, 0, 1), NDArray(), Ones({1}), NDArray(), min_max));
  for (const NDArray& mask : {Ones({3, 3}), Ones({3, 2, 2}), NDArray({3}, DType::kUInt8)}) {
    EXPECT_THAT(ErrorOf([&] { fitted(features, mask, labels, NDArray(), min_max); }),
                IsError(StatusCode::kInvalidArgument,
                        {"normalizer: mask of features: found ", "begins with"}));
  }
  EXPECT_THAT(ErrorOf([&] { fitted(features, Zeros({3}), labels, NDArray(), min_max); }),
              IsError(StatusCode::kFailedPrecondition, {"no examples to fit"}));
}

// As autoencoders have them: one array, or views of one that overlap.
TEST(Normalizer, FeaturesAndLabelsOfOneArrayAreNormalizedOnce) {
  const std::vector<double> values = {1, 2, 3, 5, 4, 9, 0, 7};
  FunctionIterator<DataSet> sets(1, [&](int64_t) {
    return DataSet(Of<float>(values, {4, 2}), Of<float>(values, {4, 2}));
  });
  for (const bool labels_too : {false, true}) {
    Normalizer normalizer = Normalizer::Standardize(labels_too);
    normalizer.Fit(sets);
    DataSet apart = *sets.Next();
    sets.Reset();
    normalizer.Apply(apart);
    DataSet same = *sets.Next();
    sets.Reset();
    same.labels = same.features;
    normalizer.Apply(same);
    EXPECT_EQ(same.features.ToVector<float>(), apart.features.ToVector<float>());
    EXPECT_EQ(same.labels.ToVector<float>(), apart.labels.ToVector<float>());

    const NDArray both = Of<float>(values, {4, 2});
    DataSet views(both.Slice(0, 0, 3), both.Slice(0, 1, 4));
    normalizer.Apply(views);
    EXPECT_EQ(views.features.ToVector<float>(), apart.features.Slice(0, 0, 3).ToVector<float>());
    EXPECT_EQ(views.labels.ToVector<float>(), apart.labels.Slice(0, 1, 4).ToVector<float>());
    // Parts that have nothing in common are changed in their places.
    const NDArray parts = Of<float>(values, {4, 2});
    DataSet halves(parts.Slice(0, 0, 2), parts.Slice(0, 2, 4));
    normalizer.Apply(halves);
    EXPECT_EQ(halves.labels.raw_data(), parts.raw_data() + 4 * sizeof(float));
  }
}

TEST(Normalizer, WhatTheProgramHasIsNotChangedByAnIterator) {
  const NDArray all = Of<float>({1, 2, 3, 5, 4, 9, 0, 7}, {4, 2});
  const std::vector<float> before = all.ToVector<float>();
  FunctionIterator<DataSet> views(2, [&](int64_t i) {
    return DataSet(all.Slice(0, 2 * i, 2 * i + 2), Ones({2, 1}));
  });
  Normalizer normalizer = Normalizer::Standardize();
  normalizer.Fit(views);
  NormalizedIterator normalized(views, normalizer);
  std::vector<std::vector<float>> epochs(2);
  for (std::vector<float>& epoch : epochs) {
    while (const std::optional<DataSet> batch = normalized.Next()) {
      const std::vector<float> values = batch->features.ToVector<float>();
      epoch.insert(epoch.end(), values.begin(), values.end());
    }
    normalized.Reset();
  }
  EXPECT_EQ(epochs[0], epochs[1]);
  EXPECT_EQ(all.ToVector<float>(), before);

  const MultiNormalizer several({normalizer});
  FunctionIterator<MultiDataSet> sets(1, [&](int64_t) {
    MultiDataSet set;
    set.features.push_back(all);
    set.labels.push_back(Ones({4, 1}));
    return set;
  });
  NormalizedMultiIterator normalized_sets(sets, several);
  EXPECT_EQ(normalized_sets.Next()->features[0].ToVector<float>(), epochs[0]);
  EXPECT_EQ(all.ToVector<float>(), before);
}

// A second try would scale features twice.
TEST(Normalizer, ABatchIsNormalizedAsAWholeOrNotAtAll) {
  ExampleIterator<DataSet> batches(
      std::make_shared<ArrayExamples>(Of<float>({1, 2, 3, 5}, {2, 2}), Ones({2, 1})),
      {.batch_size = 2});
  Normalizer normalizer = Normalizer::Standardize(/*labels_too=*/true);
  normalizer.Fit(batches);
  for (const NDArray& labels : {Ones({2, 3}), NDArray({2, 1}, DType::kInt64)}) {
    DataSet batch = *batches.Next();
    batches.Reset();
    const std::vector<float> before = batch.features.ToVector<float>();
    batch.labels = labels;
    EXPECT_THAT(ErrorOf([&] { normalizer.Apply(batch); }),
                IsError(StatusCode::kInvalidArgument, {"labels"}));
    EXPECT_EQ(batch.features.ToVector<float>(), before);
  }
}

TEST(Normalizer, WhatCannotBeFittedLeavesWhatWasFitted) {
  ExampleIterator<DataSet> good(Table(), {.batch_size = 64});
  Normalizer normalizer = Normalizer::Standardize();
  normalizer.Fit(good);
  const std::string before = normalizer.ToText();
  std::vector<double> values(6, 1);
  values[5] = std::nan("");
  ExampleIterator<DataSet> bad(
      std::make_shared<ArrayExamples>(Of<float>(values, {3, 2}), Ones({3})), {.batch_size = 2});
  EXPECT_THAT(ErrorOf([&] { normalizer.Fit(bad); }),
              IsError(StatusCode::kDataLoss, {"features", "column 1", "nan"}));
  ExampleIterator<DataSet> none(std::make_shared<ArrayExamples>(Ones({0, 2}), Ones({0})));
  EXPECT_THAT(ErrorOf([&] { normalizer.Fit(none); }),
              IsError(StatusCode::kFailedPrecondition, {"no examples"}));
  EXPECT_EQ(normalizer.ToText(), before);
}

TEST(Normalizer, ColumnsThatNoDoubleScalesAreRefused) {
  const auto fit = [](Normalizer normalizer, std::vector<double> values) {
    const auto count = static_cast<int64_t>(values.size());
    ExampleIterator<DataSet> batches(
        std::make_shared<ArrayExamples>(Of<double>(values, {count, 1}), Ones({count})));
    normalizer.Fit(batches);
    const std::string text = normalizer.ToText();
    EXPECT_EQ(Normalizer::FromText(text).ToText(), text);
  };
  for (const std::vector<double>& values : {std::vector<double>{0, 1e-310, 5e-311, 0},
                                            {-1e308, 1e308, 0, 1},
                                            {-1e200, 1e200, 0, 1},
                                            {1e-170, 2e-170, 3e-170}}) {
    for (const Normalizer& normalizer : {Normalizer::Standardize(), Normalizer::MinMax()}) {
      EXPECT_THAT(ErrorOf([&] { fit(normalizer, values); }),
                  IsError(StatusCode::kDataLoss, {"features: column 0: found values from"}));
    }
  }
  EXPECT_THAT(ErrorOf([&] {
                fit(Normalizer::MinMax(0, 1e-200), {0, 1e130});
              }),
              IsError(StatusCode::kDataLoss, {"column 0"}));
  for (const auto& [high, greatest] : {std::pair(1e-300, 1e300), std::pair(1e300, 1e-300)}) {
    EXPECT_THAT(ErrorOf([&] { Normalizer::ImageScale(0, high, greatest); }),
                IsError(StatusCode::kInvalidArgument, {"a normal number"}));
  }
  // Far from 0, and of one value alone.
  fit(Normalizer::Standardize(), {-1e139, 1e139, 3});
  fit(Normalizer::Standardize(), {1e-139, 3e-139, 2e-139});
  fit(Normalizer::MinMax(), {1e-300, 1e-300});
  fit(Normalizer::Standardize(), {1e300, 1e300});
}

TEST(Normalizer, TextHoldsItExactlyAndOtherTextIsRefused) {
  ExampleIterator<DataSet> batches(Table(), {.batch_size = 64});
  Normalizer standardize = Normalizer::Standardize(true), min_max = Normalizer::MinMax(0.1, 0.7);
  standardize.Fit(batches);
  min_max.Fit(batches);
  for (const Normalizer& normalizer : {standardize, min_max, Normalizer::ImageScale()}) {
    const std::string text = normalizer.ToText();
    const Normalizer again = Normalizer::FromText(text);
    EXPECT_EQ(again.ToText(), text);
    DataSet a{Of<double>(Features(), {200, 3}), Of<float>(std::vector<double>(200, 90), {200, 1})};
    DataSet b{Of<double>(Features(), {200, 3}), Of<float>(std::vector<double>(200, 90), {200, 1})};
    normalizer.Apply(a);
    again.Apply(b);
    EXPECT_EQ(a.features.ToVector<double>(), b.features.ToVector<double>());
    EXPECT_EQ(a.labels.ToVector<float>(), b.labels.ToVector<float>());
    // Every text that ends too early, or has one byte changed, is refused or is another
    // normalizer's.
    for (size_t i = 0; i < text.size(); ++i) {
      for (std::string changed :
           {text.substr(0, i), text.substr(0, i) + '!' + text.substr(i + 1)}) {
        try {
          const std::string read = Normalizer::FromText(changed).ToText();
          EXPECT_EQ(Normalizer::FromText(read).ToText(), read);
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), StatusCode::kDataLoss);
        }
      }
    }
  }
  for (const char* text : {"", "x", "tidepool-normalizer-1 average 0 1 features 1 0 1 0",
                           "tidepool-normalizer-1 min_max 1 0 features 1 0 1 0",
                           "tidepool-normalizer-1 min_max 0 1 features 4000000000000000000 0 1 0",
                           "tidepool-normalizer-1 min_max 0 1 features 1 0 0 0",
                           "tidepool-normalizer-1 min_max 0 1 features 1 0 nan 0",
                           "tidepool-normalizer-1 min_max 0 1 features 1 0 1 0\n",
                           "tidepool-normalizer-1 min_max 0 1 features 1 0 1\t 0",
                           "tidepool-normalizer-1 min_max 0 1 features 1 0 +.6 0",
                           "tidepool-normalizer-1 min_max 0 1 features 1 0x0p0 1 0",
                           "tidepool-normalizer-1 min_max 0 1 features \n1 0 1 0",
                           "tidepool-normalizer-1 min_max 0 1 features +1 0 1 0",
                           "tidepool-normalizer-1 image_scale 0 1 features 2 0 0 1 1 0 0",
                           "tidepool-normalizer-1 min_max 0 1 features 1 0 1 0 x"}) {
    EXPECT_THAT(ErrorOf([&] { Normalizer::FromText(text); }),
                IsError(StatusCode::kDataLoss, {"normalizer: word"}))
        << text;
  }
}

}  // namespace
}  // namespace tidepool::nn
