#include "tidepool/nn/data/batch.h"

#include <cstdint>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/manager/nd_manager.h"

namespace tidepool::nn {
namespace {

using ::testing::HasSubstr;

Batch OfExamples(int64_t count) {
  return {Arange(0, 3.0 * static_cast<double>(count)).Reshape({count, 3}),
          Arange(0, static_cast<double>(count), 1, DType::kInt64)};
}

std::vector<int64_t> Sizes(const std::vector<Batch>& parts) {
  std::vector<int64_t> sizes;
  for (const Batch& part : parts) sizes.push_back(part.size());
  return sizes;
}

TEST(BatchTest, DjlCase115PartsKeepTheirOrderAndTheLastMayBeSmaller) {
  const Batch batch = OfExamples(10);
  const std::vector<Batch> parts = batch.Split(4);
  EXPECT_EQ(Sizes(parts), (std::vector<int64_t>{3, 3, 3, 1}));
  int64_t example = 0;
  for (const Batch& part : parts) {
    for (int64_t i = 0; i < part.size(); ++i, ++example) {
      EXPECT_EQ(part.features.At<float>({i, 2}), static_cast<float>(3 * example + 2));
      EXPECT_EQ(part.labels.At<int64_t>({i}), example);
    }
  }
  EXPECT_EQ(example, 10);
  EXPECT_EQ(parts[1].features.raw_data(),
            batch.features.raw_data() + 9 * sizeof(float));  // no copy
  EXPECT_EQ(Sizes(batch.Split(1)), std::vector<int64_t>{10});
  EXPECT_EQ(Sizes(batch.Split(6)), (std::vector<int64_t>{2, 2, 2, 2, 2}));
  EXPECT_EQ(Sizes(OfExamples(2).Split(INT64_MAX)), (std::vector<int64_t>{1, 1}));
  Batch closed = OfExamples(2);
  closed.Close();
  EXPECT_THAT(ErrorOf([&] { closed.Split(2); }),
              IsError(absl::StatusCode::kFailedPrecondition, {"found no features"}));
  EXPECT_TRUE(OfExamples(0).Split(3).empty());
}

TEST(BatchTest, DjlCase115EvenPartsNeedAMultiple) {
  EXPECT_EQ(Sizes(OfExamples(12).Split(4, true)), (std::vector<int64_t>{3, 3, 3, 3}));
  try {
    OfExamples(10).Split(4, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("found 10 examples for 4 even parts"));
  }
  EXPECT_THROW(OfExamples(10).Split(0), Error);
  EXPECT_THROW(OfExamples(10).Split(-1, true), Error);
}

TEST(BatchTest, ClosingTheBatchEndsItsParts) {
  NDManager manager = NDManager::NewBaseManager();
  Batch batch = OfExamples(4);
  manager.Attach(batch.features);
  manager.Attach(batch.labels);
  batch.manager = std::move(manager);
  const std::vector<Batch> parts = batch.Split(2);
  batch.Close();
  EXPECT_THROW(parts[0].features.At<float>({0, 0}), Error);
  EXPECT_THROW(parts[1].labels.At<int64_t>({0}), Error);
  EXPECT_THROW(batch.Split(2), Error);
}

// Without a manager nobody ends the arrays of those who still have handles of them.
TEST(BatchTest, PartsOfABatchWithoutAManagerLiveOn) {
  Batch batch = OfExamples(4);
  const std::vector<Batch> parts = batch.Split(2);
  batch.Close();
  EXPECT_EQ(parts[0].features.At<float>({1, 0}), 3);
  EXPECT_EQ(parts[1].labels.At<int64_t>({1}), 3);
  EXPECT_THROW(batch.Split(2), Error);
}

}  // namespace
}  // namespace tidepool::nn
