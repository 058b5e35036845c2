// What is taken away or set anew while a step, its loss or its listener is under way.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

// Makes a trainer of a network while that trains, and lets it go.
class TrainsAside final : public Layer {
 public:
  explicit TrainsAside(Network** network) : network_(network) {}
  std::string Kind() const override { return "trains_aside"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext& context, const NDArray& x) const override {
    if (context.training && *network_ != nullptr)
      const Trainer aside(**network_, UpdaterConfig::Of(UpdaterKind::kSgd));
    return x * 2.0;
  }

 private:
  Network** const network_;
};

Batch SmallBatch() { return {RandomUniform({3, 4}, -1, 1, 1), Zeros({3}, DType::kInt64)}; }

std::vector<float> TrainedWith(bool aside) {
  Network* in_layer = nullptr;
  Network network({4}, {Dense(5), TrainsAside(&in_layer), Dense(2)}, 6);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  if (aside) in_layer = &network;
  for (int i = 0; i < 4; ++i) trainer.Step([] { return SmallBatch(); });
  return network.parameters().ToVector<float>();
}

TEST(StepUnderWay, ATrainerThatGoesMeanwhileTakesNothingFromIt) {
  EXPECT_EQ(TrainedWith(true), TrainedWith(false));
}

NDArray Squares(absl::Span<const NDArray> outputs) { return Sum(Square(outputs[0]), 1); }

// By what they captured, which would be gone with them.
TEST(StepUnderWay, ALossMaySetAnother) {
  Network network({4}, {Dense(2)}, 6), other({4}, {Dense(2)}, 6);
  other.set_loss([](absl::Span<const NDArray> o, const NetworkInputs&) { return Squares(o); });
  const std::string name(64, 'n');
  int calls = 0;
  network.set_loss(
      [&network, &calls, name](absl::Span<const NDArray> outputs, const NetworkInputs&) {
        network.set_loss(Loss(LossKind::kSoftmaxCrossEntropy));
        calls += name == std::string(64, 'n');
        return Squares(outputs);
      });
  EXPECT_EQ(network.loss(), nullptr);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  Trainer trainer_of_other(other, UpdaterConfig::Of(UpdaterKind::kSgd));
  EXPECT_EQ(trainer.Step([] { return SmallBatch(); }),
            trainer_of_other.Step([] { return SmallBatch(); }));
  EXPECT_EQ(calls, 1);
  ASSERT_NE(network.loss(), nullptr);
  trainer.Step([] { return SmallBatch(); });
  EXPECT_EQ(calls, 1);
  // Known by its kind behind steps as well.
  ASSERT_NE(network.loss(), nullptr);
  EXPECT_EQ(network.loss()->ToString(), Loss(LossKind::kSoftmaxCrossEntropy).ToString());
}

// A function that counts does so for itself, in a replica as in the network.
TEST(StepUnderWay, AReplicasLossIsACopy) {
  Network network({4}, {Dense(2)}, 6);
  double weight = 0;
  network.set_loss([n = 0, &weight](absl::Span<const NDArray> o, const NetworkInputs&) mutable {
    weight = ++n;
    return Squares(o);
  });
  const auto step = [](Network& of) {
    const Batch batch = SmallBatch();
    of.ComputeGradients(batch.features, batch.labels);
  };
  step(network);
  step(network);
  EXPECT_EQ(weight, 2);
  Network replica = network.NewReplica(Network::ReplicaParameters::kOwn, 1);
  step(replica);
  EXPECT_EQ(weight, 3);
  step(network);
  EXPECT_EQ(weight, 3);
}

TEST(StepUnderWay, AListenerMayTakeItselfOutOrSetAnother) {
  Network network({4}, {Dense(2)}, 6);
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kSgd));
  ExampleIterator<DataSet> batches(
      std::make_shared<ArrayExamples>(RandomUniform({12, 4}, -1, 1, 1), Zeros({12}, DType::kInt64)),
      {.batch_size = 3});
  const std::string name(64, 'n');
  int once = 0, behind = 0, told = 0;
  trainer.set_listener([&trainer, &once, name](const TrainedStep&) {
    trainer.set_listener({});
    once += name == std::string(64, 'n');
  });
  trainer.Fit(batches);
  EXPECT_EQ(once, 1);
  trainer.set_listener([&, name](const TrainedStep&) {
    trainer.set_listener([&behind](const TrainedStep&) { ++behind; });
    once += name == std::string(64, 'n');
  });
  batches.Reset();
  EXPECT_EQ(trainer.Fit(batches).batches, 4);
  EXPECT_EQ(once, 2);
  EXPECT_EQ(behind, 3);
  // One that throws stays.
  trainer.set_listener([&told](const TrainedStep&) {
    if (++told == 1) throw std::string("no more");
  });
  batches.Reset();
  EXPECT_THROW(trainer.Fit(batches), std::string);
  trainer.Fit(batches);
  EXPECT_EQ(told, 4);
}

}  // namespace
}  // namespace tidepool::nn
