// Predictors by an inference engine: who shares what, what is seen of writes to the weights, and when kernels compute instead.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/reclaimer.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/held_bytes.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/frozen/frozen_engine.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/nn/inference/predictor.h"
#include "tidepool/nn/layers/activation.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

using Batches = Predictor<NDList, NDList>;

class PredictorEngine : public testing::Test {
 protected:
  void SetUp() override {
    if (LinkedFrozenEngine() == nullptr) GTEST_SKIP() << "no engine is linked";
    if (!LinkedFrozenEngine()->WhyNotHere().empty())
      GTEST_SKIP() << LinkedFrozenEngine()->WhyNotHere();
  }

  Model mlp_ = MakeModel("mlp", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
  NoopTranslator translator_;
};

NDArray Images(int64_t batch, uint64_t seed = 1) {
  return RandomUniform({batch, 28, 28, 1}, -1, 1, seed, 99, Place::Heap());
}

std::vector<float> Ask(Batches& predictor, const NDArray& x) {
  return predictor.Predict({x}).Single().ToVector<float>();
}

std::vector<float> ByKernels(Model& model, const NDArray& x) {
  NoopTranslator translator;
  Batches predictor(model, translator);
  return Ask(predictor, x);
}

void ExpectNear(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0;
  for (const float value : expected) largest = std::max<double>(largest, std::abs(value));
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-5 * largest) << i;
}

std::string ErrorOf(const std::function<void()>& call, absl::StatusCode code) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

int64_t External() { return MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kExternal); }

TEST_F(PredictorEngine, AllOfAModelHaveOneFrozenCopy) {
  Batches a(mlp_, translator_, "a"), b(mlp_, translator_, "b");
  Reclaimer::Global().RunNow();
  const int64_t before = External();
  a.set_engine(EngineUse::kAlways);
  const int64_t one = External() - before;
  EXPECT_GT(one, 4 * mlp_.network->NumParameters());
  b.set_engine(EngineUse::kAlways);
  EXPECT_EQ(External() - before, one);
  EXPECT_EQ(a.frozen(), b.frozen());
  const NDArray x = Images(1);
  EXPECT_EQ(Ask(a, x), Ask(b, x));
  ExpectNear(Ask(a, x), ByKernels(mlp_, x));
  EXPECT_EQ(a.why_not_engine(), "");
  EXPECT_EQ(a.frozen()->stats().made_runtimes, 1);
  // Other options, another copy.
  b.set_engine(EngineUse::kAlways, {.batches = {1}, .softmax = true});
  EXPECT_NE(a.frozen(), b.frozen());
  double sum = 0;
  for (const float value : Ask(b, x)) sum += value;
  EXPECT_NEAR(sum, 1, 1e-5);
  a.set_engine(EngineUse::kNever);
  b.set_engine(EngineUse::kNever);
  EXPECT_EQ(a.frozen(), nullptr);
  EXPECT_EQ(Ask(a, x), ByKernels(mlp_, x));
  Reclaimer::Global().RunNow();
  EXPECT_EQ(External(), before);
}

TEST_F(PredictorEngine, KernelsComputeWhatTheyAreAheadWith) {
  Batches predictor(mlp_, translator_);
  predictor.set_engine(EngineUse::kWhereAhead, {.batches = {1, 4}});
  EXPECT_EQ(predictor.why_not_engine(), "");
  for (const int64_t batch : {1, 4}) {
    ExpectNear(Ask(predictor, Images(batch)), ByKernels(mlp_, Images(batch)));
    EXPECT_EQ(predictor.why_not_engine(), "");
  }
  EXPECT_EQ(Ask(predictor, Images(3)), ByKernels(mlp_, Images(3)));
  EXPECT_EQ(predictor.why_not_engine(), "a batch of 3, and the engine is asked for those of 4, 1");
  // Images of one channel, which XNNPACK fills up to four.
  Model lenet = MakeModel("lenet", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
  Batches images(lenet, translator_);
  images.set_engine(EngineUse::kWhereAhead, {.batches = {1, 32}});
  ExpectNear(Ask(images, Images(1)), ByKernels(lenet, Images(1)));
  EXPECT_EQ(images.why_not_engine(), "");
  EXPECT_EQ(Ask(images, Images(32)), ByKernels(lenet, Images(32)));
  EXPECT_EQ(images.why_not_engine(), "kernels are estimated to be ahead for a batch of 32");
  // In 8 bits up to eight, but weights are smaller; in 16 bits everything is emulated.
  FrozenOptions options{.type = FrozenType::kInt8, .batches = {1, 32}};
  options.calibration = Images(64);
  images.set_engine(EngineUse::kWhereAhead, options);
  EXPECT_NE(Ask(images, Images(1)), ByKernels(lenet, Images(1)));
  EXPECT_EQ(images.why_not_engine(), "");
  EXPECT_EQ(Ask(images, Images(32)), ByKernels(lenet, Images(32)));
  EXPECT_EQ(images.why_not_engine(), "kernels are estimated to be ahead for a batch of 32");
#if defined(__x86_64__)
  images.set_engine(EngineUse::kWhereAhead, {.type = FrozenType::kFloat16});
  EXPECT_EQ(Ask(images, Images(1)), ByKernels(lenet, Images(1)));
  EXPECT_NE(images.why_not_engine(), "");
#endif
  images.set_engine(EngineUse::kAlways, {.batches = {1, 32}});
  ExpectNear(Ask(images, Images(35)), ByKernels(lenet, Images(35)));
  EXPECT_EQ(images.why_not_engine(), "");
}

TEST_F(PredictorEngine, TheNumberOfThreadsChangesNeitherChoiceNorBits) {
  Batches predictor(mlp_, translator_);
  std::vector<std::vector<float>> found[2];
  std::vector<std::string> whys[2];
  for (int i = 0; i < 2; ++i) {
    SetThreadCount(1 + 3 * i);
    predictor.set_engine(EngineUse::kWhereAhead, {.batches = {1, 16}, .threads = 1 + 3 * i});
    for (const int64_t batch : {1, 2, 16, 17}) {
      found[i].push_back(Ask(predictor, Images(batch)));
      whys[i].push_back(predictor.why_not_engine());
    }
  }
  EXPECT_EQ(found[0], found[1]);
  EXPECT_EQ(whys[0], whys[1]);
}

TEST_F(PredictorEngine, WritesToTheWeightsAreSeenByAll) {
  Batches a(mlp_, translator_, "a"), b(mlp_, translator_, "b");
  a.set_engine(EngineUse::kAlways);
  b.set_engine(EngineUse::kWhereAhead);
  const NDArray x = Images(1);
  std::vector<float> before = Ask(a, x);
  const auto expect_new = [&] {
    const std::vector<float> now = ByKernels(mlp_, x);
    EXPECT_NE(now, before);
    ExpectNear(Ask(a, x), now);
    ExpectNear(Ask(b, x), now);
    EXPECT_EQ(b.why_not_engine(), "");
    EXPECT_EQ(a.frozen(), b.frozen());
    before = Ask(a, x);
  };
  mlp_.network->parameters() *= 1.5;  // an operator
  expect_new();
  mlp_.network->parameters().mutable_data<float>()[3] += 2;  // through the address
  expect_new();
  NDArray view = mlp_.network->named_parameters()[1].value;
  view += 0.25;
  expect_new();
  mlp_.SetFrozen({"0.*"});  // the same values at other places
  ExpectNear(Ask(a, x), ByKernels(mlp_, x));
  view = mlp_.network->named_parameters()[0].value;
  view += 0.5;
  expect_new();
}

TEST_F(PredictorEngine, WeightsInOtherHandsAreReadByKernels) {
  Batches always(mlp_, translator_, "always"), ahead(mlp_, translator_, "ahead");
  always.set_engine(EngineUse::kAlways);
  ahead.set_engine(EngineUse::kWhereAhead);
  const NDArray x = Images(1);
  const std::vector<float> before = Ask(always, x);
  float* const weights = mlp_.network->parameters().mutable_data<float>();
  {
    // As another library has them, which writes to them and says nothing.
    const HeldBytes held(mlp_.network->arrays().buffer());
    weights[0] += 1;
    EXPECT_EQ(Ask(ahead, x), ByKernels(mlp_, x));
    EXPECT_THAT(ahead.why_not_engine(), HasSubstr("in other hands"));
    EXPECT_THAT(ErrorOf([&] { Ask(always, x); }, absl::StatusCode::kUnimplemented),
                HasSubstr("in other hands"));
    weights[0] += 1;
    EXPECT_EQ(Ask(ahead, x), ByKernels(mlp_, x));
    EXPECT_NE(Ask(ahead, x), before);
    weights[0] += 1;
  }
  const std::vector<float> now = ByKernels(mlp_, x);
  ExpectNear(Ask(always, x), now);
  ExpectNear(Ask(ahead, x), now);
  EXPECT_EQ(ahead.why_not_engine(), "");
}

TEST_F(PredictorEngine, WhatItCannotDoIsAnErrorOrLeftToKernels) {
  std::vector<AnyLayer> layers;
  layers.push_back(Dense(10, Activation::kTanh));
  Model model("tanh", 10, std::make_unique<Network>(Shape{28, 28, 1}, std::move(layers), 3));
  Batches predictor(model, translator_);
  const NDArray x = Images(1);
  EXPECT_THAT(
      ErrorOf([&] { predictor.set_engine(EngineUse::kAlways); }, absl::StatusCode::kUnimplemented),
      HasSubstr("the function tanh"));
  EXPECT_EQ(Ask(predictor, x), ByKernels(model, x));  // nothing has changed
  predictor.set_engine(EngineUse::kWhereAhead);
  EXPECT_THAT(predictor.why_not_engine(), HasSubstr("the function tanh"));
  EXPECT_EQ(Ask(predictor, x), ByKernels(model, x));
  EXPECT_THAT(predictor.why_not_engine(), HasSubstr("the function tanh"));
  EXPECT_THAT(ErrorOf([&] { predictor.set_engine(EngineUse::kWhereAhead, {.batches = {0}}); },
                      absl::StatusCode::kInvalidArgument),
              HasSubstr("a batch of 0"));
  // Of other numbers.
  Model halves("halves", 10,
               std::make_unique<Network>(NetworkConfig::Sequential({28, 28, 1}, {Dense(10)}),
                                         NetworkOptions{.compute_type = DType::kBFloat16}));
  Batches of_halves(halves, translator_);
  of_halves.set_engine(EngineUse::kWhereAhead);
  EXPECT_EQ(Ask(of_halves, x), ByKernels(halves, x));
  EXPECT_EQ(of_halves.why_not_engine(), "layers compute by bf16");
}

TEST_F(PredictorEngine, InputsThatAreNotFiniteGoToKernels) {
  Batches predictor(mlp_, translator_);
  predictor.set_engine(EngineUse::kWhereAhead);
  NDArray x = Images(1);
  x.mutable_data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(Ask(predictor, x)[0]));
  EXPECT_THAT(predictor.why_not_engine(), HasSubstr("expected finite numbers"));
  predictor.set_engine(EngineUse::kAlways);
  EXPECT_THAT(ErrorOf([&] { Ask(predictor, x); }, absl::StatusCode::kInvalidArgument),
              HasSubstr("at element 5 of example 0"));
  EXPECT_THAT(ErrorOf(
                  [&] {
                    Ask(predictor, Zeros({1, 3}));
                  },
                  absl::StatusCode::kInvalidArgument),
              HasSubstr("[1, 3]"));
  ExpectNear(Ask(predictor, Images(1)), ByKernels(mlp_, Images(1)));
}

TEST_F(PredictorEngine, WeightsThatAreNotFiniteGoToKernels) {
  Batches predictor(mlp_, translator_), halves(mlp_, translator_, "halves");
  predictor.set_engine(EngineUse::kWhereAhead);
  halves.set_engine(EngineUse::kWhereAhead, {.type = FrozenType::kFloat16});
  const NDArray x = Images(1);
  float& weight = mlp_.network->parameters().mutable_data<float>()[0];
  const float before = weight;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), 1e6f}) {
    mlp_.network->parameters().mutable_data<float>()[0] = bad;
    Ask(predictor, x);
    EXPECT_EQ(predictor.why_not_engine().empty(), std::isfinite(bad)) << predictor.why_not_engine();
    Ask(halves, x);
    EXPECT_NE(halves.why_not_engine(), "");
    Ask(predictor, Images(3));  // that it is not asked for
  }
  Batches late(mlp_, translator_, "late");
  mlp_.network->parameters().mutable_data<float>()[0] = std::numeric_limits<float>::infinity();
  late.set_engine(EngineUse::kWhereAhead);
  EXPECT_THAT(late.why_not_engine(), HasSubstr("has inf at 0, expected finite numbers"));
  mlp_.network->parameters().mutable_data<float>()[0] = before;
  ExpectNear(Ask(late, x), ByKernels(mlp_, x));
  EXPECT_EQ(late.why_not_engine(), "");
}

TEST_F(PredictorEngine, KernelsAppendTheSoftmaxThatTheEngineWould) {
  Batches predictor(mlp_, translator_);
  predictor.set_engine(EngineUse::kWhereAhead, {.batches = {1, 8}, .softmax = true});
  const NDArray x = Images(8);
  const std::vector<float> all = Ask(predictor, x);
  EXPECT_EQ(predictor.why_not_engine(), "");
  const std::vector<float> three = Ask(predictor, x.Slice(0, 0, 3));
  EXPECT_NE(predictor.why_not_engine(), "");
  ExpectNear(three, {all.begin(), all.begin() + 30});
  predictor.set_engine(EngineUse::kNever);
  EXPECT_EQ(Ask(predictor, x), ByKernels(mlp_, x));
}

TEST_F(PredictorEngine, ANetworkWithoutParametersIsFrozenToo) {
  Model model("relu", 784,
              std::make_unique<Network>(Shape{784}, std::vector<AnyLayer>{ActivationLayer()}, 3));
  Batches predictor(model, translator_);
  predictor.set_engine(EngineUse::kAlways);
  const NDArray x = Images(1).Reshape({1, 784});
  EXPECT_EQ(Ask(predictor, x), ByKernels(model, x));
}

TEST_F(PredictorEngine, OtherSamplesAreOtherOptions) {
  const auto frozen_of = [&](Batches& predictor, const NDArray& samples) {
    predictor.set_engine(EngineUse::kWhereAhead,
                         {.type = FrozenType::kInt8, .calibration = samples});
    return predictor.frozen();
  };
  Batches a(mlp_, translator_, "a"), b(mlp_, translator_, "b");
  NDArray samples = Images(32);
  const auto first = frozen_of(a, samples);
  EXPECT_EQ(frozen_of(b, samples), first);
  EXPECT_NE(frozen_of(b, samples.Slice(0, 0, 1).BroadcastTo(samples.shape())),
            first);  // of the same memory and shape
  samples *= 3;
  EXPECT_NE(frozen_of(b, samples), first);
}

TEST_F(PredictorEngine, SamplesThatHaveGoneLeaveNewWeightsToKernels) {
  Batches predictor(mlp_, translator_);
  NDArray samples = Images(32);
  predictor.set_engine(EngineUse::kWhereAhead, {.type = FrozenType::kInt8, .calibration = samples});
  const NDArray x = Images(1);
  Ask(predictor, x);
  EXPECT_EQ(predictor.why_not_engine(), "");
  samples.Close();
  Ask(predictor, x);
  EXPECT_EQ(predictor.why_not_engine(), "");  // they are not needed yet
  mlp_.network->parameters() *= 0.5;
  EXPECT_EQ(Ask(predictor, x), ByKernels(mlp_, x));
  EXPECT_THAT(predictor.why_not_engine(), HasSubstr("the calibration samples have gone"));
}

TEST_F(PredictorEngine, WhatIsMadeInARequestOutlivesIt) {
  Batches predictor(mlp_, translator_);
  predictor.set_engine(EngineUse::kAlways, {.batches = {4}});
  const NDArray x = Images(3);  // which is put together in the runtime's memory
  const std::vector<float> expected = ByKernels(mlp_, x);
  for (int i = 0; i < 4; ++i) {
    predictor.frozen()->Trim();
    ExpectNear(Ask(predictor, x), expected);
    ExpectNear(Ask(predictor, x), expected);
    EXPECT_EQ(predictor.frozen()->stats().runtimes, 1);
  }
  // Nothing is left of requests.
  const int64_t heap = MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated);
  const int64_t external = External();
  for (int i = 0; i < 10; ++i) Ask(predictor, x);
  EXPECT_EQ(MemoryTracker::Global().CurrentBytes(Host(), MemoryKind::kAllocated), heap);
  EXPECT_EQ(External(), external);
}

TEST_F(PredictorEngine, ManyThreadsPredictWhileRuntimesAreTakenBack) {
  constexpr int kThreads = 4;
  Model lenet = MakeModel("lenet", {28, 28, 1}, 10, 7, WorkspaceMode::kEnabled);
  std::vector<NDArray> inputs;
  std::vector<std::vector<float>> expected;
  const FrozenOptions options{.batches = {4, 1}};
  {
    Batches alone(lenet, translator_);
    alone.set_engine(EngineUse::kAlways, options);
    for (int64_t i = 0; i < 3; ++i) {
      inputs.push_back(Images(1 + 2 * i, static_cast<uint64_t>(i)));
      expected.push_back(Ask(alone, inputs.back()));
    }
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Batches predictor(lenet, translator_, "of a thread");
      predictor.set_engine(EngineUse::kAlways, options);
      for (int i = 0; i < 30; ++i) {
        const auto which = static_cast<size_t>(i + t) % 3;
        wrong += Ask(predictor, inputs[which]) != expected[which];
        if (i % 10 == 5 && t == 0) Reclaimer::Global().RunNow();
        if (i % 10 == 7 && t == 1) predictor.set_engine(EngineUse::kAlways, options);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace tidepool::nn
