// Steps that spill, on files and memory that fail: a step that ends with an error has changed nothing, and done again it has the bits
// of one that never failed.
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/spill/file_queue.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/testing/failing_provider.h"
#include "tidepool/nn/budget/spilled_trainer.h"
#include "tidepool/nn/budget/spilled_training_runs.h"
#include "tidepool/nn/network/activation_plan.h"
#include "tidepool/nn/testing/deep_networks.h"
#include "tidepool/nn/testing/example_networks.h"

namespace tidepool::nn {
namespace {

// Transfers of a file fail from a number on, for as long as that is said; or the one of that number gets no answer meanwhile.
struct Faults {
  std::atomic<int64_t> next{0}, first{INT64_MAX};
  std::atomic<int> error{EIO};
  std::atomic<bool> hangs{false};
  FileQueue* queue = nullptr;

  void End() {
    first = INT64_MAX;
    queue->Wake();
  }
};

class FailingQueue final : public FileQueue {
 public:
  FailingQueue(std::unique_ptr<FileQueue> queue, std::shared_ptr<Faults> faults)
      : queue_(std::move(queue)), faults_(std::move(faults)) {
    faults_->queue = this;
  }
  void Submit(const FileTransfer& transfer) override {
    const int64_t number = faults_->next++;
    if (number < faults_->first) return queue_->Submit(transfer);
    if (faults_->hangs) {
      if (number > faults_->first) return queue_->Submit(transfer);
      hanging_.push_back(transfer);
      return;
    }
    failed_.push_back({transfer.tag, -faults_->error});
    queue_->Wake();
  }
  std::optional<Done> Wait() override {
    if (faults_->first == INT64_MAX) {
      for (const FileTransfer& transfer : std::exchange(hanging_, {})) queue_->Submit(transfer);
    }
    if (failed_.empty()) {
      std::optional<Done> done = queue_->Wait();
      if (done.has_value() || failed_.empty()) return done;
    }
    const Done done = failed_.back();
    failed_.pop_back();
    return done;
  }
  void Wake() noexcept override { queue_->Wake(); }
  const char* name() const override { return "failing"; }

 private:
  std::unique_ptr<FileQueue> queue_;
  std::shared_ptr<Faults> faults_;
  std::vector<Done> failed_;
  std::vector<FileTransfer> hanging_;
};

std::shared_ptr<SpillFile> FailingFile(const std::shared_ptr<Faults>& faults,
                                       absl::Duration limit = absl::InfiniteDuration()) {
  return std::make_shared<SpillFile>(SpillFileOptions{
      .block_bytes = 16384, .time_limit = limit, .queue = [faults](int descriptor, int depth) {
        return std::make_unique<FailingQueue>(NewFileQueue(descriptor, depth), faults);
      }});
}

// All layers' activations go to the file.
void SpillAll(Network& network, std::shared_ptr<SpillFile> file) {
  ActivationPlan plan;
  const int layers = static_cast<int>(network.config()->nodes.size());
  for (int i = 0; i < layers; ++i) {
    plan.segments.push_back(
        {.layers = 1, .retention = i % 3 == 2 ? Retention::kRecomputeSpilled : Retention::kSpill});
  }
  network.SetActivationPlan(plan, std::move(file));
}

// Whichever transfer of a step fails first, the step has changed nothing, and training ends with the same bits.
TEST(SpillingFaults, AStepWhoseFileFailsHasChangedNothing) {
  UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  for (const auto& [error, clips] :
       {std::pair(EIO, false), std::pair(EIO, true), std::pair(ENOSPC, false)}) {
    // Gradients wait in the file as well, where their norm clips them.
    adam.clipping = {clips ? ClippingKind::kGlobalNorm : ClippingKind::kNone, 1e-2};
    // One with running averages among them.
    const char* const name = error == EIO ? "convolutions" : "residual";
    const auto make = [&] { return DeepNetwork(name, 5, Options(WorkspaceMode::kEnabled)); };
    // The norm's last bits are those of a trainer that spills: this network's runs go on in other layers.
    const Trained expected = clips ? InAFile(make(), adam, 4, 1) : InMemory(make(), adam, 4);
    int failures = 0;
    for (int64_t first = 0; failures == static_cast<int>(first); ++first) {
      const auto faults = std::make_shared<Faults>();
      faults->error = error;
      const auto file = FailingFile(faults);
      Network network = make();
      SpilledTrainer trainer(network, adam, {.file = file, .ahead = 1});
      Trained trained;
      Train(trainer, 0, 2, &trained);
      const int64_t used = file->stats().used_bytes;
      const auto beside = [&] {
        return network.beside().is_defined() ? BytesOf(network.beside()) : std::string();
      };
      const std::string averages = beside();
      EXPECT_EQ(averages.empty(), error == EIO);
      faults->next = 0;
      faults->first = first;
      try {
        trainer.Step([] { return SomeBatch(4 + 2 % 3, 2); });
        faults->first = INT64_MAX;
      } catch (const Error&) {
        ++failures;
        faults->first = INT64_MAX;
        EXPECT_EQ(trainer.steps(), 2) << first;
        EXPECT_EQ(network.step(), 2u) << first << ": what is drawn would be other numbers";
        EXPECT_EQ(beside(), averages) << first;
        trained.losses.push_back(trainer.Step([] { return SomeBatch(4 + 2 % 3, 2); }));
        EXPECT_EQ(file->stats().used_bytes, used)
            << "what the failed step wrote is left, " << first;
        Train(trainer, 3, 4, &trained);
        AddParameters(trainer, network, &trained);
        EXPECT_EQ(trained, expected) << first;
      }
    }
    EXPECT_GT(failures, 20);
  }
}

// A device that gives no answer is told within the file's limit; afterwards all goes on.
TEST(SpillingFaults, AStepWhoseTransferHangsEndsAndIsDoneAgain) {
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  const auto make = [] { return DeepNetwork("convolutions", 5, Options(WorkspaceMode::kEnabled)); };
  const Trained expected = InMemory(make(), adam, 3);
  const auto hang = [&](Faults& faults, auto& trainer, Trained* trained) {
    Train(trainer, 0, 2, trained);
    faults.next = 0;
    faults.hangs = true;
    faults.first = 7;
    const auto step = [&] { return trainer.Step([] { return SomeBatch(4 + 2 % 3, 2); }); };
    try {
      step();
      ADD_FAILURE() << "it has been answered";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), absl::StatusCode::kDeadlineExceeded) << error.message();
      EXPECT_THAT(error.message(), testing::HasSubstr("at offset"));
    }
    faults.End();
    trained->losses.push_back(step());
  };
  {
    const auto faults = std::make_shared<Faults>();
    Network network = make();
    SpilledTrainer trainer(network, adam,
                           {.file = FailingFile(faults, absl::Seconds(3)), .ahead = 1});
    Trained trained;
    hang(*faults, trainer, &trained);
    AddParameters(trainer, network, &trained);
    EXPECT_EQ(trained, expected);
  }
  const auto faults = std::make_shared<Faults>();
  Network network = make();
  SpillAll(network, FailingFile(faults, absl::Seconds(3)));
  Trainer trainer(network, adam);
  Trained trained;
  hang(*faults, trainer, &trained);
  EXPECT_EQ(trained.losses, expected.losses);
}

// The n-th request of a run to the memory's provider is refused, for every n.
template <typename MakeRun>
void RefuseEachRequest(FailingProvider& memory, const char* what, const MakeRun& make_run) {
  constexpr int kSteps = 3;
  struct Outcome {
    Trained trained;
    int refused = 0;
    int64_t requests = 0, failed = 0;
  };
  const auto run = [&](int64_t n, int64_t count) {
    Outcome outcome;
    make_run([&](auto& trainer, const auto& bits_now, const auto& bits) {
      memory.faults().FailRequest(n, count);
      for (int i = 0; i < kSteps;) {
        const std::string before = bits_now();
        try {
          Train(trainer, i, i + 1, &outcome.trained);
          ++i;
        } catch (const OutOfMemoryError&) {
          EXPECT_EQ(trainer.steps(), i);
          EXPECT_EQ(bits_now(), before) << "a step that was refused has changed parameters";
          if (++outcome.refused > 2 * count) break;
        }
      }
      outcome.requests = memory.faults().requests();
      outcome.failed = memory.faults().failed();
      memory.faults().Clear();
      outcome.trained.parameters = bits();
    });
    return outcome;
  };
  const Outcome expected = run(0, 0);
  ASSERT_EQ(expected.refused, 0);
  int refused = 0, runs = 0;
  const int64_t stride = std::max<int64_t>(1, expected.requests / 40);
  for (const int64_t count : {1, 3}) {
    for (int64_t n = 0; n < expected.requests; n += stride) {
      SCOPED_TRACE(testing::Message() << what << ", request " << n << ", " << count << " times");
      const Outcome outcome = run(n, count);
      EXPECT_GT(outcome.failed, 0);
      EXPECT_EQ(outcome.trained, expected.trained);
      refused += outcome.refused;
      ++runs;
      if (testing::Test::HasFailure()) return;
    }
  }
  std::printf("%s: %lld requests, %d runs, %d steps refused\n", what,
              static_cast<long long>(expected.requests), runs, refused);
  EXPECT_GT(refused, 0) << what;
}

TEST(SpillingFaults, AStepThatSpillsIsRefusedMemoryAndDoneAgain) {
  FailingProvider memory{Host()};
  const UpdaterConfig adam = UpdaterConfig::Of(UpdaterKind::kAdam);
  for (const WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kNone}) {
    const auto make = [&] { return ExampleNetwork("lenet", Options(mode)); };
    RefuseEachRequest(memory, "activations", [&](const auto& run) {
      const std::shared_ptr<SpillFile> file = SmallBlocks();
      Network network = make();
      SpillAll(network, file);
      Trainer trainer(network, adam);
      const auto bits = [&] { return BitsOf(network.parameters()); };
      run(trainer, bits, [&] { return std::vector<std::string>{bits()}; });
      network.ReleaseTape();
      EXPECT_EQ(file->stats().used_bytes, 0);
    });
    RefuseEachRequest(memory, "parameters and state", [&](const auto& run) {
      Network network = make();
      const std::shared_ptr<SpillFile> file = SmallBlocks();
      SpilledTrainer trainer(network, adam, {.file = file, .ahead = 1});
      // To read one is a request as well, so they are compared at the end.
      run(
          trainer, [] { return std::string(); },
          [&] {
            Trained trained;
            AddParameters(trainer, network, &trained);
            return trained.parameters;
          });
      // What refused steps wrote is gone once the device has answered.
      const SpilledTrainerStats stats = trainer.stats();
      const int64_t most = stats.parameter_bytes + stats.state_bytes + int64_t{1 << 16};
      for (int i = 0; i < 2000 && file->stats().used_bytes > most; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      }
      EXPECT_LE(file->stats().used_bytes, most);
    });
  }
}

}  // namespace
}  // namespace tidepool::nn
