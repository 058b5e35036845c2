#include <cstdio>
#include <memory>
#include <optional>
#include <string>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/heartbeat.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"
using namespace tidepool;
using namespace tidepool::nn;

// 4800 points and the quadrant each is in: every rank can make all of them.
std::shared_ptr<const Examples<DataSet>> Points() {
  const NDArray points = RandomUniform({4800, 2}, -1, 1, /*seed=*/7);
  NDArray quadrants = Zeros({4800}, DType::kInt64);
  for (int64_t i = 0; i < 4800; ++i) {
    const int right = points.At<float>({i, 0}) > 0, upper = points.At<float>({i, 1}) > 0;
    quadrants.mutable_data<int64_t>()[i] = 2 * upper + right;
  }
  return std::make_shared<ArrayExamples>(points, quadrants);
}

void Train(Communicator& communicator, const std::string& folder) {
  constexpr int64_t kTogether = 96;  // examples of a step, on all ranks together
  constexpr uint64_t kSeed = 3, kEpochs = 4;
  const auto points = Points();
  Network network({2}, {Dense(16, Activation::kTanh), Dense(4)});
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  adam.learning_rate = 0.02;
  Trainer trainer(network, adam);

  // A job goes on from where the last one was, with as many ranks as it has now.
  std::optional<CheckpointFolder> checkpoints;
  DataPosition at{.examples = points->count(), .together = kTogether, .seed = kSeed};
  if (!folder.empty()) {
    checkpoints.emplace(folder);
    const auto notes = LoadLatest(communicator, trainer, *checkpoints);
    if (notes.has_value()) at = DataPosition::FromNotes(*notes);
    at.CheckIsIn(points->count(), kTogether, kSeed);
  }

  DistributedTrainer distributed(trainer, communicator, {.shard_updater = true});
  ExampleIterator<DataSet> batches(points, {.seed = kSeed,
                                            .epoch = at.epoch,
                                            .rank = communicator.rank(),
                                            .ranks = communicator.size(),
                                            .together = kTogether});
  batches.Seek(at.batch);
  distributed.set_listener([&](const DistributedStep&) {
    ++at.batch;
    if (checkpoints && at.batch % 20 == 0) distributed.SaveLatest(*checkpoints, at.ToNotes());
  });
  double loss = 0;
  while (at.epoch < kEpochs) {
    loss = distributed.Fit(batches).loss;
    batches.StartEpoch(++at.epoch);
    at.batch = 0;
  }
  if (communicator.rank() > 0) return;
  std::printf("%lld steps, quadrants are learned: %d\n", static_cast<long long>(trainer.steps()),
              loss < 0.2);
}

int main(int argc, char** argv) {
  try {
    const auto communicator = Communicator::Open();
    Heartbeat heartbeat(*communicator);
    heartbeat.Guard([&] { Train(*communicator, argc > 1 ? argv[1] : ""); });
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
