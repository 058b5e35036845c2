#include "tidepool/nn/inference/batchifier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"

namespace tidepool::nn {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

NDList One(const NDArray& array, const std::string& name = "") {
  NDList list;
  list.Add(array, name);
  return list;
}

TEST(StackBatchifierTest, StacksAndTakesApart) {
  const StackBatchifier stack;
  const NDArray a = FromValues(absl::MakeConstSpan({1.f, 2.f}), {2});
  const NDArray b = FromValues(absl::MakeConstSpan({3.f, 4.f}), {2});
  const std::vector<NDList> inputs = {One(a, "x"), One(b, "x")};
  const NDList batch = stack.Batchify(inputs);
  EXPECT_EQ(batch.Get("x").shape(), Shape({2, 2}));
  EXPECT_THAT(batch[0].ToVector<float>(), ElementsAre(1, 2, 3, 4));
  const std::vector<NDList> apart = stack.Unbatchify(batch, 2);
  EXPECT_THAT(apart[1].Get("x").ToVector<float>(), ElementsAre(3, 4));
  EXPECT_THROW(stack.Unbatchify(batch, 3), Error);
}

TEST(StackBatchifierTest, OneInputIsAView) {
  const NDArray a = Ones({2, 3});
  const std::vector<NDList> inputs = {One(a)};
  const NDList batch = StackBatchifier().Batchify(inputs);
  EXPECT_EQ(batch[0].shape(), Shape({1, 2, 3}));
  EXPECT_EQ(batch[0].raw_data(), a.raw_data());
}

TEST(BatchifierTest, InputsThatDoNotFitAreNamed) {
  const StackBatchifier stack;
  EXPECT_THROW(stack.Batchify({}), Error);
  const std::vector<NDList> types = {One(Ones({2})), One(Ones({2}, DType::kInt64))};
  EXPECT_THAT(CatchStatus([&] { stack.Batchify(types); }).message(),
              HasSubstr("array 0 of input 1 is i64 of rank 1, that of input 0 is f32 of rank 1"));
  const std::vector<NDList> counts = {One(Ones({2})), NDList()};
  EXPECT_THAT(CatchStatus([&] { PadBatchifier().Batchify(counts); }).message(),
              HasSubstr("input 1 has 0 arrays, input 0 has 1"));
  const std::vector<NDList> sizes = {One(Ones({2})), One(Ones({3}))};
  EXPECT_THROW(stack.Batchify(sizes), Error);
}

TEST(PadBatchifierTest, PadsEveryAxisAndMasksTheFirst) {
  const PadBatchifier pad(-1, /*masks=*/true);
  const NDArray a = FromValues(absl::MakeConstSpan({1.f, 2.f}), {1, 2});
  const NDArray b = FromValues(absl::MakeConstSpan({3.f, 4.f, 5.f}), {3, 1});
  const std::vector<NDList> inputs = {One(a, "tokens"), One(b, "tokens")};
  const NDList batch = pad.Batchify(inputs);
  ASSERT_EQ(batch.size(), 2u);
  EXPECT_EQ(batch[0].shape(), Shape({2, 3, 2}));
  EXPECT_THAT(batch[0].ToVector<float>(), ElementsAre(1, 2, -1, -1, -1, -1, 3, -1, 4, -1, 5, -1));
  EXPECT_THAT(batch.Get("tokens.mask").ToVector<bool>(),
              ElementsAre(true, false, false, true, true, true));
  const std::vector<NDList> empty = {One(Zeros({0, 2})), One(a)};
  EXPECT_THAT(PadBatchifier().Batchify(empty)[0].ToVector<float>(), ElementsAre(0, 0, 1, 2));
}

}  // namespace
}  // namespace tidepool::nn
