// Normalizers of several arrays against a Normalizer of each alone.
#include "tidepool/nn/data/multi_normalizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/example_iterator.h"

namespace tidepool::nn {
namespace {

// Pixels, numbers, steps with a mask; and two outputs.
MultiDataSet Arrays() {
  MultiDataSet set;
  NDArray pixels({6, 2}, DType::kUInt8), numbers({6, 3}, DType::kFloat32),
      steps({6, 2, 1}, DType::kFloat32), mask({6, 2}, DType::kFloat32), classes({6}, DType::kInt64),
      prices({6, 1}, DType::kFloat64);
  for (int64_t i = 0; i < 6; ++i) {
    for (int64_t k = 0; k < 2; ++k) {
      pixels.mutable_data<uint8_t>()[2 * i + k] = static_cast<uint8_t>(40 * i + k);
      const bool is_there = k == 0 || i % 2 == 0;
      mask.mutable_data<float>()[2 * i + k] = is_there ? 1.0f : 0.0f;
      steps.mutable_data<float>()[2 * i + k] = is_there ? static_cast<float>(i + 10 * k) : 1e6f;
    }
    for (int64_t k = 0; k < 3; ++k) {
      numbers.mutable_data<float>()[3 * i + k] = static_cast<float>(i * i - 7 * k);
    }
    classes.mutable_data<int64_t>()[i] = i % 2;
    prices.mutable_data<double>()[i] = 1000.0 + static_cast<double>(i) / 8;
  }
  set.features = {pixels, numbers, steps};
  set.labels = {classes, prices};
  set.features_masks = {NDArray(), NDArray(), mask};
  return set;
}

std::shared_ptr<MultiArrayExamples> Examples6() {
  return std::make_shared<MultiArrayExamples>(Arrays());
}

MultiNormalizer Four() {
  return MultiNormalizer(
      {Normalizer::ImageScale(), Normalizer::Standardize(), Normalizer::MinMax(-1, 1)},
      {std::nullopt, Normalizer::Standardize()});
}

// What a Normalizer of that array alone makes of it.
std::vector<float> Alone(Normalizer normalizer, NDArray array, NDArray mask) {
  FunctionIterator<DataSet> once(1, [&](int64_t) {
    DataSet batch(array.Dup(), NDArray());
    batch.features_mask = mask;
    return batch;
  });
  normalizer.Fit(once);
  NDArray copy = array.Dup();
  normalizer.ApplyToFeatures(copy);
  return copy.ToVector<float>();
}

TEST(MultiNormalizer, AnArrayThatIsThereTwiceIsNormalizedOnce) {
  NDArray numbers = Arrays().features[1];
  const std::vector<float> before = numbers.ToVector<float>();
  const std::vector<float> expected = Alone(Normalizer::Standardize(), numbers, NDArray());
  MultiNormalizer scales({Normalizer::Standardize(), Normalizer::Standardize()},
                         {std::nullopt, Normalizer::Standardize()});
  FunctionIterator<MultiDataSet> sets(1, [&](int64_t) {
    MultiDataSet set;
    set.features = {numbers, numbers};
    set.labels = {numbers, numbers};
    return set;
  });
  scales.Fit(sets);
  MultiDataSet set = *sets.Next();
  scales.Apply(set);
  EXPECT_EQ(set.features[0].ToVector<float>(), expected);
  EXPECT_EQ(set.features[1].ToVector<float>(), expected);
  EXPECT_EQ(set.labels[0].ToVector<float>(), before);
  EXPECT_EQ(set.labels[1].ToVector<float>(), expected);
}

TEST(MultiNormalizer, EachArrayIsAsByANormalizerOfItsOwn) {
  ExampleIterator<MultiDataSet> batches(Examples6(), {.batch_size = 4});
  MultiNormalizer scales = Four();
  EXPECT_FALSE(scales.is_fitted());
  scales.Fit(batches);
  EXPECT_TRUE(scales.is_fitted());
  EXPECT_EQ(batches.position(), 0);
  MultiDataSet all = Arrays(), before = Arrays();
  scales.Apply(all);
  EXPECT_EQ(all.features[0].ToVector<float>()[2], 40.0f / 255);
  EXPECT_EQ(all.features[1].ToVector<float>(),
            Alone(Normalizer::Standardize(), before.features[1], {}));
  EXPECT_EQ(all.features[2].ToVector<float>(),
            Alone(Normalizer::MinMax(-1, 1), before.features[2], before.features_masks[2]));
  EXPECT_EQ(all.labels[0].ToVector<int64_t>(), before.labels[0].ToVector<int64_t>());
  EXPECT_NEAR(all.labels[1].ToVector<double>()[0], -1.4638501094227998, 1e-12);
  scales.RevertLabels(1, all.labels[1]);
  scales.RevertLabels(0, all.labels[0]);
  scales.RevertFeatures(1, all.features[1]);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(all.labels[1].ToVector<double>()[i], before.labels[1].ToVector<double>()[i], 1e-9);
    EXPECT_NEAR(all.features[1].ToVector<float>()[i], before.features[1].ToVector<float>()[i],
                1e-4);
  }
  EXPECT_EQ(all.labels[0].ToVector<int64_t>(), before.labels[0].ToVector<int64_t>());
  // And back from text.
  const MultiNormalizer same = MultiNormalizer::FromText(scales.ToText());
  EXPECT_EQ(same.ToText(), scales.ToText());
  MultiDataSet again = Arrays();
  same.Apply(again);
  EXPECT_EQ(again.features[2].ToVector<float>(),
            Alone(Normalizer::MinMax(-1, 1), before.features[2], before.features_masks[2]));
}

TEST(MultiNormalizer, BatchesMadeAheadAreNormalizedInTheirSlots) {
  ExampleIterator<MultiDataSet> batches(Examples6(), {.batch_size = 2});
  MultiNormalizer scales = Four();
  scales.Fit(batches);
  NormalizedMultiIterator normalized(batches, scales);
  AsyncMultiDataSetIterator ahead(normalized, {.prefetch = 2, .producers = 2});
  MultiDataSet all = Arrays();
  scales.Apply(all);
  std::vector<float> found;
  while (const std::optional<MultiDataSet> batch = ahead.Next()) {
    EXPECT_TRUE(batch->features[0].IsAttached());
    const std::vector<float> values = batch->features[1].ToVector<float>();
    found.insert(found.end(), values.begin(), values.end());
  }
  EXPECT_EQ(found, all.features[1].ToVector<float>());
}

TEST(MultiNormalizer, WhatIsWrongNamesTheArray) {
  ExampleIterator<MultiDataSet> batches(Examples6(), {.batch_size = 4});
  MultiNormalizer classes({}, {Normalizer::Standardize()});
  EXPECT_THAT(ErrorOf([&] { classes.Fit(batches); }),
              IsError(absl::StatusCode::kInvalidArgument, {"labels 0: ", "found i64"}));
  batches.Reset();
  MultiNormalizer many({{}, {}, {}, Normalizer::Standardize()});
  EXPECT_THAT(ErrorOf([&] { many.Fit(batches); }),
              IsError(absl::StatusCode::kInvalidArgument, {"features 3: ", "found 3 arrays"}));
  MultiNormalizer none = Four();
  FunctionIterator<MultiDataSet> nothing(0, [](int64_t) { return Arrays(); });
  EXPECT_THAT(ErrorOf([&] { none.Fit(nothing); }),
              IsError(absl::StatusCode::kFailedPrecondition, {"features 1: ", "no examples"}));
  EXPECT_FALSE(none.is_fitted());
  EXPECT_THAT(ErrorOf([&] { NormalizedMultiIterator(batches, none); }),
              IsError(absl::StatusCode::kFailedPrecondition, {"Fit() first"}));
  EXPECT_THAT(ErrorOf([] { MultiNormalizer({Normalizer::Standardize(true)}); }),
              IsError(absl::StatusCode::kInvalidArgument, {"features 0: ", "labels_too"}));
  const std::string one = ";" + Normalizer::ImageScale().ToText();
  for (const std::string& bad :
       {std::string(), std::string("tidepool-multi-normalizer-1"),
        std::string("tidepool-multi-normalizer-1 1 0"), "tidepool-multi-normalizer-1 0 0" + one,
        "tidepool-multi-normalizer-1 1 1" + one, "tidepool-multi-normalizer-1 -1 2" + one,
        "tidepool-multi-normalizer-1 18446744073709551615 2" + one, one.substr(1),
        std::string("tidepool-multi-normalizer-1 1 0;nothing"),
        "tidepool-multi-normalizer-1 1 0" + one + " labels 1 0 1 0"}) {
    EXPECT_THAT(ErrorOf([&] { MultiNormalizer::FromText(bad); }),
                IsError(absl::StatusCode::kDataLoss, {"multi-normalizer"}))
        << bad;
  }
}

}  // namespace
}  // namespace tidepool::nn
