#include "tidepool/nn/training/checkpoint.h"

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/dropout.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/parameter_file.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using absl::StatusCode;
using ::testing::ElementsAre;

// Drops a quarter of its input while training.
class Drops final : public Layer {
 public:
  std::string Kind() const override { return "test_drops"; }
  Shape OutputShape(const Shape& input) const override { return input; }
  NDArray Forward(LayerContext& context, const NDArray& x) const override {
    return context.training ? Dropout(x, 0.25, context.seed, context.stream) : x;
  }
  bool IsRandom() const override { return true; }
};

Network NewNetwork(uint64_t seed = 3) {
  return Network({6}, {Dense(8, Activation::kTanh), BatchNormalization(), Drops(), Dense(3)}, seed);
}

Batch BatchOf(int64_t i) {
  const auto seed = static_cast<uint64_t>(i);
  return {RandomUniform({16, 6}, -1, 1, seed), RandomIntegers({16}, 0, 3, seed)};
}

UpdaterConfig Config(UpdaterKind kind) {
  UpdaterConfig config = UpdaterConfig::Of(kind);
  config.schedule = Schedule::Cosine(40).AfterWarmup(5, 0.1);
  return config;
}

std::string Folder(const std::string& name) {
  const std::string folder = testing::TempDir() + "/" + name;
  std::filesystem::remove_all(folder);
  return folder;
}

// Parameters, averages, moments, schedules and dropped elements: a run that was interrupted twice ends with the bits of one
// that was not.
TEST(Checkpoint, ARunThatGoesOnIsTheSameToTheLastBit) {
  for (const UpdaterKind kind :
       {UpdaterKind::kSgd, UpdaterKind::kNesterovs, UpdaterKind::kAdamW, UpdaterKind::kRmsProp}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Network whole = NewNetwork();
    Trainer trainer(whole, Config(kind));
    for (int i = 0; i < 30; ++i) trainer.Step([&] { return BatchOf(i); });

    CheckpointFolder folder(Folder("resumed"));
    double loss = 0;
    for (const auto& [begin, end] : {std::pair(0, 7), {7, 19}, {19, 30}}) {
      Network part = NewNetwork(/*seed=*/3);
      Trainer again(part, Config(kind));
      if (const auto latest = folder.Latest()) {
        const CheckpointNotes notes = LoadCheckpoint(*latest, part, again.updater());
        EXPECT_EQ(notes.at("batch"), std::to_string(begin));
        EXPECT_EQ(notes.size(), 1u);
        EXPECT_EQ(again.steps(), begin);
      }
      for (int i = begin; i < end; ++i) loss = again.Step([&] { return BatchOf(i); });
      folder.Save(part, again.updater(), {{"batch", std::to_string(end)}});
      if (end == 30) {
        EXPECT_EQ(part.arrays().ToVector<float>(), whole.arrays().ToVector<float>());
      }
    }
    EXPECT_GT(loss, 0);
  }
}

TEST(Checkpoint, TheNewestAreKept) {
  const std::string path = Folder("kept");
  CheckpointFolder folder(path, {.keep = 2});
  EXPECT_EQ(folder.Latest(), std::nullopt);
  // Whatever else is there is the user's.
  const std::vector<std::string> others = {
      "notes.txt",          "step-best.safetensors",           "step-.safetensors",
      "step-1.safetensors", "step-000000000-copy.safetensors", "step-0000000001.safetensors"};
  for (const std::string& name : others) std::ofstream(path + "/" + name) << "mine";
  std::filesystem::create_directory(path + "/step-000000000.safetensors");
  Network network = NewNetwork();
  Trainer trainer(network, Config(UpdaterKind::kSgd));
  for (int i = 0; i < 4; ++i) {
    trainer.Step([&] { return BatchOf(i); });
    folder.Save(network, trainer.updater());
  }
  EXPECT_THAT(folder.All(), ElementsAre(path + "/step-000000003.safetensors",
                                        path + "/step-000000004.safetensors"));
  trainer.updater().set_steps(1234567890123);
  folder.Save(network, trainer.updater());
  EXPECT_EQ(folder.Latest(), path + "/step-1234567890123.safetensors");
  // Back at an early step: the file just written stays.
  trainer.updater().set_steps(1);
  EXPECT_EQ(folder.Save(network, trainer.updater()), path + "/step-000000001.safetensors");
  EXPECT_THAT(folder.All(), ElementsAre(path + "/step-000000001.safetensors",
                                        path + "/step-1234567890123.safetensors"));
  for (const std::string& name : others)
    EXPECT_TRUE(std::filesystem::exists(path + "/" + name)) << name;
  EXPECT_TRUE(std::filesystem::exists(path + "/step-000000000.safetensors"));
}

// A writer that is killed leaves a temporary file that no later checkpoint is called by.
TEST(Checkpoint, WhatAKilledWriterLeftGoesWithTheNextCheckpoint) {
  const std::string path = Folder("killed");
  CheckpointFolder folder(path);
  const std::string left = path + "/step-000000358.safetensors.tidepool-0.tmp",
                    another = path + "/step-1234567890123.safetensors.tidepool-3.tmp";
  const std::vector<std::string> others = {
      "notes.txt.tidepool-0.tmp", "step-best.safetensors.tidepool-0.tmp",
      "step-000000358.safetensors.tidepool-0x.tmp", "step-000000358.safetensors.tmp",
      "step-000000358.safetensors.tidepool-0.tmp.mine"};
  for (const std::string& name : others) std::ofstream(path + "/" + name) << "mine";
  for (const std::string& name : {left, another}) std::ofstream(name) << "half a checkpoint";
  const AtomicFile being_written(path + "/step-000000400.safetensors");
  Network network = NewNetwork();
  Trainer trainer(network, Config(UpdaterKind::kSgd));
  folder.Save(trainer);
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_FALSE(std::filesystem::exists(another));
  EXPECT_TRUE(std::filesystem::exists(being_written.temporary_path()));
  for (const std::string& name : others)
    EXPECT_TRUE(std::filesystem::exists(path + "/" + name)) << name;
}

// Where layers draw nothing, and files of before there was such a field.
TEST(Checkpoint, AnotherSeedIsNoMatterWhereNothingIsDrawn) {
  const std::string path = testing::TempDir() + "/seeds.safetensors";
  Network network({6}, {Dense(8), Dense(3)}, 3), other({6}, {Dense(8), Dense(3)}, 5);
  Trainer trainer(network, Config(UpdaterKind::kSgd)), another(other, Config(UpdaterKind::kSgd));
  trainer.Step([] { return BatchOf(1); });
  SaveCheckpoint(trainer, path);
  LoadCheckpoint(path, another);
  EXPECT_EQ(other.arrays().ToVector<float>(), network.arrays().ToVector<float>());
  Network drawing = NewNetwork(3), resumed = NewNetwork(5);
  Updater updater(Config(UpdaterKind::kSgd), resumed.parameters().shape());
  SaveParameters(drawing, path,
                 {{"format", "tidepool checkpoint"},
                  {"architecture", drawing.Describe()},
                  {"updater", updater.config().ToString()},
                  {"steps", "7"},
                  {"epoch", "0"},
                  {"random_step", "7"}});
  LoadCheckpoint(path, resumed, updater);
  EXPECT_EQ(updater.steps(), 7);
}

// Rates that are the same in the six digits of texts.
TEST(Checkpoint, OneOfAnUpdaterThatDiffersInASeventhDigitIsRefused) {
  const std::string path = testing::TempDir() + "/seventh.safetensors";
  Network network = NewNetwork(3);
  UpdaterConfig config = Config(UpdaterKind::kAdam);
  config.learning_rate = 0.001;
  Updater updater(config, {network.trained_elements()});
  SaveCheckpoint(network, updater, path);
  LoadCheckpoint(path, network, updater);
  config.learning_rate = 0.0010000001;
  Updater other(config, {network.trained_elements()});
  EXPECT_THAT(ErrorOf([&] { LoadCheckpoint(path, network, other); }),
              IsError(StatusCode::kDataLoss, {path, "metadata \"exact_updater\"", "0.0010000001"}));
}

// Whose steps have other bits.
TEST(Checkpoint, OneOfLayersThatComputeByAnotherTypeIsRefused) {
  const std::string path = testing::TempDir() + "/computes.safetensors";
  const auto new_network = [](std::optional<DType> type) {
    NetworkOptions options;
    options.compute_type = type;
    return Network(NetworkConfig::Sequential({6}, {Dense(3)}), options);
  };
  Network plain = new_network(std::nullopt), by_bf16 = new_network(DType::kBFloat16);
  Updater updater(Config(UpdaterKind::kAdam), {plain.trained_elements()});
  SaveCheckpoint(plain, updater, path);
  LoadCheckpoint(path, plain, updater);
  EXPECT_THAT(ErrorOf([&] { LoadCheckpoint(path, by_bf16, updater); }),
              IsError(StatusCode::kDataLoss,
                      {path, "metadata \"compute_type\" is \"f32\"", "expected \"bf16\""}));
  SaveCheckpoint(by_bf16, updater, path);
  LoadCheckpoint(path, by_bf16, updater);
  // Files of before it was told are taken.
  SaveParameters(
      plain, path,
      {{"format", "tidepool checkpoint"},
       {"architecture", plain.Describe()},
       {"updater", updater.config().ToString()},
       {"steps", "2"},
       {"epoch", "0"},
       {"random_step", "2"}},
      {{UpdaterStateName(0), *updater.state()[0]}, {UpdaterStateName(1), *updater.state()[1]}});
  LoadCheckpoint(path, by_bf16, updater);
  EXPECT_EQ(updater.steps(), 2);
}

TEST(Checkpoint, WhatDoesNotFitIsNamedAndNothingIsWritten) {
  const std::string path = testing::TempDir() + "/fits.safetensors";
  Network network = NewNetwork();
  Trainer trainer(network, Config(UpdaterKind::kAdam));
  trainer.Step([] { return BatchOf(1); });
  SaveCheckpoint(network, trainer.updater(), path);

  Network other = NewNetwork(5);
  const std::vector<float> before = other.arrays().ToVector<float>();
  const auto refused = [&](Network& into, UpdaterKind kind, std::vector<std::string> parts) {
    Trainer another(into, Config(kind));
    parts.push_back(path);
    EXPECT_THAT(ErrorOf([&] { LoadCheckpoint(path, into, another.updater()); }),
                IsError(StatusCode::kDataLoss, parts));
    EXPECT_EQ(another.steps(), 0);
  };
  refused(other, UpdaterKind::kNesterovs, {"\"updater\" is", "adam", "nesterovs"});
  refused(other, UpdaterKind::kAdam, {"\"random_seed\" is \"3\"", "expected \"5\""});
  Network larger({6}, {Dense(9), Dense(3)});
  refused(larger, UpdaterKind::kAdam, {"\"architecture\" is"});
  SaveParameters(network, path);
  refused(other, UpdaterKind::kAdam, {"metadata has no \"format\"", "expected a checkpoint"});
  SaveParameters(network, path,
                 {{"format", "tidepool checkpoint"},
                  {"architecture", network.Describe()},
                  {"updater", Config(UpdaterKind::kAdam).ToString()},
                  {"steps", "-1"},
                  {"epoch", "0"}});
  refused(other, UpdaterKind::kAdam, {"\"steps\" holds \"-1\"", "a number from 0"});
  EXPECT_EQ(other.arrays().ToVector<float>(), before);
  EXPECT_THAT(ErrorOf([&] {
                SaveCheckpoint(network, trainer.updater(), path, {{"steps", "1"}});
              }),
              IsError(StatusCode::kInvalidArgument, {"a note is called \"steps\""}));
  EXPECT_THAT(ErrorOf([] { CheckpointFolder("x", {.keep = 0}); }),
              IsError(StatusCode::kInvalidArgument, {"keep is 0"}));
  EXPECT_THAT(ErrorOf([] { CheckpointFolder("/proc/none/x"); }),
              IsError(StatusCode::kNotFound, {"/proc/none/x"}));
}

TEST(Checkpoint, DamagedOnesAreToldAndTheNewestWholeOneIsTaken) {
  const std::string path = Folder("damaged");
  std::vector<std::string> told;
  CheckpointFolder folder(
      path, {.on_damaged = [&](const std::string& warning) { told.push_back(warning); }});
  Network network = NewNetwork();
  Trainer trainer(network, Config(UpdaterKind::kAdam));
  for (int i = 0; i < 3; ++i) {
    trainer.Step([&] { return BatchOf(i); });
    folder.Save(trainer, {{"batch", std::to_string(i + 1)}});
  }
  const std::vector<std::string> all = folder.All();
  const std::string newest = all[2];
  const auto bytes = static_cast<int64_t>(std::filesystem::file_size(newest));
  EXPECT_EQ(folder.Latest(), newest);
  const auto truncate = [&](int64_t to) {
    std::filesystem::resize_file(newest, static_cast<uintmax_t>(to));
  };
  const auto overwrite = [&](int64_t count) {
    std::fstream(newest, std::ios::in | std::ios::out | std::ios::binary)
        .write(std::string(static_cast<size_t>(count), '\0').data(), count);
  };
  // As disks and copies that ended leave them, and other files of that name.
  const std::vector<std::pair<std::function<void()>, std::string>> damages = {
      {[&] { truncate(bytes - 1); }, "the end of the last tensor"},
      {[&] { truncate(0); }, "header length"},
      {[&] { truncate(100); }, "header length"},
      {[&] { overwrite(8); }, "header: found nothing"},
      {[&] { overwrite(bytes); }, "header: found nothing"},
      {[&] { SaveParameters(network, newest); }, "metadata has no \"format\""},
      {[&] {
         SaveParameters(network, newest,
                        {{"format", "tidepool checkpoint"}, {"steps", "3"}, {"epoch", "x"}});
       },
       "\"epoch\" holds \"x\""}};
  for (const auto& [damage, reason] : damages) {
    SaveCheckpoint(trainer, newest, {{"batch", "3"}});
    damage();
    told.clear();
    const auto latest = folder.Latest();
    ASSERT_EQ(latest, all[1]) << reason;
    EXPECT_THAT(told, ElementsAre(testing::AllOf(testing::HasSubstr("is passed over: " + newest),
                                                 testing::HasSubstr(reason))));
  }
  Network again = NewNetwork();
  Trainer resumed(again, Config(UpdaterKind::kAdam));
  EXPECT_EQ(LoadCheckpoint(*folder.Latest(), resumed).at("batch"), "2");
  EXPECT_EQ(resumed.steps(), 2);

  // Nobody is asked: stderr. What a program throws leaves.
  testing::internal::CaptureStderr();
  EXPECT_EQ(CheckpointFolder(path).Latest(), all[1]);
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      testing::StartsWith("tidepool: checkpoints: a damaged one is passed over: " + newest));
  const CheckpointFolder strict(
      path, {.on_damaged = [](const std::string& warning) { ThrowFailedPrecondition(warning); }});
  EXPECT_THAT(ErrorOf([&] { strict.Latest(); }),
              IsError(StatusCode::kFailedPrecondition, {newest}));

  // A run that began anew would remove what may be mended.
  for (const std::string& file : all) std::filesystem::resize_file(file, 100);
  EXPECT_THAT(ErrorOf([&] { folder.Latest(); }),
              IsError(StatusCode::kDataLoss, {path, "none", "whole among 3", newest + ": byte 0"}));
  // One of another network is whole, and an older one no answer to it.
  Network larger({6}, {Dense(9), Dense(3)});
  Trainer other(larger, Config(UpdaterKind::kAdam));
  SaveCheckpoint(other, newest);
  EXPECT_EQ(folder.Latest(), newest);
}

// Its updater's state is of other parameters than those that the file would say: of as many elements, or of others.
TEST(Checkpoint, ATrainerWhoseNetworkWasFrozenAnewIsRefusedAsItsStepIs) {
  const std::string path = Folder("stale"), of_good = path + "/of_good.safetensors";
  CheckpointFolder folder(path, {.keep = 1});
  const auto make_batch = [] { return Batch(Ones({2, 4}), Zeros({2}, DType::kInt64)); };
  const auto make = [](const std::string& frozen) {
    return Network(NetworkConfig::Sequential({4}, {Dense(4), Dense(4), Dense(2)}),
                   {.frozen = {frozen}});
  };
  for (const std::string to : {"1.dense", "2.dense"}) {
    Network network = make("0.dense"), other = make(to);
    Trainer trainer(network, Config(UpdaterKind::kAdam)), good(other, Config(UpdaterKind::kAdam));
    trainer.Step(make_batch);
    const std::string saved = folder.Save(trainer);
    SaveCheckpoint(good, of_good);
    network.SetFrozen(std::vector<std::string>{to});
    const std::vector<float> before = network.arrays().ToVector<float>();
    const std::vector<std::function<void()>> calls = {
        [&] { trainer.Step(make_batch); }, [&] { SaveCheckpoint(trainer, path + "/other"); },
        [&] { folder.Save(trainer); }, [&] { LoadCheckpoint(of_good, trainer); }};
    for (const auto& call : calls) {
      EXPECT_THAT(ErrorOf(call), IsError(StatusCode::kFailedPrecondition,
                                         {"were frozen or not since it was made, expected a "
                                          "trainer made afterwards"}));
    }
    EXPECT_FALSE(std::filesystem::exists(path + "/other"));
    EXPECT_THAT(folder.All(), ElementsAre(saved));
    EXPECT_EQ(network.arrays().ToVector<float>(), before);
  }
}

// A loop of one's own has no trainer that could tell; sizes are seen all the same.
TEST(Checkpoint, AnUpdaterOfAnotherSizeThanTheNetworkIsRefused) {
  const std::string path = Folder("size") + ".safetensors";
  Network network = NewNetwork();
  Updater updater(Config(UpdaterKind::kAdam), {network.trained_elements()});
  SaveCheckpoint(network, updater, path);
  network.SetFrozen(std::vector<std::string>{"0.dense"});
  const std::string expected = std::to_string(network.trained_elements());
  for (const auto& call :
       std::vector<std::function<void()>>{[&] { SaveCheckpoint(network, updater, path); },
                                          [&] { LoadCheckpoint(path, network, updater); }}) {
    EXPECT_THAT(ErrorOf(call), IsError(StatusCode::kFailedPrecondition,
                                       {"the updater's state has", "elements, expected " + expected,
                                        "network [network"}));
  }
}

// What is not whole is no checkpoint to go back to, and does not count as one that is kept.
TEST(Checkpoint, DamagedOnesDoNotCountAmongThoseKept) {
  const std::string path = Folder("damaged_kept");
  CheckpointFolder folder(path, {.keep = 2, .on_damaged = [](const std::string&) {}});
  Network network = NewNetwork();
  Trainer trainer(network, Config(UpdaterKind::kSgd));
  const auto name = [&](int step) {
    return path + "/step-00000000" + std::to_string(step) + ".safetensors";
  };
  const auto step = [&] {
    trainer.Step([&] { return BatchOf(1); });
    folder.Save(trainer);
  };
  step();
  step();
  std::filesystem::resize_file(name(2), 100);
  step();
  EXPECT_THAT(folder.All(), ElementsAre(name(1), name(2), name(3)));
  step();  // behind which two whole ones are newer than the damaged one
  EXPECT_THAT(folder.All(), ElementsAre(name(3), name(4)));
}

}  // namespace
}  // namespace tidepool::nn
