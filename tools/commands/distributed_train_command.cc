// train --distributed: one rank of a job that mpirun has started.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "tidepool/eval/do_evaluation.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/distributed/distributed_checkpoint.h"
#include "tidepool/nn/distributed/distributed_trainer.h"
#include "tidepool/nn/distributed/heartbeat.h"
#include "tidepool/nn/distributed/merge_evaluations.h"
#include "tidepool/nn/distributed/rank_agreement.h"
#include "tidepool/nn/distributed/start_limit.h"
#include "tidepool/nn/image_model.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/models.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/training/checkpoint.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/evaluate_model.h"
#include "tidepool/tools/commands/flags.h"
#include "tidepool/tools/commands/last_finite.h"
#include "tidepool/tools/commands/output_paths.h"
#include "tidepool/tools/commands/progress.h"
#include "tidepool/tools/commands/train_setup.h"

static constexpr int kCheckpointEvery = 100;
static constexpr absl::Duration kRankLimit = absl::Seconds(60);

ABSL_FLAG(int, ranks, 0, "that the job is to have, with --distributed; 0: any");
ABSL_FLAG(std::string, checkpoints, "",
          "folder of checkpoints, with --distributed; a job goes on from the newest that is whole");
ABSL_FLAG(int, checkpoint_every, kCheckpointEvery, "steps from one checkpoint to the next");
ABSL_FLAG(bool, shard_updater, false, "each rank keeps its part of the updater's state");
ABSL_FLAG(bool, shard_parameters, false,
          "each rank keeps its part of parameters, gradients and the updater's state");
ABSL_FLAG(absl::Duration, rank_limit, kRankLimit, "a rank that others wait for as long has failed");

namespace tidepool::tools {
namespace {

struct Settings {
  int epochs = 0;
  int64_t batch = 0;
  int prefetch = 0;
  uint64_t seed = 0;
  std::string save, checkpoints;
  int64_t checkpoint_every = 0;
  WorkspaceMode mode = WorkspaceMode::kEnabled;
  bool shard_parameters = false;
};

nn::Model NewModel(const LabelledImages& images, const Settings& settings, Device device) {
  const std::string name = absl::GetFlag(FLAGS_model);
  nn::NetworkOptions options;
  options.seed = settings.seed;
  options.mode = settings.mode;
  options.device = device;
  options.name = name;
  options.hosted_parameters = settings.shard_parameters;
  auto config = nn::NetworkConfig::Sequential({images.height, images.width, 1},
                                              nn::LayersOf(name, images.classes));
  return nn::Model(name, images.classes, std::make_unique<nn::Network>(std::move(config), options));
}

// Of parameters in parts: all ranks, on their parts of the images.
void EvaluateInParts(nn::DistributedTrainer& distributed, const LabelledImages& part, int64_t batch,
                     Evaluation& evaluation) {
  std::optional<nn::ImageBatches> batches;
  if (part.count > 0) batches.emplace(part, batch);
  const auto next = [&]() -> std::optional<nn::Batch> {
    if (!batches.has_value()) return std::nullopt;
    return batches->Next();
  };
  try {
    DoEvaluation(
        distributed.trainer().network(), [&] { return distributed.NextForAll(next); },
        {.outputs = OutputsAre::kLogits}, evaluation);
  } catch (const ScoresNotFiniteError& error) {
    throw CommandFailed(absl::StrCat("image ", error.example(), ": its scores are not finite"));
  }
}

// At an epoch's end. Whole parameters are looked through by LastFinite.
void CheckPartsAreFinite(nn::DistributedTrainer& distributed, int epoch) {
  double infinite = All(IsFinite(distributed.sharded_parameters()->values())).Item<bool>() ? 0 : 1;
  distributed.communicator().AllReduce(absl::MakeSpan(&infinite, 1), "whether parts are finite");
  if (infinite == 0) return;
  throw CommandFailed(absl::StrCat("step ", distributed.trainer().steps(), " (epoch ", epoch,
                                   "): parameters are not finite: training has diverged; a lower "
                                   "--learning_rate may help; no model is saved"));
}

// What all ranks are to have been started with: they would take parts of other batches, or part ways.
void CheckRanksAgree(nn::Communicator& communicator, const Settings& settings,
                     const ImageFolder& data, const nn::DataPosition& begin) {
  nn::RankFacts facts = nn::FactsOf(begin);
  const auto hash_of = [](const std::vector<uint8_t>& bytes) {
    return nn::HashOfBytes({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
  };
  for (const auto& [name, images] :
       {std::pair("training images", &data.train), std::pair("test images", &data.test)}) {
    facts.emplace_back(name, absl::StrCat(images->count, " with hashes ", hash_of(images->pixels),
                                          " and ", hash_of(images->labels)));
  }
  facts.emplace_back("--epochs", absl::StrCat(settings.epochs));
  facts.emplace_back("--checkpoint_every", settings.checkpoints.empty()
                                               ? "no checkpoints"
                                               : absl::StrCat(settings.checkpoint_every, " steps"));
  facts.emplace_back("--shard_parameters", settings.shard_parameters ? "true" : "false");
  facts.emplace_back("--save", settings.save.empty() ? "nowhere" : "somewhere");
  CheckFacts(communicator, facts);
}

// The last batch of an epoch may be smaller, and no rank may be without an example.
void CheckBatchSuitsRanks(int64_t examples, int64_t batch, int ranks) {
  const int64_t rest = examples % batch;
  const char* const expected = ", expected at least one for each rank";
  if (batch < ranks) {
    ThrowInvalidArgument(
        absl::StrCat("flag --batch is ", batch, " on ", ranks, " ranks", expected));
  }
  if (rest == 0 || rest >= ranks) return;
  ThrowInvalidArgument(absl::StrCat("flag --batch is ", batch, ", which leaves ", rest, " of ",
                                    examples, " images for the last batch of ", ranks, " ranks",
                                    expected));
}

// Of one rank's share of the images.
LabelledImages PartOfImages(const LabelledImages& images, int rank, int ranks) {
  const auto [begin, end] = nn::PartOf(images.count, rank, ranks);
  const int64_t pixels = images.height * images.width;
  LabelledImages part;
  part.count = end - begin;
  part.height = images.height;
  part.width = images.width;
  part.classes = images.classes;
  part.pixels.assign(images.pixels.begin() + begin * pixels, images.pixels.begin() + end * pixels);
  part.labels.assign(images.labels.begin() + begin, images.labels.begin() + end);
  return part;
}

// By --device: that of hosts, or the one that joins CUDA devices. Which of its machine's a rank has is the transport's to
// say, so that no two have the same.
std::string TransportOfFlags(bool shard_parameters) {
  const std::string device = absl::GetFlag(FLAGS_device);
  if (device == "host") return "";
  if (device != "cuda") {
    ThrowInvalidArgument(
        absl::StrCat("flag --device is \"", device,
                     "\" with --distributed, expected host, or cuda: ranks take the devices that "
                     "they see in turn (CUDA_VISIBLE_DEVICES)"));
  }
  if (shard_parameters)
    ThrowUnimplemented("flag --shard_parameters: not with --device=cuda; --shard_updater is");
  return "nccl";
}

// Rank 0 speaks for all.
template <typename... Arguments>
void Say(const nn::Communicator& communicator, const char* format, Arguments... arguments) {
  if (communicator.rank() != 0) return;
  std::printf(format, arguments...);
  std::fflush(stdout);
}

void TrainAsRank(nn::Communicator& communicator, const Settings& settings) {
  const int rank = communicator.rank(), ranks = communicator.size();
  const bool is_first = rank == 0;
  const ImageFolder data = LoadImageFolder(Required("data", absl::GetFlag(FLAGS_data)));
  const LabelledImages& train = data.train;
  nn::DataPosition at{
      .examples = train.count, .together = settings.batch, .seed = settings.seed, .epoch = 1};
  CheckRanksAgree(communicator, settings, data, at);
  CheckBatchSuitsRanks(train.count, settings.batch, ranks);
  const Device device = communicator.device();
  nn::Model model = NewModel(train, settings, device);
  Say(communicator, "%s: %s; %lld parameters\n", model.name.c_str(),
      model.network->Describe().c_str(), static_cast<long long>(model.network->NumParameters()));
  Say(communicator,
      "%lld training and %lld test images; %s, batch %lld on %d ranks, workspace mode %s, %s\n",
      static_cast<long long>(train.count), static_cast<long long>(data.test.count),
      absl::GetFlag(FLAGS_updater).c_str(), static_cast<long long>(settings.batch), ranks,
      absl::GetFlag(FLAGS_workspace_mode).c_str(), DeviceName(model.network->device()).c_str());
  DiskReservation room;
  // By the limits of those who load it; each rank finds the same.
  if (!settings.save.empty()) nn::CheckModelCanBeSaved(model);
  if (is_first && !settings.save.empty()) room = nn::ReserveModelFile(model, settings.save);

  nn::ImageBatches images(train, nn::Batching{.seed = settings.seed,
                                              .epoch = at.epoch,
                                              .rank = rank,
                                              .ranks = ranks,
                                              .together = settings.batch});
  nn::UpdaterConfig updater = UpdaterOfFlags();
  updater.schedule = ScheduleOfFlags(std::max<int64_t>(1, settings.epochs * images.size()));
  nn::Trainer trainer(model, updater);
  const bool in_parts = settings.shard_parameters;
  std::optional<nn::CheckpointFolder> checkpoints;
  std::optional<nn::CheckpointNotes> notes;
  if (!settings.checkpoints.empty()) {
    checkpoints.emplace(settings.checkpoints);
    if (!in_parts) notes = nn::LoadLatest(communicator, trainer, *checkpoints);
  }
  nn::DistributedTrainer distributed(trainer, communicator,
                                     {.ranks = absl::GetFlag(FLAGS_ranks),
                                      .shard_updater = absl::GetFlag(FLAGS_shard_updater),
                                      .shard_parameters = in_parts});
  if (checkpoints.has_value() && in_parts) notes = distributed.LoadLatest(*checkpoints);
  if (notes.has_value()) {
    at = nn::DataPosition::FromNotes(*notes);
    at.CheckIsIn(train.count, settings.batch, settings.seed);
    if (at.epoch < 1) ThrowDataLoss("checkpoint: data_epoch is 0, expected 1 or more");
    Say(communicator, "goes on behind batch %lld of epoch %llu\n", static_cast<long long>(at.batch),
        static_cast<unsigned long long>(at.epoch));
    images.StartEpoch(at.epoch);
    images.Seek(at.batch);
  }
  LastFinite last_finite(model, is_first && !in_parts ? settings.save : "");
  Progress progress(settings.epochs, train.count);
  progress.StartFrom(static_cast<int>(at.epoch), std::min(at.batch * settings.batch, train.count));
  double loss = 0;           // of the epoch's steps:
  int64_t first = at.batch;  // those from there on
  distributed.set_listener([&](const nn::DistributedStep& step) {
    const int epoch = static_cast<int>(at.epoch);
    last_finite.CheckLoss(step.loss, trainer.steps(), epoch);
    loss += step.loss;
    ++at.batch;
    if (is_first)
      progress.Step(epoch, std::min(at.batch * settings.batch, train.count),
                    loss / static_cast<double>(at.batch - first));
    if (checkpoints.has_value() && trainer.steps() % settings.checkpoint_every == 0) {
      distributed.SaveLatest(*checkpoints, at.ToNotes());
    }
  });
  std::optional<nn::AsyncDataSetIterator> ahead;
  nn::DataSetIterator& batches = MadeAhead(images, settings.prefetch, device, ahead);
  const auto epochs = static_cast<uint64_t>(settings.epochs);
  for (; at.epoch <= epochs; ++at.epoch, at.batch = 0) {
    const int epoch = static_cast<int>(at.epoch);
    loss = 0;
    first = at.batch;
    distributed.Fit(batches);
    // Of an epoch that had ended before the checkpoint there is nothing to say.
    if (is_first && at.batch > first)
      progress.EndEpoch(epoch, loss / static_cast<double>(at.batch - first));
    if (in_parts) {
      CheckPartsAreFinite(distributed, epoch);
    } else {
      last_finite.EndEpoch(trainer.steps(), epoch, [&] { return images.Make(0).features; });
    }
    if (at.epoch < epochs) batches.Reset();
  }
  distributed.set_listener(nullptr);
  if (!settings.save.empty()) {
    room.Release();
    if (in_parts) {
      distributed.SaveModel(model, settings.save);
    } else if (is_first) {
      nn::SaveModelAnywhere(model, settings.save);
    }
  }
  Evaluation evaluation(static_cast<int>(model.classes));
  const LabelledImages part = PartOfImages(data.test, rank, ranks);
  if (in_parts) {
    EvaluateInParts(distributed, part, settings.batch, evaluation);
  } else if (part.count > 0) {
    EvaluateModel(model, part, settings.batch, {&evaluation});
  }
  nn::MergeEvaluations(communicator, evaluation);
  const nn::CommunicatorStats stats = communicator.stats();
  Say(communicator, "\n%s\n", evaluation.Report().c_str());
  Say(communicator,
      "rank 0 sent %.1f MB in %lld messages; its collectives took %.2f s, of which %.2f s were "
      "waited for\n",
      static_cast<double>(stats.bytes_sent) / 1e6, static_cast<long long>(stats.messages_sent),
      stats.busy_seconds, stats.waited_seconds);
  if (!settings.save.empty()) Say(communicator, "saved %s\n", settings.save.c_str());
  Say(communicator, "test accuracy %.4f\n", evaluation.Accuracy());
  communicator.Barrier("end");
}

}  // namespace

void CheckNoFlagsOfJobs() {
  const std::pair<const char*, bool> flags[] = {
      {"ranks", absl::GetFlag(FLAGS_ranks) != 0},
      {"checkpoints", !absl::GetFlag(FLAGS_checkpoints).empty()},
      {"checkpoint_every", absl::GetFlag(FLAGS_checkpoint_every) != kCheckpointEvery},
      {"shard_updater", absl::GetFlag(FLAGS_shard_updater)},
      {"shard_parameters", absl::GetFlag(FLAGS_shard_parameters)},
      {"rank_limit", absl::GetFlag(FLAGS_rank_limit) != kRankLimit}};
  for (const auto& [name, is_set] : flags) {
    if (!is_set) continue;
    ThrowInvalidArgument(absl::StrCat("flag --", name, " is set without --distributed"));
  }
}

int RunTrainDistributed() {
  ApplyThreads();
  Settings settings;
  settings.epochs = static_cast<int>(AtLeastOne("epochs", absl::GetFlag(FLAGS_epochs)));
  settings.batch = AtLeastOne("batch", absl::GetFlag(FLAGS_batch));
  settings.prefetch = PrefetchOfFlags();
  settings.seed = absl::GetFlag(FLAGS_seed);
  settings.save = absl::GetFlag(FLAGS_save);
  settings.checkpoints = absl::GetFlag(FLAGS_checkpoints);
  settings.checkpoint_every = AtLeastOne("checkpoint_every", absl::GetFlag(FLAGS_checkpoint_every));
  if (settings.checkpoints.empty() && settings.checkpoint_every != kCheckpointEvery) {
    ThrowInvalidArgument(absl::StrCat("flag --checkpoint_every is ", settings.checkpoint_every,
                                      " without a folder, expected --checkpoints"));
  }
  settings.shard_parameters = absl::GetFlag(FLAGS_shard_parameters);
  settings.mode = ParseWorkspaceMode(absl::GetFlag(FLAGS_workspace_mode));
  const absl::Duration limit = absl::GetFlag(FLAGS_rank_limit);
  if (limit < absl::Seconds(1) || limit > absl::Hours(24)) {
    ThrowInvalidArgument(
        absl::StrCat("flag --rank_limit is ", absl::FormatDuration(limit), ", expected 1s to 24h"));
  }
  if (absl::GetFlag(FLAGS_graphs) || !absl::GetFlag(FLAGS_trace_file).empty() ||
      !absl::GetFlag(FLAGS_memory_log).empty() || !absl::GetFlag(FLAGS_memory_profile).empty() ||
      !absl::GetFlag(FLAGS_memory_budget).empty() ||
      !absl::GetFlag(FLAGS_budget_strategy).empty() || !absl::GetFlag(FLAGS_spill_folder).empty() ||
      !absl::GetFlag(FLAGS_spill_compression).empty()) {
    ThrowUnimplemented(
        "flag --distributed: not with --graphs, --trace_file, --memory_log, --memory_profile, "
        "--memory_budget, --budget_strategy, --spill_folder and --spill_compression");
  }
  UpdaterOfFlags();
  ScheduleOfFlags(1);
  // Before there is a heartbeat. Processes take their time on a machine that is busy.
  std::optional<nn::StartLimit> start(
      std::in_place, absl::ToChronoMilliseconds(std::max(limit, absl::Minutes(1))));
  const std::unique_ptr<nn::Communicator> communicator =
      nn::Communicator::Open(TransportOfFlags(settings.shard_parameters));
  nn::HeartbeatConfig beats;
  beats.limit = std::chrono::milliseconds(absl::ToInt64Milliseconds(limit));
  beats.interval = std::min(beats.interval, beats.limit / 2);
  beats.on_verdict = [rank = communicator->rank()](const std::string& verdict) {
    // At once, as mpirun may end this process before it gets further. Where rank 0 is gone all
    // others say so.
    if (rank != 0 && !absl::StrContains(verdict, "rank 0 has died") &&
        !absl::StrContains(verdict, "heard of rank 0"))
      return;
    std::fprintf(stderr, "tidepool train: %s\n", verdict.c_str());
  };
  nn::Heartbeat heartbeat(*communicator, std::move(beats));
  start.reset();
  try {
    heartbeat.Guard([&] {
      if (communicator->rank() == 0) {
        CheckOutputPaths({{"save", settings.save}},
                         ImageFilesOf("data", Required("data", absl::GetFlag(FLAGS_data))));
      }
      TrainAsRank(*communicator, settings);
    });
  } catch (const Error& error) {
    // What the job ended by has been said, this rank's part in it too.
    if (heartbeat.verdict().empty()) throw;
    const bool is_anothers = error.code() == absl::StatusCode::kUnavailable ||
                             error.code() == absl::StatusCode::kAborted;
    return is_anothers ? kExitFailed : kExitBadInput;
  } catch (const CommandFailed&) {
    if (heartbeat.verdict().empty()) throw;
    return kExitFailed;
  }
  return kExitOk;
}

}  // namespace tidepool::tools
