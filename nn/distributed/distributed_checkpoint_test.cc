// Jobs that go on from a checkpoint on other numbers of ranks.
#include "tidepool/nn/distributed/distributed_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/data/example_iterator.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/thread_ranks.h"
#include "tidepool/nn/layers/dense.h"

namespace tidepool::nn {
namespace {

std::string NewFolder() {
  std::string path = testing::TempDir() + "/checkpoints.XXXXXX";
  EXPECT_NE(mkdtemp(path.data()), nullptr);
  return path;
}

constexpr int64_t kExamples = 45, kTogether = 10;
constexpr uint64_t kSeed = 7;

// Example i has i as its first feature, so that it is known when it is seen.
std::shared_ptr<const Examples<DataSet>> Numbered() {
  NDArray features = RandomUniform({kExamples, 4}, -1, 1, DType::kFloat64, 3, 0, Place::Heap());
  NDArray labels({kExamples}, DType::kInt64, Place::Heap());
  for (int64_t i = 0; i < kExamples; ++i) {
    features.mutable_data<double>()[4 * i] = static_cast<double>(i) / 100;
    labels.mutable_data<int64_t>()[i] = i % 3;
  }
  return std::make_shared<ArrayExamples>(features, labels);
}

struct Seen {
  std::mutex mutex;
  std::vector<std::multiset<int64_t>> by_epoch = std::vector<std::multiset<int64_t>>(4);
  std::vector<double> parameters;
};

// From the newest checkpoint of the folder, so many steps more or to the end of epoch 3; a
// checkpoint is written at the end.
enum class Shards { kNothing, kUpdater, kParameters };

void Train(int ranks, int steps, const std::string& path, Shards shards, Seen& seen) {
  ThreadRanks(ranks).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    const bool parts = shards == Shards::kParameters;
    Network network(NetworkConfig::Sequential({4}, {Dense(8, Activation::kTanh), Dense(3)}),
                    {.seed = static_cast<uint64_t>(communicator.rank()),
                     .dtype = DType::kFloat64,
                     .hosted_parameters = parts});
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    CheckpointFolder folder(path);
    DataPosition at{.examples = kExamples, .together = kTogether, .seed = kSeed};
    std::optional<CheckpointNotes> notes;
    if (!parts) notes = LoadLatest(communicator, trainer, folder);
    // A bucket for each array.
    DistributedTrainer distributed(trainer, communicator,
                                   {.bucket_bytes = 1,
                                    .shard_updater = shards == Shards::kUpdater,
                                    .shard_parameters = parts});
    if (parts) notes = distributed.LoadLatest(folder);
    if (notes.has_value()) at = DataPosition::FromNotes(*notes);
    at.CheckIsIn(kExamples, kTogether, kSeed);
    ExampleIterator<DataSet> batches(Numbered(), {.seed = kSeed,
                                                  .epoch = at.epoch,
                                                  .rank = communicator.rank(),
                                                  .ranks = ranks,
                                                  .together = kTogether});
    batches.Seek(at.batch);
    int left = steps;
    for (; at.epoch < 3 && left > 0; ++at.epoch, at.batch = 0, batches.StartEpoch(at.epoch)) {
      for (; at.batch < batches.size() && left > 0; ++at.batch, --left) {
        distributed.Step([&]() -> std::optional<Batch> {
          std::optional<Batch> batch = batches.Next();
          const std::lock_guard<std::mutex> lock(seen.mutex);
          for (int64_t i = 0; i < batch->size(); ++i) {
            seen.by_epoch[at.epoch].insert(
                static_cast<int64_t>(std::lround(batch->features.At<double>({i, 0}) * 100)));
          }
          return batch;
        });
      }
      if (at.batch < batches.size()) break;
    }
    distributed.SaveLatest(folder, at.ToNotes());
    if (communicator.rank() != 0) return;
    // As the file has them: a whole network reads any.
    Network whole(NetworkConfig::Sequential({4}, {Dense(8, Activation::kTanh), Dense(3)}),
                  {.dtype = DType::kFloat64});
    Trainer reader(whole, UpdaterConfig::Of(UpdaterKind::kAdam));
    LoadCheckpoint(*folder.Latest(), reader);
    EXPECT_EQ(reader.steps(), trainer.steps());
    const std::lock_guard<std::mutex> lock(seen.mutex);
    seen.parameters = whole.parameters().ToVector<double>();
  });
}

void ExpectEachExampleOnce(const Seen& seen) {
  for (int epoch = 0; epoch < 3; ++epoch) {
    ASSERT_EQ(seen.by_epoch[static_cast<size_t>(epoch)].size(), static_cast<size_t>(kExamples))
        << "epoch " << epoch;
    for (int64_t i = 0; i < kExamples; ++i)
      EXPECT_EQ(seen.by_epoch[static_cast<size_t>(epoch)].count(i), 1u) << i;
  }
}

void ExpectAlike(const Seen& parts, const Seen& whole) {
  ASSERT_EQ(parts.parameters.size(), whole.parameters.size());
  double largest = 0;
  for (size_t i = 0; i < whole.parameters.size(); ++i) {
    largest = std::max(largest, std::abs(parts.parameters[i] - whole.parameters[i]));
  }
  EXPECT_LT(largest, 1e-9);
}

TEST(DistributedCheckpoint, GoesOnWithAnyNumberOfRanksWithEveryExampleOnce) {
  Seen whole;
  // Rank 0's initial parameters are everybody's, in parts or not.
  Train(1, 100, NewFolder(), Shards::kNothing, whole);
  ExpectEachExampleOnce(whole);
  for (const Shards shards : {Shards::kNothing, Shards::kUpdater, Shards::kParameters}) {
    Seen parts;
    const std::string folder = NewFolder();
    // In the middle of epochs and at their ends, of 5 batches each.
    for (const auto& [ranks, steps] :
         std::vector<std::pair<int, int>>{{4, 3}, {2, 2}, {3, 1}, {1, 5}, {5, 3}, {4, 100}}) {
      Train(ranks, steps, folder, shards, parts);
    }
    ExpectEachExampleOnce(parts);
    ExpectAlike(parts, whole);
  }
}

TEST(DistributedCheckpoint, OfWholeParametersAndOfPartsAreTheSameFiles) {
  Seen whole, both;
  Train(1, 100, NewFolder(), Shards::kNothing, whole);
  const std::string folder = NewFolder();
  Train(3, 4, folder, Shards::kParameters, both);
  Train(2, 3, folder, Shards::kUpdater, both);
  Train(4, 3, folder, Shards::kParameters, both);
  Train(1, 100, folder, Shards::kNothing, both);
  ExpectEachExampleOnce(both);
  ExpectAlike(both, whole);
}

TEST(DistributedCheckpoint, TheSameRanksGoOnToTheSameBits) {
  for (const Shards shards : {Shards::kNothing, Shards::kParameters}) {
    Seen whole, parts;
    Train(3, 100, NewFolder(), Shards::kNothing, whole);
    const std::string folder = NewFolder();
    for (const int steps : {4, 1, 100}) Train(3, steps, folder, shards, parts);
    EXPECT_EQ(parts.parameters, whole.parameters);
  }
}

// Rank 0 alone looks at the files, so that all go on from the one it takes.
TEST(DistributedCheckpoint, AllGoOnFromTheNewestThatIsWhole) {
  for (const Shards shards : {Shards::kNothing, Shards::kUpdater, Shards::kParameters}) {
    Seen whole, parts;
    Train(3, 100, NewFolder(), shards, whole);
    const std::string folder = NewFolder();
    for (const int steps : {4, 3}) Train(3, steps, folder, shards, parts);
    const std::string newest = *CheckpointFolder(folder).Latest();
    std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
    testing::internal::CaptureStderr();
    Train(3, 100, folder, shards, parts);
    EXPECT_EQ(parts.parameters, whole.parameters);
    const std::string told = testing::internal::GetCapturedStderr();
    EXPECT_THAT(told, testing::HasSubstr("a damaged one is passed over: " + newest));
    EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1);  // rank 0's

    // None is whole: nobody begins anew.
    for (const std::string& file : CheckpointFolder(folder).All())
      std::filesystem::resize_file(file, 10);
    std::mutex mutex;
    std::multiset<absl::StatusCode> codes;
    ThreadRanks(3).Run([&](Communicator& communicator) {
      WorkerPool pool(1);
      const ThreadPoolScope thread(pool);
      const bool parts_only = shards == Shards::kParameters;
      Network network(NetworkConfig::Sequential({4}, {Dense(3)}),
                      {.hosted_parameters = parts_only});
      Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
      const CheckpointFolder damaged(folder, {.on_damaged = [](const std::string&) {}});
      const Error error = ErrorOf([&] {
        if (!parts_only) return void(LoadLatest(communicator, trainer, damaged));
        DistributedTrainer distributed(trainer, communicator, {.shard_parameters = true});
        distributed.LoadLatest(damaged);
      });
      const std::lock_guard<std::mutex> lock(mutex);
      codes.insert(error.code());
    });
    EXPECT_EQ(codes.count(absl::StatusCode::kDataLoss), 1u);
    EXPECT_EQ(codes.count(absl::StatusCode::kAborted), 2u);
  }
}

TEST(DistributedCheckpoint, WhatRank0CannotDoWithPartsEndsAllAlike) {
  const std::string path = NewFolder();
  ThreadRanks(2).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    const auto expect = [&](const Error& error, absl::StatusCode code, const std::string& text) {
      const bool is_first = communicator.rank() == 0;
      EXPECT_THAT(error, IsError(is_first ? code : absl::StatusCode::kAborted,
                                 {is_first ? text : "rank 0 could not"}));
    };
    CheckpointFolder folder(path);
    const auto with = [&](UpdaterKind kind, absl::FunctionRef<void(DistributedTrainer&)> work) {
      Network network(NetworkConfig::Sequential({4}, {Dense(3)}), {.hosted_parameters = true});
      Trainer trainer(network, UpdaterConfig::Of(kind));
      DistributedTrainer distributed(trainer, communicator, {.shard_parameters = true});
      work(distributed);
    };
    with(UpdaterKind::kAdam, [&](DistributedTrainer& distributed) {
      EXPECT_FALSE(distributed.LoadLatest(folder).has_value());
      expect(ErrorOf([&] {
               distributed.SaveLatest(folder, {{"steps", "a"}});
             }),
             absl::StatusCode::kInvalidArgument, "steps");
      distributed.SaveLatest(folder, {{"note", "a"}});
      EXPECT_EQ(*distributed.LoadLatest(folder), (CheckpointNotes{{"note", "a"}}));
    });
    with(UpdaterKind::kSgd, [&](DistributedTrainer& distributed) {
      expect(ErrorOf([&] { distributed.LoadLatest(folder); }), absl::StatusCode::kDataLoss, "adam");
      // It goes on as if nothing had been.
      distributed.Step([] {
        return std::optional<Batch>(Batch(Zeros({1, 4}), Zeros({1}, DType::kInt64)));
      });
    });
  });
}

TEST(DataPosition, IsReadBackAndRefusesOtherData) {
  const DataPosition at{
      .examples = 60000, .together = 64, .seed = 18446744073709551615u, .epoch = 3, .batch = 12};
  EXPECT_EQ(DataPosition::FromNotes(at.ToNotes()), at);
  CheckpointNotes notes = at.ToNotes();
  notes["data_batch"] = "12x";
  EXPECT_THAT(ErrorOf([&] { DataPosition::FromNotes(notes); }),
              IsError(absl::StatusCode::kDataLoss, {"data_batch", "12x"}));
  notes.erase("data_batch");
  EXPECT_THAT(ErrorOf([&] { DataPosition::FromNotes(notes); }),
              IsError(absl::StatusCode::kDataLoss, {"data_batch", "missing"}));
  at.CheckIsIn(60000, 64, 18446744073709551615u);
  for (const int64_t batch : {int64_t{-1}, int64_t{939}, std::numeric_limits<int64_t>::max()}) {
    const DataPosition elsewhere{.examples = 60000, .together = 64, .batch = batch};
    EXPECT_THAT(ErrorOf([&] { elsewhere.CheckIsIn(60000, 64, 0); }),
                IsError(absl::StatusCode::kDataLoss, {"data_batch is ", "expected 0 to 938"}));
  }
  DataPosition{.examples = 60000, .together = 64, .batch = 938}.CheckIsIn(60000, 64, 0);
  EXPECT_THAT(
      ErrorOf([&] { at.CheckIsIn(60000, 128, 1); }),
      IsError(absl::StatusCode::kFailedPrecondition,
              {"batches of 64 of 60000", "expected batches of 128 of 60000 examples by seed 1"}));
}

TEST(DistributedCheckpoint, WhatRank0CannotWriteOrReadEndsAllAlike) {
  const std::string path = NewFolder();
  ThreadRanks(2).Run([&](Communicator& communicator) {
    WorkerPool pool(1);
    const ThreadPoolScope thread(pool);
    Network network(NetworkConfig::Sequential({4}, {Dense(3)}), {.seed = 1});
    Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    CheckpointFolder folder(path);
    EXPECT_FALSE(LoadLatest(communicator, trainer, folder).has_value());
    SaveLatest(communicator, trainer, folder, {{"note", "a"}, {"other", ""}});
    EXPECT_EQ(*LoadLatest(communicator, trainer, folder),
              (CheckpointNotes{{"note", "a"}, {"other", ""}}));
    // A note that cannot be.
    const Error unsaved = ErrorOf([&] {
      SaveLatest(communicator, trainer, folder, {{"steps", "a"}});
    });
    Trainer another(network, UpdaterConfig::Of(UpdaterKind::kSgd));
    const Error unread = ErrorOf([&] { LoadLatest(communicator, another, folder); });
    if (communicator.rank() == 0) {
      EXPECT_THAT(unsaved, IsError(absl::StatusCode::kInvalidArgument, {"steps"}));
      EXPECT_THAT(unread,
                  IsError(absl::StatusCode::kDataLoss, {"updater", "adam", "expected", "sgd"}));
    } else {
      EXPECT_THAT(unsaved, IsError(absl::StatusCode::kAborted,
                                   {"rank 0 could not save the checkpoint, as said there"}));
      EXPECT_THAT(unread,
                  IsError(absl::StatusCode::kAborted, {"rank 0 could not load the checkpoint"}));
    }
  });
}

}  // namespace
}  // namespace tidepool::nn
