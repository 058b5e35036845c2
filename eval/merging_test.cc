// Evaluations are the same to the last bit whatever batches, threads and processes saw the data.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/eval/evaluation_binary.h"
#include "tidepool/eval/evaluation_calibration.h"
#include "tidepool/eval/regression_evaluation.h"
#include "tidepool/eval/roc.h"
#include "tidepool/eval/state_format.h"
#include "tidepool/eval/sums.h"
#include "tidepool/eval/testing/evaluation_data.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"

namespace tidepool {
namespace {

using absl::StatusCode;
using testing::HasSubstr;

// A kind of evaluation with data for it. Weights have all bits that a float has.
struct Kind {
  std::string name;
  std::function<std::unique_ptr<BaseEvaluation>()> make;
  std::function<void(BaseEvaluation& to, const BaseEvaluation& from)> merge;
  EvaluationData data;
};

template <typename E, typename Make>
Kind KindOf(std::string name, EvaluationData data, Make make) {
  std::mt19937 random(7);
  for (float& weight : data.weights)
    if (weight != 0)
      weight = std::ldexp(static_cast<float>(random()), static_cast<int>(random() % 20) - 40);
  return {std::move(name), [make] { return std::make_unique<E>(make()); },
          [](BaseEvaluation& to, const BaseEvaluation& from) {
            static_cast<E&>(to).Merge(static_cast<const E&>(from));
          },
          std::move(data)};
}

// Of values that lose bits when added in doubles.
EvaluationData RegressionOfFloats() {
  EvaluationData data;
  data.columns = 2;
  std::mt19937 random(3);
  const auto value = [&] {
    return std::ldexp(static_cast<float>(random()) - 2e9f, static_cast<int>(random() % 60) - 60);
  };
  for (int i = 0; i < 400; ++i) {
    data.labels.push_back(value());
    data.scores.push_back(value());
    data.weights.push_back(static_cast<float>(random() % 3));
  }
  return data;
}

std::vector<Kind> Kinds() {
  std::vector<Kind> kinds;
  kinds.push_back(
      KindOf<Evaluation>("Evaluation", ClassData(), [] { return Evaluation(5, {}, 2); }));
  kinds.push_back(KindOf<ROC>("ROC", BinaryData(), [] { return ROC(); }));
  kinds.push_back(KindOf<ROC>("ROC at thresholds", BinaryData(), [] { return ROC(30); }));
  kinds.push_back(KindOf<ROCBinary>("ROCBinary", OutputData(), [] { return ROCBinary(4); }));
  kinds.push_back(
      KindOf<ROCMultiClass>("ROCMultiClass", ClassData(), [] { return ROCMultiClass(5, 9); }));
  kinds.push_back(KindOf<EvaluationBinary>("EvaluationBinary", OutputData(),
                                           [] { return EvaluationBinary(4); }));
  kinds.push_back(KindOf<EvaluationCalibration>("EvaluationCalibration", ClassData(),
                                                [] { return EvaluationCalibration(5); }));
  kinds.push_back(KindOf<RegressionEvaluation>("RegressionEvaluation", RegressionOfFloats(),
                                               [] { return RegressionEvaluation(2); }));
  return kinds;
}

TEST(Merging, PartsOfAnySizeInAnyOrderAreOnePass) {
  std::mt19937_64 random(FuzzSeed());
  for (const Kind& kind : Kinds()) {
    for (const bool weighted : {false, true}) {
      SCOPED_TRACE(kind.name + (weighted ? ", weighted" : ""));
      const std::unique_ptr<BaseEvaluation> one_pass = kind.make();
      one_pass->Add(kind.data.Batch(weighted));
      const std::string expected = one_pass->Serialize(), report = one_pass->Report();
      for (int round = 0; round < 5; ++round) {
        std::vector<std::unique_ptr<BaseEvaluation>> parts;
        for (int i = 0; i < 3; ++i) parts.push_back(kind.make());
        std::vector<std::pair<int64_t, int64_t>> batches;
        for (int64_t begin = 0; begin < kind.data.rows();) {
          const int64_t end = std::min<int64_t>(begin + 1 + random() % 40, kind.data.rows());
          batches.emplace_back(begin, end);
          begin = end;
        }
        std::shuffle(batches.begin(), batches.end(), random);
        for (const auto& [begin, end] : batches)
          parts[random() % 3]->Add(kind.data.Batch(weighted, begin, end));
        const std::unique_ptr<BaseEvaluation> merged = kind.make(), sent = kind.make();
        for (const auto& part : parts) {
          kind.merge(*merged, *part);
          sent->MergeSerialized(part->Serialize());
        }
        EXPECT_EQ(merged->Serialize(), expected);
        EXPECT_EQ(sent->Serialize(), expected);
        EXPECT_EQ(sent->Report(), report);
      }
      one_pass->Reset();
      EXPECT_EQ(one_pass->Serialize(), kind.make()->Serialize());
    }
  }
}

TEST(Merging, PartsWithAndWithoutWeights) {
  for (const Kind& kind : Kinds()) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<BaseEvaluation> one_pass = kind.make(), plain = kind.make(),
                                          weighted = kind.make();
    for (BaseEvaluation* evaluation : {one_pass.get(), plain.get()})
      evaluation->Add(kind.data.Batch(false, 0, 100));
    for (BaseEvaluation* evaluation : {one_pass.get(), weighted.get()})
      evaluation->Add(kind.data.Batch(true, 100, 250));
    const std::unique_ptr<BaseEvaluation> plain_first = kind.make(), weighted_first = kind.make();
    kind.merge(*plain_first, *plain);
    kind.merge(*plain_first, *weighted);
    kind.merge(*weighted_first, *weighted);
    kind.merge(*weighted_first, *plain);
    EXPECT_EQ(plain_first->Serialize(), one_pass->Serialize());
    EXPECT_EQ(weighted_first->Serialize(), one_pass->Serialize());
    EXPECT_EQ(weighted_first->Report(), one_pass->Report());
  }
}

TEST(Merging, ThreadsEachWithTheirOwn) {
  for (const Kind& kind : Kinds()) {
    const std::unique_ptr<BaseEvaluation> one_pass = kind.make(), merged = kind.make();
    one_pass->Add(kind.data.Batch(true));
    std::vector<std::unique_ptr<BaseEvaluation>> parts;
    for (int i = 0; i < 4; ++i) parts.push_back(kind.make());
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i) {
        threads.emplace_back([&, i] {
          for (int64_t row = i; row < kind.data.rows(); row += 4)
            parts[i]->Add(kind.data.Batch(true, row, row + 1));
        });
      }
    }
    for (const auto& part : parts) kind.merge(*merged, *part);
    EXPECT_EQ(merged->Serialize(), one_pass->Serialize()) << kind.name;
  }
}

TEST(Merging, DamagedStatesAreNamedAndChangeNothing) {
  std::mt19937_64 random(FuzzSeed());
  const std::vector<Kind> kinds = Kinds();
  for (const Kind& kind : kinds) {
    SCOPED_TRACE(kind.name);
    const std::unique_ptr<BaseEvaluation> whole = kind.make(), to = kind.make();
    whole->Add(kind.data.Batch(true, 0, 20));
    to->Add(kind.data.Batch(false, 20, 40));
    const std::string state = whole->Serialize(), before = to->Serialize();
    const auto expect = [&](const std::string& bytes, StatusCode code, const std::string& part) {
      EXPECT_THAT(ErrorOf([&] { to->MergeSerialized(bytes); }), IsError(code, {part}));
      EXPECT_EQ(to->Serialize(), before);
    };
    expect("", StatusCode::kDataLoss, "found no state of an evaluation");
    expect("tidepool evaluation 1\nno end", StatusCode::kDataLoss, "found no name of a kind");
    expect("tidepool evaluation 1\nmeasure\n", StatusCode::kInvalidArgument,
           "found a state of measure");
    expect(state.substr(0, state.size() - 1), StatusCode::kDataLoss, "state: byte ");
    expect(state + "x", StatusCode::kDataLoss, "found 1 bytes more, expected the end");
    for (int i = 0; i < 200; ++i) {  // cut anywhere: never accepted
      EXPECT_EQ(
          ErrorOf([&] { to->MergeSerialized(state.substr(0, random() % state.size())); }).code(),
          StatusCode::kDataLoss);
    }
    EXPECT_EQ(to->Serialize(), before);
  }
  ROC roc;
  roc.AddExample(true, 0.5, 1);
  std::string lies = roc.Serialize();
  lies[lies.find("ROC\n") + 4 + 16] = 0;  // of positive examples
  EXPECT_THAT(ErrorOf([&] { ROC().MergeSerialized(lies); }),
              IsError(StatusCode::kDataLoss, {"found 1 positive examples, expected 0"}));
  const auto refused = [](BaseEvaluation&& to, const BaseEvaluation& from,
                          const std::vector<std::string>& parts) {
    EXPECT_THAT(ErrorOf([&] { to.MergeSerialized(from.Serialize()); }),
                IsError(StatusCode::kInvalidArgument, parts));
  };
  refused(Evaluation(3), Evaluation(4), {"found classes 4, expected 3"});
  refused(Evaluation(3), Evaluation(3, {}, 2), {"found top_n 2, expected 1"});
  refused(ROC(), ROC(5), {"found threshold steps 5, expected 0"});
  refused(ROCBinary(2), ROCMultiClass(2),
          {"found a state of ROCMultiClass, expected one of ROCBinary"});
  refused(EvaluationBinary(2), EvaluationBinary(2, {}, {0.25}),
          {"found threshold 0.25, expected 0.5"});
  refused(EvaluationCalibration(2), EvaluationCalibration(2, 5),
          {"found reliability bins 5, expected 10"});
  refused(RegressionEvaluation(1), RegressionEvaluation(2), {"found columns 2, expected 1"});
  EXPECT_THAT(ErrorOf([] { ROC().Merge(ROC(3)); }),
              IsError(StatusCode::kInvalidArgument, {"found threshold steps 3, expected 0"}));
  EXPECT_THAT(
      ErrorOf([] { EvaluationBinary(1).Merge(EvaluationBinary(1, {}, {0.75})); }),
      IsError(StatusCode::kInvalidArgument, {"found threshold 0.75 of column 0, expected 0.5"}));
  EXPECT_THAT(ErrorOf([] { RegressionEvaluation(1).Merge(RegressionEvaluation(3)); }),
              IsError(StatusCode::kInvalidArgument, {"found 3 columns, expected 1"}));
  EXPECT_THAT(ErrorOf([] { EvaluationCalibration(2).Merge(EvaluationCalibration(2, 10, 4)); }),
              IsError(StatusCode::kInvalidArgument, {"found histogram bins 4, expected 50"}));
  EXPECT_THAT(ErrorOf([] { ROCMultiClass(2).Merge(ROCMultiClass(3)); }),
              IsError(StatusCode::kInvalidArgument, {"found 3 columns, expected 2"}));
}

// ---- sums ----

TEST(Sums, AreExactInAnyOrder) {
  ExactSum sum;
  for (const double number : {1e300, 1.0, -1e300, 1e-300, 0x1p-1074, -0.5, -1e-300})
    sum.Add(number);
  EXPECT_EQ(sum.Value(), 0.5);
  EXPECT_EQ(sum.Rest(), 0x1p-1074);
  ExactSum product;
  product.AddProduct(1 + 0x1p-52, 1 + 0x1p-52);
  product.Add(-1);
  EXPECT_EQ(product.Value(), 0x1p-51);
  EXPECT_EQ(product.Rest(), 0x1p-104);
  ExactSum of_three;
  of_three.AddProduct(1 + 0x1p-40, 1 - 0x1p-40, 3);
  of_three.Add(-3);
  EXPECT_EQ(of_three.Value(), -3 * 0x1p-80);
  EXPECT_EQ(of_three.Rest(), 0);
  // Halfway between two doubles: to the even one, and with anything more up.
  ExactSum half;
  half.Add(1);
  half.Add(0x1p-53);
  EXPECT_EQ(half.Value(), 1);
  half.Add(0x1p-900);
  EXPECT_EQ(half.Value(), 1 + 0x1p-52);
  ExactSum negative;
  negative.Add(-std::numeric_limits<double>::max());
  negative.Merge(negative);
  negative.Add(std::numeric_limits<double>::max());
  EXPECT_EQ(negative.Value(), -std::numeric_limits<double>::max());
}

// Against 128-bit integers.
TEST(Sums, AreThoseOfIntegers) {
  std::mt19937_64 random(FuzzSeed());
  for (int round = 0; round < 300; ++round) {
    ExactSum sum, other;
    WeightSum weights;
    __extension__ __int128 expected = 0, expected_weights = 0;
    for (int i = 0; i < 40; ++i) {
      const int64_t number =
          static_cast<int64_t>(random() >> (11 + random() % 40)) - (int64_t{1} << 50);
      expected += number;
      (random() % 2 == 0 ? sum : other).Add(static_cast<double>(number) * 0x1p-30);
      const auto weight = static_cast<uint32_t>(random());
      expected_weights += weight;
      weights.Add(weight * 0x1p-50);
    }
    sum.Merge(other);
    EXPECT_EQ(sum.Value(), static_cast<double>(expected) * 0x1p-30);
    EXPECT_EQ(weights.Value(), static_cast<double>(expected_weights) * 0x1p-50);
  }
}

}  // namespace
}  // namespace tidepool
