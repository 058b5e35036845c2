#include "tidepool/eval/confusion_matrix.h"

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"

namespace tidepool {
namespace {

using absl::StatusCode;
using Classes = std::vector<int64_t>;

TEST(ConfusionMatrix, Counts) {
  ConfusionMatrix matrix(3);
  EXPECT_EQ(matrix.total(), 0);
  matrix.Add(Classes{0, 0, 1, 2, 2}, Classes{0, 2, 1, 2, 2});
  matrix.Add(1, 0);
  EXPECT_EQ(matrix.total(), 6);
  EXPECT_EQ(matrix.correct(), 4);
  EXPECT_EQ(matrix.at(0, 2), 1);
  EXPECT_EQ(matrix.at(2, 0), 0);
  EXPECT_EQ(matrix.at(2, 2), 2);
  EXPECT_EQ(matrix.LabelCount(1), 2);
  EXPECT_EQ(matrix.PredictionCount(1), 1);
  matrix.Add(Classes{}, Classes{});
  EXPECT_EQ(matrix.total(), 6);
  matrix.Reset();
  EXPECT_EQ(matrix.total() + matrix.correct() + matrix.at(2, 2) + matrix.LabelCount(2) +
                matrix.PredictionCount(2),
            0);
}

TEST(ConfusionMatrix, MergeIsAddingBoth) {
  ConfusionMatrix a(2), b(2), both(2);
  a.Add(Classes{0, 1}, Classes{0, 0});
  b.Add(Classes{1, 1}, Classes{1, 0});
  both.Add(Classes{0, 1, 1, 1}, Classes{0, 0, 1, 0});
  a.Merge(b);
  EXPECT_EQ(a.ToString(), both.ToString());
  EXPECT_EQ(a.total(), both.total());
  EXPECT_EQ(a.correct(), both.correct());
  EXPECT_EQ(a.PredictionCount(0), 3);
  a.Merge(a);
  EXPECT_EQ(a.at(1, 0), 4);
  EXPECT_THAT(ErrorOf([&] { a.Merge(ConfusionMatrix(3)); }),
              IsError(StatusCode::kInvalidArgument, {"merge", "found 3 classes", "expected 2"}));
}

TEST(ConfusionMatrix, NumberOfClasses) {
  for (const int classes : {-1, 0, 1, 16385}) {
    EXPECT_THAT(ErrorOf([&] { ConfusionMatrix matrix(classes); }),
                IsError(StatusCode::kInvalidArgument,
                        {"classes", "found " + std::to_string(classes), "expected 2 to 16384"}));
  }
}

TEST(ConfusionMatrix, BadBatchesAddNothing) {
  ConfusionMatrix matrix(3);
  EXPECT_THAT(ErrorOf([&] {
                matrix.Add(Classes{0, 1, 3}, Classes{0, 1, 2});
              }),
              IsError(StatusCode::kInvalidArgument, {"label 2", "found 3", "expected 0..2"}));
  EXPECT_THAT(ErrorOf([&] {
                matrix.Add(Classes{0, 1}, Classes{0, -1});
              }),
              IsError(StatusCode::kInvalidArgument, {"prediction 1", "found -1", "expected 0..2"}));
  EXPECT_THAT(ErrorOf([&] {
                matrix.Add(Classes{0}, Classes{0, 1});
              }),
              IsError(StatusCode::kInvalidArgument, {"predictions", "found 2", "expected 1"}));
  EXPECT_THAT(ErrorOf([&] { matrix.Add(0, std::numeric_limits<int64_t>::max()); }),
              IsError(StatusCode::kInvalidArgument,
                      {"prediction", "found 9223372036854775807", "expected 0..2"}));
  EXPECT_EQ(matrix.total(), 0);
  EXPECT_EQ(matrix.LabelCount(0), 0);
}

TEST(ConfusionMatrix, ReadingOutOfRange) {
  const ConfusionMatrix matrix(3);
  EXPECT_THAT(ErrorOf([&] { matrix.at(3, 0); }),
              IsError(StatusCode::kInvalidArgument, {"label", "found 3"}));
  EXPECT_THAT(ErrorOf([&] { matrix.at(0, -1); }),
              IsError(StatusCode::kInvalidArgument, {"prediction", "found -1"}));
  EXPECT_THAT(ErrorOf([&] { matrix.LabelCount(7); }),
              IsError(StatusCode::kInvalidArgument, {"found 7", "0..2"}));
  EXPECT_THAT(ErrorOf([&] { matrix.PredictionCount(7); }),
              IsError(StatusCode::kInvalidArgument, {"found 7"}));
}

TEST(ConfusionMatrix, Table) {
  ConfusionMatrix matrix(3);
  for (int i = 0; i < 120; ++i) matrix.Add(0, 0);
  matrix.Add(Classes{0, 1, 2}, Classes{2, 1, 1});
  EXPECT_EQ(matrix.ToString(),
            "          predicted\n"
            "label    0   1   2 | count\n"
            "    0  120   .   1 |   121\n"
            "    1    .   1   . |     1\n"
            "    2    .   1   . |     1\n");
}

}  // namespace
}  // namespace tidepool
