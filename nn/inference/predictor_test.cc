// The life of a request: what is its own is gone when it returns, what is the caller's stays.
#include "tidepool/nn/inference/predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/softmax.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

using ::testing::FloatEq;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

Model SmallModel() { return MakeModel("mlp", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled); }

// Numbers in, the probabilities of the classes out; keeps a scale between calls.
class Probabilities : public Translator<float, NDArray> {
 public:
  void Prepare(PredictorContext& context) override {
    ++prepared;
    scale_ = Full({1}, 0.5);
    EXPECT_TRUE(context.predictor.Manages(scale_));
  }
  NDList ProcessInput(PredictorContext& context, const float& input) override {
    if (input < 0) ThrowInvalidArgument("translator: negative");
    NDArray x = Multiply(Full({28, 28, 1}, input), scale_);
    EXPECT_TRUE(context.request.Manages(x));
    last_input = x;
    return {x};
  }
  NDArray ProcessOutput(PredictorContext& context, NDList outputs) override {
    if (fail_after) ThrowInvalidArgument("translator: after");
    NDArray z = Softmax(outputs.Single());
    EXPECT_TRUE(context.request.Manages(z));
    return z;
  }

  int prepared = 0;
  bool fail_after = false;
  NDArray last_input;

 private:
  NDArray scale_;
};

class OneResultTooMany final : public Probabilities {
 public:
  const Batchifier* batchifier() const override { return &batchifier_; }

 private:
  struct Miscounting final : Batchifier {
    NDList Batchify(absl::Span<const NDList> inputs) const override {
      return StackBatchifier().Batchify(inputs);
    }
    std::vector<NDList> Unbatchify(const NDList& batch, int64_t count) const override {
      std::vector<NDList> parts = Batchifier::Unbatchify(batch, count);
      parts.push_back(parts[0]);
      return parts;
    }
  } batchifier_;
};

// What the model, a predictor below it and the caller own.
OwnershipSnapshot Everything() { return NDManager::System().Snapshot(); }

TEST(PredictorTest, DjlCase105TheResultIsTheCallersAndTheRestIsGone) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator);
  const NDArray result = predictor.Predict(1);
  EXPECT_EQ(result.shape(), Shape({10}));
  double sum = 0;
  for (const float p : result.ToVector<float>()) sum += p;
  EXPECT_NEAR(sum, 1, 1e-5);
  EXPECT_FALSE(NDManager::ManagerOf(result));  // its handles'
  EXPECT_FALSE(translator.last_input.IsInScope());
  // As the network computes it alone.
  const NDArray direct = Softmax(model.network->Output(Full({1, 28, 28, 1}, 0.5)));
  EXPECT_EQ(direct.ToVector<float>(), result.ToVector<float>());

  NDManager mine = NDManager::NewBaseManager();
  Workspace workspace("caller", WorkspaceConfig::Inference());
  {
    const ManagerScope scope(mine);
    EXPECT_TRUE(mine.Manages(predictor.Predict(1)));
  }
  const WorkspaceScope scope(workspace);
  EXPECT_TRUE(predictor.Predict(1).IsAttached());
  EXPECT_EQ(translator.prepared, 1);
}

TEST(PredictorTest, BatchesAndStreamsGiveTheSame) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator);
  const std::vector<float> inputs = {0.25f, 1, 0.5f};
  const std::vector<NDArray> batch = predictor.PredictBatch(inputs);
  ASSERT_EQ(batch.size(), 3u);
  size_t next = 0, used = 0;
  predictor.PredictStream(
      [&]() -> std::optional<float> {
        if (next == inputs.size()) return std::nullopt;
        return inputs[next++];
      },
      [&](NDArray result) {
        const std::vector<float> alone = predictor.Predict(inputs[used]).ToVector<float>();
        EXPECT_THAT(result.ToVector<float>(), Pointwise(FloatNear(1e-6f), alone));
        EXPECT_THAT(batch[used++].ToVector<float>(), Pointwise(FloatNear(1e-6f), alone));
      },
      2);
  EXPECT_EQ(used, 3u);
  EXPECT_TRUE(predictor.PredictBatch({}).empty());
}

TEST(PredictorTest, AStreamInBatchesOfNothingIsRefusedBeforeItAsks) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator);
  int asked = 0;
  for (const int64_t batch : {int64_t{0}, int64_t{-1}, INT64_MIN}) {
    const absl::Status status = CatchStatus([&] {
      predictor.PredictStream(
          [&]() -> std::optional<float> {
            if (++asked > 10) return std::nullopt;  // else it would never end
            return 1;
          },
          [](const NDArray&) { ADD_FAILURE() << "a result"; }, batch);
    });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "predictor: a stream in batches of " + std::to_string(batch) +
                                    ", expected at least 1");
  }
  EXPECT_EQ(asked, 0);
}

// One result more or less than there were inputs.
class Miscounts final : public Translator<float, NDArray> {
 public:
  NDList ProcessInput(PredictorContext&, const float& input) override {
    return {Full({28, 28, 1}, input)};
  }
  NDArray ProcessOutput(PredictorContext&, NDList outputs) override { return outputs.Single(); }
  const Batchifier* batchifier() const override { return &batchifier_; }

  int64_t extra = 0;

 private:
  class Miscounting final : public Batchifier {
   public:
    explicit Miscounting(const int64_t& extra) : extra_(extra) {}
    NDList Batchify(absl::Span<const NDList> inputs) const override {
      return StackBatchifier().Batchify(inputs);
    }
    std::vector<NDList> Unbatchify(const NDList& batch, int64_t count) const override {
      std::vector<NDList> parts = Batchifier::Unbatchify(batch, count);
      parts.resize(static_cast<size_t>(count + extra_), parts[0]);
      return parts;
    }

   private:
    const int64_t& extra_;
  };
  const Miscounting batchifier_{extra};
};

TEST(PredictorTest, ABatchifierThatMiscountsIsAnError) {
  Model model = SmallModel();
  Miscounts translator;
  Predictor<float, NDArray> predictor(model, translator);
  const std::vector<float> inputs = {0, 1, 2};
  for (const int64_t extra : {-3, -1, 1}) {
    translator.extra = extra;
    const absl::Status status = CatchStatus([&] { predictor.PredictBatch(inputs); });
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), "predictor: the batchifier made " + std::to_string(3 + extra) +
                                    " results of a batch of 3, expected as many");
  }
  translator.extra = 0;
  EXPECT_EQ(predictor.PredictBatch(inputs).size(), 3u);
}

TEST(PredictorTest, DjlCase104And107And108AThousandPredictionsGrowNothingAlsoWhenEveryThirdThrows) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator);
  NDManager mine = NDManager::NewBaseManager(Host(), "caller");
  const ManagerScope scope(mine);
  const auto once = [&](int i) {
    translator.fail_after = i % 6 == 5;
    if (i % 3 == 2) {
      EXPECT_THROW(predictor.Predict(i % 6 == 2 ? -1.f : 1.f), Error);
    } else {
      predictor.Predict(1);
    }
  };
  for (int i = 0; i < 12; ++i) once(i);
  const OwnershipSnapshot before = Everything();
  const int64_t system = MemoryTracker::Global().system_allocations();
  int64_t results = 0;
  for (int i = 0; i < 1000; ++i) {
    once(i);
    if (i % 3 != 2) ++results;
  }
  EXPECT_EQ(ToString(Diff(before, Everything())), "");
  // Only what leaves: the result, in the caller's manager on the heap.
  EXPECT_EQ(MemoryTracker::Global().system_allocations() - system, results);
  EXPECT_TRUE(model.manager.is_capped());
  EXPECT_EQ(model.manager.arrays(), 2);
}

TEST(PredictorTest, DjlCase106ListsInAndOutAreNeitherFreedNorCaptured) {
  Model model = SmallModel();
  NoopTranslator translator;
  Predictor<NDList, NDList> predictor(model, translator);
  NDManager mine = NDManager::NewBaseManager(Host(), "caller");
  NDList input{mine.Ones({2, 28, 28, 1})};
  for (int i = 0; i < 10; ++i) {
    const NDList output = predictor.Predict(input);
    EXPECT_EQ(output.Single().shape(), Shape({2, 10}));
    EXPECT_FALSE(NDManager::ManagerOf(output[0]));
  }
  EXPECT_EQ(mine.arrays(), 1);
  EXPECT_TRUE(input[0].IsInScope());
  NDList two = input;
  two.Add(input[0]);
  EXPECT_THAT(CatchStatus([&] { predictor.Predict(two); }).message(),
              HasSubstr("takes one array, the translator gave 2"));
}

TEST(PredictorTest, DjlCase110AClosedModelRefusesWithItsName) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator);
  predictor.Predict(1);
  const NDArray weights = model.network->named_parameters()[0].value;
  model.Close();
  EXPECT_THAT(CatchStatus([&] { predictor.Predict(1); }).message(),
              HasSubstr("model \"mlp\" is closed"));
  EXPECT_FALSE(predictor.manager().is_open());
  EXPECT_THROW((Predictor<float, NDArray>(model, translator)), Error);
  EXPECT_THAT(CatchStatus([&] { weights.data<float>(); }).message(),
              HasSubstr("by owner [model mlp]"));
}

TEST(PredictorTest, SeesWhatAnotherLibraryWritesToTheWeights) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator);
  predictor.Predict(1);
  DLManagedTensor* tensor = ToDLPack(model.network->parameters());
  auto* weights = static_cast<float*>(tensor->dl_tensor.data);
  std::fill_n(weights, tensor->dl_tensor.shape[0], 0.f);
  EXPECT_THAT(predictor.Predict(1).ToVector<float>(), ::testing::Each(FloatEq(0.1f)));
  std::fill_n(weights, tensor->dl_tensor.shape[0], 0.f);
  weights[tensor->dl_tensor.shape[0] - 16] = 100;  // the first class' bias, of the last 16 elements
  tensor->deleter(tensor);
  EXPECT_EQ(predictor.Predict(1).At<float>({0}), 1.f);
}

TEST(PredictorTest, BatchesOfNothing) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator);
  EXPECT_TRUE(predictor.PredictBatch({}).empty());
  EXPECT_EQ(translator.prepared, 0);  // no request was made
  EXPECT_THAT(CatchStatus([&] {
                predictor.PredictStream([]() -> std::optional<float> { return 1; }, [](NDArray) {},
                                        0);
              }).message(),
              HasSubstr("a stream in batches of 0, expected at least 1"));
  OneResultTooMany miscounts;
  Predictor<float, NDArray> other(model, miscounts);
  EXPECT_THAT(CatchStatus([&] {
                other.PredictBatch({1.f, 0.5f});
              }).message(),
              HasSubstr("the batchifier made 3 results of a batch of 2, expected as many"));
  NoopTranslator noop;
  Predictor<NDList, NDList> direct(model, noop);
  EXPECT_THAT(CatchStatus([&] {
                direct.Predict({Zeros({0, 28, 28, 1})});
              }).message(),
              HasSubstr("a batch of no examples, shape [0, 28, 28, 1], expected at least one"));
  EXPECT_EQ(direct.Predict({Zeros({1, 28, 28, 1})}).Single().shape(), Shape({1, 10}));
}

TEST(PredictorTest, ANetworkThatWasMovedFromIsRefused) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator);
  const Network moved = std::move(*model.network);
  EXPECT_THAT(CatchStatus([&] { predictor.Predict(1); }).message(),
              HasSubstr("the network was moved from"));
  EXPECT_THAT(CatchStatus([&] {
                model.ReplicaOn({DeviceType::Named("simulated"), 0});
              }).message(),
              HasSubstr("the network was moved from"));
}

TEST(PredictorTest, AParameterInAnExpressionIsAnErrorAtThatLine) {
  Model model = SmallModel();
  const NDArray weights = model.network->named_parameters()[0].value;
  EXPECT_THAT(CatchStatus([&] { Add(weights, weights); }).message(),
              HasSubstr("would belong where argument X does: owner [model mlp] is capped"));
  NDManager mine = NDManager::NewBaseManager();
  const ManagerScope scope(mine);
  EXPECT_TRUE(mine.Manages(Add(weights, weights)));
}

TEST(PredictorTest, DjlCase129ABudgetEndsTheRequestAndNotThePredictor) {
  Model model = SmallModel();
  Probabilities translator;
  Predictor<float, NDArray> predictor(model, translator, "small", 64 * 1024);
  predictor.Predict(1);
  const std::vector<float> many(100, 1.f);
  try {
    predictor.PredictBatch(many);
    FAIL();
  } catch (const OutOfMemoryError& error) {
    EXPECT_THAT(error.message(), HasSubstr("budget: owner [model mlp/small]"));
    EXPECT_THAT(error.report(), HasSubstr("request"));
  }
  predictor.Predict(1);
}

// As SetBudget refuses it; 0 is for no limit.
TEST(PredictorTest, ANegativeBudgetIsNoBudget) {
  Model model = SmallModel();
  const size_t managers = model.manager.Snapshot().size();
  Probabilities translator;
  const auto expect_refused = [](absl::FunctionRef<void()> make) {
    const absl::Status status = CatchStatus(make);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(status.message(), HasSubstr("SetBudget: owner [model mlp/small]: found -1 bytes"));
  };
  expect_refused([&] { Predictor<float, NDArray>(model, translator, "small", -1); });
  expect_refused([&] { Predictor<float, NDArray>(model, translator, Host(), "small", -1); });
  EXPECT_EQ(model.manager.Snapshot().size(), managers);
}

TEST(PredictorTest, DjlCase111And124ManyThreadsShareTheWeights) {
  Model model = SmallModel();
  Probabilities first;
  const std::vector<float> expected =
      Predictor<float, NDArray>(model, first).Predict(1).ToVector<float>();
  const int64_t weights = model.manager.bytes();
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      Probabilities translator;
      Predictor<float, NDArray> predictor(model, translator);
      for (int i = 0; i < 50; ++i) {
        if (predictor.Predict(1).ToVector<float>() == expected) ++right;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 200);
  EXPECT_EQ(model.manager.bytes(), weights);
  EXPECT_EQ(model.manager.Snapshot().size(), 1u);
}

TEST(PredictorTest, GoesOnWhenItsModelIsMovedAndSaysSoWhenItIsGone) {
  auto model = std::make_unique<Model>(SmallModel());
  Probabilities translator;
  Predictor<float, NDArray> predictor(*model, translator);
  const std::vector<float> expected = predictor.Predict(1).ToVector<float>();
  {
    Model moved = std::move(*model);
    model.reset();
    EXPECT_EQ(predictor.Predict(1).ToVector<float>(), expected);
  }
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(CatchStatus([&] { predictor.Predict(1); }).message(),
                HasSubstr("predictor: model \"mlp\" was destroyed"));
  }
  EXPECT_FALSE(predictor.manager().is_open());
  Model nothing;
  EXPECT_THAT(CatchStatus([&] { (Predictor<float, NDArray>(nothing, translator)); }).message(),
              HasSubstr("predictor: the model has no network"));
}

}  // namespace
}  // namespace tidepool::nn
