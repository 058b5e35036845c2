#include "tidepool/nn/data/example_iterator.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::nn {
namespace {

using ::absl::StatusCode;

// Example i is [i, i + 0.5], its label i.
std::shared_ptr<const Examples<DataSet>> Numbered(int64_t count) {
  NDArray features({count, 2}, DType::kFloat32), labels({count}, DType::kInt64);
  for (int64_t i = 0; i < count; ++i) {
    features.mutable_data<float>()[2 * i] = static_cast<float>(i);
    features.mutable_data<float>()[2 * i + 1] = static_cast<float>(i) + 0.5f;
    labels.mutable_data<int64_t>()[i] = i;
  }
  return std::make_shared<ArrayExamples>(features, labels);
}

using Batches = std::vector<std::vector<int64_t>>;

Batches EpochOf(DataSetIterator& iterator) {
  Batches batches;
  while (std::optional<DataSet> batch = iterator.Next()) {
    batches.push_back(batch->labels.ToVector<int64_t>());
    for (int64_t i = 0; i < batch->size(); ++i) {
      EXPECT_EQ(batch->features.At<float>({i, 1}),
                static_cast<float>(batches.back()[static_cast<size_t>(i)]) + 0.5f);
    }
  }
  return batches;
}

TEST(ExampleIterator, InOrderUnlessASeedSaysOtherwiseAndAnotherOrderEachEpoch) {
  ExampleIterator<DataSet> plain(Numbered(7), {.batch_size = 3});
  for (int epoch = 0; epoch < 2; ++epoch, plain.Reset()) {
    EXPECT_EQ(EpochOf(plain), (Batches{{0, 1, 2}, {3, 4, 5}, {6}}));
  }
  const auto examples = Numbered(50);
  ExampleIterator<DataSet> shuffled(examples, {.batch_size = 8, .seed = 5});
  std::vector<Batches> epochs;
  for (int epoch = 0; epoch < 3; ++epoch, shuffled.Reset()) {
    epochs.push_back(EpochOf(shuffled));
    std::set<int64_t> seen;
    for (const std::vector<int64_t>& batch : epochs.back()) seen.insert(batch.begin(), batch.end());
    EXPECT_EQ(seen.size(), 50u);
  }
  EXPECT_NE(epochs[0], epochs[1]);
  EXPECT_NE(epochs[1], epochs[2]);
  // Any place of a training can be gone on with.
  ExampleIterator<DataSet> resumed(examples, {.batch_size = 8, .seed = 5, .epoch = 1});
  resumed.Seek(2);
  EXPECT_EQ(EpochOf(resumed), Batches(epochs[1].begin() + 2, epochs[1].end()));
  resumed.StartEpoch(0);
  EXPECT_EQ(EpochOf(resumed), epochs[0]);
  EXPECT_THAT(ErrorOf([&] { resumed.Seek(8); }),
              IsError(StatusCode::kInvalidArgument, {"batch 8", "0 to 7"}));
  EXPECT_THROW(resumed.Make(7), Error);
  EXPECT_THROW(resumed.Make(-1), Error);
}

// The order is part of what results can be repeated by: these numbers stay.
TEST(ExampleIterator, TheOrderOfASeedIsTheSameEverywhere) {
  ExampleIterator<DataSet> shuffled(Numbered(10), {.batch_size = 10, .seed = 7, .epoch = 1});
  // By the same arithmetic in Python (SplitMix64, Fisher-Yates from the end).
  EXPECT_EQ(EpochOf(shuffled), (Batches{{2, 4, 9, 7, 8, 5, 0, 6, 3, 1}}));
}

TEST(ExampleIterator, WhatBecomesOfTheLastBatch) {
  const auto of = [](LastBatch last, int64_t count) {
    ExampleIterator<DataSet> iterator(Numbered(count), {.batch_size = 4, .last = last});
    return EpochOf(iterator);
  };
  EXPECT_EQ(of(LastBatch::kKeep, 6), (Batches{{0, 1, 2, 3}, {4, 5}}));
  EXPECT_EQ(of(LastBatch::kDrop, 6), (Batches{{0, 1, 2, 3}}));
  EXPECT_EQ(of(LastBatch::kFill, 6), (Batches{{0, 1, 2, 3}, {4, 5, 0, 1}}));
  EXPECT_EQ(of(LastBatch::kFill, 3), (Batches{{0, 1, 2, 0}}));
  EXPECT_EQ(of(LastBatch::kKeep, 0), Batches());
  for (const LastBatch last : {LastBatch::kKeep, LastBatch::kDrop, LastBatch::kFill}) {
    EXPECT_EQ(of(last, 8), (Batches{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  }
}

// For any number of ranks, examples and each policy: put together, the ranks' batches are those of
// one rank with a batch as large as all of theirs, all ranks have as many batches, and kKeep loses
// and doubles nothing.
TEST(ExampleIterator, RanksTogetherHaveTheBatchesOfOne) {
  int64_t refused = 0;
  for (int ranks = 1; ranks <= 5; ++ranks) {
    for (int64_t count = 1; count < 40; ++count) {
      for (const LastBatch last : {LastBatch::kKeep, LastBatch::kDrop, LastBatch::kFill}) {
        const auto examples = Numbered(count);
        Batching batching{.batch_size = 3, .seed = 11, .last = last, .epoch = 2, .ranks = ranks};
        if (last == LastBatch::kKeep && count % (3 * ranks) != 0 && count % (3 * ranks) < ranks) {
          EXPECT_THAT(ErrorOf([&] { ExampleIterator<DataSet>(examples, batching); }),
                      IsError(StatusCode::kInvalidArgument,
                              {"examples in the last batch of", "kDrop or kFill"}));
          ++refused;
          continue;
        }
        ExampleIterator<DataSet> alone(
            examples, {.batch_size = 3 * ranks, .seed = 11, .last = last, .epoch = 2});
        Batches together(static_cast<size_t>(alone.size()));
        for (int rank = 0; rank < ranks; ++rank) {
          batching.rank = rank;
          ExampleIterator<DataSet> part(examples, batching);
          const Batches batches = EpochOf(part);
          ASSERT_EQ(batches.size(), together.size());
          for (size_t i = 0; i < batches.size(); ++i) {
            ASSERT_GE(batches[i].size(), 1u);
            ASSERT_LE(batches[i].size(), 3u);
            together[i].insert(together[i].end(), batches[i].begin(), batches[i].end());
          }
        }
        ASSERT_EQ(together, EpochOf(alone));
        std::multiset<int64_t> seen;
        for (const std::vector<int64_t>& batch : together) seen.insert(batch.begin(), batch.end());
        const auto all = static_cast<size_t>(count);
        ASSERT_TRUE(last != LastBatch::kKeep || seen.size() == all);
        ASSERT_TRUE(last != LastBatch::kFill ||
                    std::set<int64_t>(seen.begin(), seen.end()).size() == all);
      }
    }
  }
  EXPECT_GT(refused, 20);
}

TEST(ExampleIterator, BatchesTogetherAreTheSameForAnyNumberOfRanks) {
  const auto examples = Numbered(45);
  const Batching together{.seed = 5, .epoch = 2, .together = 10};
  ExampleIterator<DataSet> one(examples, together);
  const Batches whole = EpochOf(one);
  ASSERT_EQ(whole.size(), 5u);
  for (const int ranks : {1, 2, 3, 4, 5}) {
    Batches joined(5);
    for (int rank = 0; rank < ranks; ++rank) {
      Batching part = together;
      part.rank = rank;
      part.ranks = ranks;
      ExampleIterator<DataSet> iterator(examples, part);
      // From any place, as a training is gone on with on other ranks than it was left on.
      iterator.Seek(1);
      const Batches batches = EpochOf(iterator);
      ASSERT_EQ(batches.size(), 4u);
      for (size_t i = 0; i < 4; ++i) {
        EXPECT_GE(batches[i].size(), whole[i + 1].size() / static_cast<size_t>(ranks));
        EXPECT_LE(batches[i].size(), whole[i + 1].size() / static_cast<size_t>(ranks) + 1);
        joined[i + 1].insert(joined[i + 1].end(), batches[i].begin(), batches[i].end());
      }
    }
    joined[0] = whole[0];
    EXPECT_EQ(joined, whole) << ranks << " ranks";
  }
  EXPECT_THAT(ErrorOf([&] { ExampleIterator<DataSet>(examples, {.ranks = 11, .together = 10}); }),
              IsError(StatusCode::kInvalidArgument, {"10 examples together for 11 ranks"}));
}

TEST(ExampleIterator, WrongOptionsAreRefused) {
  const auto examples = Numbered(5);
  const auto message = [&](const Batching& batching) {
    return ErrorOf([&] { ExampleIterator<DataSet>(examples, batching); }).message();
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message({.batch_size = 0}), HasSubstr("batch size 0"));
  EXPECT_THAT(message({.rank = 2, .ranks = 2}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(message({.rank = -1}), HasSubstr("rank -1"));
  EXPECT_THAT(message({.ranks = 0}), HasSubstr("rank 0 of 0"));
  EXPECT_THAT(message({.batch_size = std::numeric_limits<int64_t>::max(), .ranks = 4}),
              HasSubstr("product"));
  EXPECT_EQ(ExampleIterator<DataSet>(examples, {.batch_size = int64_t{1} << 62}).size(), 1);
  EXPECT_THROW(ExampleIterator<DataSet>(nullptr), Error);
  EXPECT_THROW(ExampleIterator<DataSet>(Numbered(0), {.last = LastBatch::kFill}), Error);
}

TEST(ArrayExamples, AnyTypeShapeAndLayoutWithMasks) {
  const NDArray features =
      Arange(0, 24).Reshape({3, 4, 2}).Transpose({1, 0, 2});  // [4, 3, 2], not dense
  NDArray labels({4}, DType::kUInt8), mask({4, 3}, DType::kFloat64);
  for (int64_t i = 0; i < 4; ++i) labels.mutable_data<uint8_t>()[i] = static_cast<uint8_t>(200 + i);
  for (int64_t i = 0; i < 12; ++i) mask.mutable_data<double>()[i] = static_cast<double>(i);
  const auto examples = std::make_shared<ArrayExamples>(features, labels, mask);
  ExampleIterator<DataSet> iterator(examples, {.batch_size = 3});
  iterator.Next();
  const std::optional<DataSet> last = iterator.Next();
  EXPECT_EQ(last->features.shape(), Shape({1, 3, 2}));
  EXPECT_EQ(last->features.ToVector<float>(), (std::vector<float>{6, 7, 14, 15, 22, 23}));
  EXPECT_EQ(last->labels.At<uint8_t>({0}), 203);
  EXPECT_EQ(last->features_mask.ToVector<double>(), (std::vector<double>{9, 10, 11}));
  EXPECT_FALSE(last->labels_mask.is_defined());
  EXPECT_THAT(ErrorOf([&] { ArrayExamples(features, Ones({3})); }),
              IsError(StatusCode::kInvalidArgument, {"labels", "[3]", "4 examples"}));
  EXPECT_THAT(ErrorOf([&] { ArrayExamples(NDArray(), labels); }),
              IsError(StatusCode::kInvalidArgument, {"features"}));
  EXPECT_THROW(ArrayExamples(Ones({}), labels), Error);

  const auto multi = std::make_shared<MultiArrayExamples>(MultiDataSet({features, labels}, {mask}));
  ExampleIterator<MultiDataSet> sets(multi, {.batch_size = 4});
  const std::optional<MultiDataSet> set = sets.Next();
  EXPECT_EQ(set->features[1].At<uint8_t>({2}), 202);
  EXPECT_EQ(set->labels[0].At<double>({3, 2}), 11);
  EXPECT_FALSE(sets.Next().has_value());
  EXPECT_THROW(MultiArrayExamples{MultiDataSet()}, Error);
  EXPECT_THROW(MultiDataSet().size(), Error);
}

}  // namespace
}  // namespace tidepool::nn
