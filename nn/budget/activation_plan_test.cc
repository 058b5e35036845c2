// Steps by plans of activations are those of a network that keeps everything, to the bit.
#include <algorithm>
#include <cerrno>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/file_queue.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/nn/layers/conv2d.h"
#include "tidepool/nn/layers/dense.h"
#include "tidepool/nn/layers/dropout.h"
#include "tidepool/nn/layers/normalization.h"
#include "tidepool/nn/layers/shaping.h"
#include "tidepool/nn/network/activation_pass.h"
#include "tidepool/nn/network/activation_plan.h"
#include "tidepool/nn/testing/example_networks.h"
#include "tidepool/nn/testing/placement_runs.h"
#include "tidepool/nn/training/trainer.h"

namespace tidepool::nn {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 6;

// Draws random numbers, and moves running averages.
Network DropoutNetwork(const NetworkOptions& options) {
  return Network(
      NetworkConfig::Sequential(
          {28, 28, 1}, {Conv2D(4, 5, 5, Activation::kRelu), BatchNormalization(), DropoutLayer(0.3),
                        Flatten(), Dense(16, Activation::kTanh), DropoutLayer(0.5), Dense(10)}),
      options);
}

Network Made(const std::string& name, WorkspaceMode mode = WorkspaceMode::kEnabled) {
  return name == "dropout" ? DropoutNetwork(Options(mode)) : ExampleNetwork(name, Options(mode));
}

TrainingBits Train(Network& network, int steps = kSteps) {
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
  TrainingBits trained;
  for (int i = 0; i < steps; ++i) {
    // The last batch of an epoch is smaller.
    trained.losses.push_back(
        trainer.Step([&] { return SomeBatch(i % 3 == 2 ? 5 : 8, static_cast<uint64_t>(i)); }));
  }
  trained.arrays = BytesOf(network.arrays());
  return trained;
}

// Segments of so many layers, of these ways in turn.
ActivationPlan PlanOf(const Network& network, int layers, std::vector<Retention> ways) {
  ActivationPlan plan;
  const int all = static_cast<int>(network.config()->nodes.size());
  for (int begin = 0; begin < all; begin += layers) {
    plan.segments.push_back({.layers = std::min(layers, all - begin),
                             .retention = ways[plan.segments.size() % ways.size()]});
  }
  return plan;
}

constexpr const char* kNetworks[] = {"lenet", "residual", "lstm", "transformer", "dropout"};

TEST(ActivationPlanTest, EveryWayGivesTheBitsOfKeepingEverything) {
  const auto file = std::make_shared<SpillFile>(SpillFileOptions{.block_bytes = 64 << 10});
  const std::vector<std::vector<Retention>> ways = {
      {Retention::kKeep},
      {Retention::kRecompute},
      {Retention::kSpill},
      {Retention::kRecomputeSpilled},
      {Retention::kSpill, Retention::kRecompute, Retention::kKeep, Retention::kRecomputeSpilled},
      {Retention::kKeep, Retention::kRecomputeSpilled, Retention::kSpill},
      {Retention::kRemake},
      {Retention::kRemake, Retention::kSpill, Retention::kRemake, Retention::kRecompute}};
  for (const char* const name : kNetworks) {
    Network unlimited = Made(name);
    const TrainingBits expected = Train(unlimited);
    for (const auto& way : ways) {
      for (const int layers : {1, 2, 3, 100}) {
        Network network = Made(name);
        ActivationPlan plan = PlanOf(network, layers, way);
        plan.spill_behind = layers % 2 + 1;
        plan.spill_ahead = layers % 3;
        SCOPED_TRACE(std::string(name) + ": " + plan.ToString());
        network.SetActivationPlan(plan, file);
        EXPECT_EQ(Train(network), expected);
        if (way[0] == Retention::kSpill && layers == 1) {
          EXPECT_GT(network.activations()->last.bytes, 0);
        }
      }
    }
  }
  EXPECT_EQ(file->stats().used_bytes, 0);
}

// What becomes of one transfer of the file.
struct Fault {
  enum Kind { kNone, kFull, kFails, kDamaged };
  std::mutex mutex;
  Kind kind = kNone;
  int64_t at = 0, next = 0;  // the transfer of that number, from when it was set

  void Set(Kind what, int64_t number) {
    const std::lock_guard lock(mutex);
    kind = what;
    at = number;
    next = 0;
  }
};

class FaultyQueue final : public FileQueue {
 public:
  FaultyQueue(std::unique_ptr<FileQueue> queue, std::shared_ptr<Fault> fault)
      : queue_(std::move(queue)), fault_(std::move(fault)) {}
  void Submit(const FileTransfer& transfer) override {
    {
      const std::lock_guard lock(fault_->mutex);
      const bool fits =
          fault_->kind != Fault::kNone && (fault_->kind == Fault::kDamaged) != transfer.writes;
      if (fits && fault_->next++ == fault_->at) {
        struck_[transfer.tag] = {transfer.data, fault_->kind};
      }
    }
    queue_->Submit(transfer);
  }
  std::optional<Done> Wait() override {
    std::optional<Done> done = queue_->Wait();
    if (!done.has_value()) return done;
    const auto found = struck_.find(done->tag);
    if (found == struck_.end()) return done;
    const auto [data, kind] = found->second;
    struck_.erase(found);
    if (kind == Fault::kFull) done->result = -ENOSPC;
    if (kind == Fault::kFails) done->result = -EIO;
    if (kind == Fault::kDamaged) data[done->result / 2] ^= std::byte{1};
    return done;
  }
  void Wake() noexcept override { queue_->Wake(); }
  const char* name() const override { return "faulty"; }

 private:
  std::unique_ptr<FileQueue> queue_;
  std::shared_ptr<Fault> fault_;
  std::map<uint64_t, std::pair<std::byte*, Fault::Kind>> struck_;
};

// Each transfer of a step in turn finds the disk full, a device that fails, a block that comes back damaged. The step ends with an
// error, and done again gives the bits of one that never failed.
TEST(ActivationPlanTest, AStepWhoseFileFailsMayBeDoneAgain) {
  constexpr int kMostTransfers = 60;
  for (const Retention way : {Retention::kSpill, Retention::kRecomputeSpilled}) {
    Network unlimited = Made("dropout");
    const auto fault = std::make_shared<Fault>();
    const auto file = std::make_shared<SpillFile>(SpillFileOptions{
        .block_bytes = 16 << 10,
        .queue = [&](int descriptor, int depth) -> std::unique_ptr<FileQueue> {
          return std::make_unique<FaultyQueue>(NewFileQueue(descriptor, depth), fault);
        }});
    Network network = Made("dropout");
    network.SetActivationPlan(PlanOf(network, 1, {way}), file);
    Trainer expected(unlimited, UpdaterConfig::Of(UpdaterKind::kAdam)),
        trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam));
    const auto batch = [&](int64_t step) { return SomeBatch(4, static_cast<uint64_t>(step)); };
    int failed = 0, step = 0;
    for (const auto& [kind, code] : {std::pair(Fault::kFull, absl::StatusCode::kResourceExhausted),
                                     std::pair(Fault::kFails, absl::StatusCode::kInternal),
                                     std::pair(Fault::kDamaged, absl::StatusCode::kDataLoss)}) {
      for (int at = 0; at < kMostTransfers; at += 3) {
        fault->Set(kind, at);
        double loss = 0;
        try {
          // What was written for somebody who kept the array after all is nobody's loss.
          loss = trainer.Step([&] { return batch(step); });
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), code) << error.message();
          ++failed;
          fault->Set(Fault::kNone, 0);
          loss = trainer.Step([&] { return batch(step); });
        }
        EXPECT_EQ(loss, expected.Step([&] { return batch(step); }));
        EXPECT_EQ(file->stats().used_bytes, 0);
        ++step;
      }
    }
    EXPECT_GT(failed, 8);
    EXPECT_EQ(BytesOf(network.arrays()), BytesOf(unlimited.arrays()));
  }
}

// Steps of other modes would read what is not there any more.
TEST(ActivationPlanTest, ModesThatCannotFollowAPlanAreRefusedWhileThereIsOne) {
  Network network = Made("lenet"), other = Made("lenet");
  network.SetActivationPlan(PlanOf(network, 1, {Retention::kSpill}), std::make_shared<SpillFile>());
  Trainer trainer(network, UpdaterConfig::Of(UpdaterKind::kAdam)),
      kept(other, UpdaterConfig::Of(UpdaterKind::kAdam));
  const auto step = [](Trainer& of, uint64_t i) {
    return of.Step([&] { return SomeBatch(8, i); });
  };
  for (const WorkspaceMode mode : {WorkspaceMode::kSingle, WorkspaceMode::kSeparate}) {
    try {
      network.set_training_workspace(mode);
      FAIL() << static_cast<int>(mode);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
      EXPECT_THAT(error.what(), testing::HasSubstr(mode == WorkspaceMode::kSingle
                                                       ? "workspace mode single under a plan"
                                                       : "workspace mode separate under a plan"));
    }
    EXPECT_EQ(network.workspace_mode(), WorkspaceMode::kEnabled);
    for (uint64_t i = 0; i < 2; ++i) EXPECT_EQ(step(trainer, i), step(kept, i));
  }
  network.set_training_workspace(WorkspaceMode::kNone);
  EXPECT_EQ(step(trainer, 2), step(kept, 2));
  network.SetActivationPlan({});
  network.set_training_workspace(WorkspaceMode::kSeparate);
  EXPECT_EQ(step(trainer, 3), step(kept, 3));
}

TEST(ActivationPlanTest, PlansThatDoNotFitAreRefused) {
  Network network = Made("lenet");
  const auto refused = [&](const ActivationPlan& plan, Network& by) {
    return MessageOf([&] { by.SetActivationPlan(plan); });
  };
  EXPECT_THAT(refused({{{.layers = 5}}}, network), HasSubstr("5 layers, expected 6"));
  EXPECT_THAT(refused({{{.layers = 7}, {.layers = -1}}}, network),
              HasSubstr("a segment of -1 layers"));
  EXPECT_THAT(refused({{{.layers = 6, .retention = Retention::kSpill}}}, network),
              HasSubstr("there is no file"));
  EXPECT_THAT(refused({{{.layers = 6}}, 0, 0}, network), HasSubstr("writes end 0 segments behind"));
  EXPECT_EQ(network.activations(), nullptr);
  Network program = ExampleNetwork("program", Options(WorkspaceMode::kEnabled));
  EXPECT_THAT(refused({{{.layers = 1}}}, program), HasSubstr("a program's"));
  Network single = ExampleNetwork("lenet", Options(WorkspaceMode::kSingle));
  EXPECT_THAT(refused({{{.layers = 6}}}, single), HasSubstr("expected enabled or none"));
}

}  // namespace
}  // namespace tidepool::nn
