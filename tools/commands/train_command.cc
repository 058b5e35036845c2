#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/eval/evaluation.h"
#include "tidepool/memory/accounting/bytes_of_text.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_limits.h"
#include "tidepool/memory/accounting/memory_log.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/planning/problem_file.h"
#include "tidepool/memory/profile/memory_profile.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/kernel/thread_pool.h"
#include "tidepool/nn/budget/budget_follower.h"
#include "tidepool/nn/budget/step_budget.h"
#include "tidepool/nn/data/async_iterator.h"
#include "tidepool/nn/data/digits.h"
#include "tidepool/nn/data/image_batches.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/commands.h"
#include "tidepool/tools/commands/evaluate_model.h"
#include "tidepool/tools/commands/flags.h"
#include "tidepool/tools/commands/last_finite.h"
#include "tidepool/tools/commands/memory_table.h"
#include "tidepool/tools/commands/output_paths.h"
#include "tidepool/tools/commands/progress.h"
#include "tidepool/tools/commands/train_setup.h"

ABSL_FLAG(std::string, data, "", "folder with the four IDX files of MNIST's names");
ABSL_FLAG(std::string, model, "lenet", "lenet, mlp or residual");
ABSL_FLAG(int, epochs, 10, "passes over the training images");
ABSL_FLAG(std::string, updater, "adam", "sgd, nesterovs, adagrad, rmsprop, adam or adamw");
ABSL_FLAG(uint64_t, seed, 1, "of initial parameters and the order of images");
ABSL_FLAG(bool, graphs, false, "capture the step and launch it with one call; CUDA devices");
ABSL_FLAG(std::string, trace_file, "", "CSV: a training step as a problem for tidepool plan");
ABSL_FLAG(std::string, memory_log, "", "CSV: memory after each step; empty: none");
ABSL_FLAG(std::string, memory_profile, "",
          "HTML: a page that shows memory over time and each cycle");
ABSL_FLAG(std::string, save, "", "where to save the model; empty: nowhere");
ABSL_FLAG(std::string, memory_budget, "",
          "\"50%\" of a step, bytes, or \"process\": what its limit leaves");
ABSL_FLAG(std::string, memory_limits, "",
          "of the process, devices and owners: \"2GiB, cuda:0=8GiB, owner network=1GiB\"");
ABSL_FLAG(std::string, budget_strategy, "",
          "for what waits for the backward pass: auto (empty), spill, recompute or none");
ABSL_FLAG(std::string, spill_folder, "",
          "of what is spilled; empty: TIDEPOOL_SPILL_FOLDER, TMPDIR, /var/tmp");
ABSL_FLAG(std::string, spill_compression, "",
          "of what is spilled: none (empty), lz4, or auto: where it gains time");
ABSL_FLAG(bool, distributed, false, "one rank of a job of mpirun; docs/distributed.md");

namespace tidepool::tools {
namespace {

[[noreturn]] void ThrowNoTrace() {
  ThrowFailedPrecondition(
      "flag --trace_file: no step was learned; it needs --workspace_mode=enabled");
}

// What the flags say of a budget: of a step, or what the process's leaves.
struct BudgetOfFlags {
  std::optional<nn::StepBudget> fixed;
  std::optional<nn::FollowerOptions> followed;
};
BudgetOfFlags ReadBudgetFlags(int64_t batch, WorkspaceMode mode, Device device) {
  const std::string strategy_name = absl::GetFlag(FLAGS_budget_strategy),
                    compression_name = absl::GetFlag(FLAGS_spill_compression),
                    folder = absl::GetFlag(FLAGS_spill_folder);
  const nn::BudgetStrategy strategy =
      strategy_name.empty() ? nn::BudgetStrategy::kAuto
                            : nn::ParseBudgetStrategy("flag --budget_strategy", strategy_name);
  const SpillCompression compression =
      compression_name.empty()
          ? SpillCompression::kNone
          : ParseSpillCompression("flag --spill_compression", compression_name);
  if (strategy == nn::BudgetStrategy::kRecompute || strategy == nn::BudgetStrategy::kNone) {
    for (const auto& [name, value] :
         {std::pair{"spill_folder", &folder}, {"spill_compression", &compression_name}}) {
      if (value->empty()) continue;
      ThrowInvalidArgument(absl::StrCat("flag --", name, " is \"", *value,
                                        "\" where nothing is spilled, expected "
                                        "--budget_strategy=auto or spill, found ",
                                        strategy_name));
    }
  }
  std::string limit = absl::GetFlag(FLAGS_memory_budget);
  if (const absl::string_view text = absl::StripTrailingAsciiWhitespace(limit); !text.empty())
    limit.resize(text.size());
  const MemoryBudget& limits = MemoryBudget::Global();
  const bool is_limited = limits.process().limit_bytes != MemoryBudget::kUnlimited ||
                          limits.Of(device).limit_bytes != MemoryBudget::kUnlimited;
  const bool can_plan = mode == WorkspaceMode::kEnabled && !absl::GetFlag(FLAGS_graphs);
  if (limit.empty() && !(is_limited && can_plan)) {
    for (const auto& [name, value] : {std::pair{"budget_strategy", &strategy_name},
                                      {"spill_folder", &folder},
                                      {"spill_compression", &compression_name}}) {
      if (value->empty()) continue;
      ThrowInvalidArgument(absl::StrCat(
          "flag --", name, " is \"", *value,
          is_limited ? "\" where no step is planned, expected --workspace_mode=enabled and no "
                       "--graphs"
                     : "\" without a budget, expected --memory_budget or TIDEPOOL_MEMORY_BUDGET"));
    }
    return {};
  }
  if (mode != WorkspaceMode::kEnabled) {
    ThrowInvalidArgument("flag --memory_budget needs --workspace_mode=enabled");
  }
  if (absl::GetFlag(FLAGS_graphs))
    ThrowInvalidArgument("flag --memory_budget and --graphs exclude each other");
  if (limit == "process" && !is_limited) {
    ThrowInvalidArgument(absl::StrCat("flag --memory_budget=process: neither the process nor ",
                                      DeviceName(device),
                                      " has a limit, which TIDEPOOL_MEMORY_BUDGET or "
                                      "--memory_limits sets"));
  }
  const nn::StepShape shape{.batch = batch};
  if (limit.empty() || limit == "process") {
    return {.followed = nn::FollowerOptions{.strategy = strategy,
                                            .shape = shape,
                                            .spill_folder = folder,
                                            .compression = compression}};
  }
  BytesOfText("flag --memory_budget", limit, 1);  // wrong text is found before anything is read
  return {.fixed = nn::StepBudget{.limit = limit,
                                  .strategy = strategy,
                                  .shape = shape,
                                  .spill_folder = folder,
                                  .compression = compression}};
}

void WriteTrace(const Workspace& workspace, const std::string& path) {
  NamedProblem problem;
  problem.buffers = workspace.PlannedRequests();
  if (problem.buffers.empty()) ThrowNoTrace();
  for (size_t i = 0; i < problem.buffers.size(); ++i) problem.ids.push_back(std::to_string(i));
  WriteProblemFile(path, problem);
  std::printf("wrote %zu requests to %s\n", problem.buffers.size(), path.c_str());
}

}  // namespace

int RunTrain() {
  // Before anything is made that they are to hold.
  SetMemoryLimits(MemoryLimitsOfText("flag --memory_limits", absl::GetFlag(FLAGS_memory_limits)));
  if (absl::GetFlag(FLAGS_distributed)) return RunTrainDistributed();
  CheckNoFlagsOfJobs();
  const auto start = std::chrono::steady_clock::now();
  auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  ApplyThreads();
  const int epochs = static_cast<int>(AtLeastOne("epochs", absl::GetFlag(FLAGS_epochs)));
  const int64_t batch = AtLeastOne("batch", absl::GetFlag(FLAGS_batch));
  const int prefetch = PrefetchOfFlags();
  const uint64_t seed = absl::GetFlag(FLAGS_seed);
  const std::string save = absl::GetFlag(FLAGS_save);
  nn::UpdaterConfig updater = UpdaterOfFlags();
  ScheduleOfFlags(1);  // wrong flags are found before anything is read
  const WorkspaceMode mode = ParseWorkspaceMode(absl::GetFlag(FLAGS_workspace_mode));
  const Device device = DeviceOfFlags();
  const std::string memory_log_file = absl::GetFlag(FLAGS_memory_log);
  const std::string memory_profile_file = absl::GetFlag(FLAGS_memory_profile);
  const std::string trace = absl::GetFlag(FLAGS_trace_file);
  const std::string folder = Required("data", absl::GetFlag(FLAGS_data));
  CheckOutputPaths({{"save", save},
                    {"memory_log", memory_log_file},
                    {"memory_profile", memory_profile_file},
                    {"trace_file", trace}},
                   ImageFilesOf("data", folder));
  if (!trace.empty() && mode != WorkspaceMode::kEnabled) ThrowNoTrace();
  BudgetOfFlags budget = ReadBudgetFlags(batch, mode, device);

  std::optional<MemoryProfile> memory_profile;
  if (!memory_profile_file.empty()) {
    memory_profile.emplace(MemoryProfileOptions{
        .title = absl::StrCat("tidepool train --model=", absl::GetFlag(FLAGS_model))});
  }
  // Before the thread pool exists, so that its threads are counted too.
  StepCounters counters;
  counters.Start();
  const ImageFolder data = LoadImageFolder(folder);
  const LabelledImages& train = data.train;
  nn::Model model = nn::MakeModel(absl::GetFlag(FLAGS_model), {train.height, train.width, 1},
                                  train.classes, seed, mode, device);
  std::printf("%s: %s; %lld parameters\n", model.name.c_str(), model.network->Describe().c_str(),
              static_cast<long long>(model.network->NumParameters()));
  std::printf("%lld training and %lld test images; %s, batch %lld, workspace mode %s, %s\n",
              static_cast<long long>(train.count), static_cast<long long>(data.test.count),
              absl::GetFlag(FLAGS_updater).c_str(), static_cast<long long>(batch),
              absl::GetFlag(FLAGS_workspace_mode).c_str(), DeviceName(device).c_str());
  TellRefusedThreads();
  std::fflush(stdout);  // a log shows it now, not with the first progress line
  DiskReservation room;
  if (!save.empty()) {
    nn::CheckModelCanBeSaved(model);  // by the limits of those who load it
    room = nn::ReserveModelFile(model, save);
  }

  nn::ImageBatches images(train, nn::Batching{.batch_size = batch, .seed = seed, .epoch = 1});
  updater.schedule = ScheduleOfFlags(std::max<int64_t>(1, epochs * images.size()));
  nn::Trainer trainer(model, updater);
  try {
    trainer.set_graphs(absl::GetFlag(FLAGS_graphs));
  } catch (Error& error) {
    error.AddContext("flag --graphs");
    throw;
  }
  if (const int64_t last = train.count % batch; last != 0) {  // of each epoch
    if (budget.fixed.has_value()) budget.fixed->shape.other_batches = {last};
    if (budget.followed.has_value()) budget.followed->shape.other_batches = {last};
  }
  std::optional<nn::StepBudgetReport> budgeted;
  std::optional<nn::BudgetFollower> follower;
  if (budget.fixed.has_value()) {
    budgeted = nn::SetStepBudget(*model.network, *budget.fixed);
    std::printf("%s", budgeted->ToString().c_str());
    std::fflush(stdout);
  }
  if (budget.followed.has_value()) follower.emplace(*model.network, *budget.followed);
  const auto follow = [&] {
    if (!follower.has_value() || !follower->Follow()) return;
    std::printf("%s", follower->ToString().c_str());
    std::fflush(stdout);
  };
  follow();
  std::optional<MemoryLog> memory_log;
  if (!memory_log_file.empty()) memory_log.emplace();
  LastFinite last_finite(model, save);
  Progress progress(epochs, train.count);
  double first_step_seconds = 0, step_seconds = 0, step_began = 0;
  bool is_counted = false;
  const auto begin_step = [&] {
    is_counted = trainer.steps() >= 2;
    if (is_counted) counters.BeginStep();
    step_began = seconds();
  };
  int epoch = 1;
  double loss = 0;
  trainer.set_listener([&](const nn::TrainedStep& step) {
    step_seconds += seconds() - step_began;
    if (is_counted) counters.EndStep();
    last_finite.CheckLoss(step.loss, trainer.steps(), epoch);
    loss += step.loss;
    if (trainer.steps() == 1) first_step_seconds = seconds();
    if (memory_log) memory_log->Sample(absl::StrCat("epoch ", epoch, " batch ", step.batches - 1));
    progress.Step(epoch, std::min(step.batches * batch, train.count),
                  loss / static_cast<double>(step.batches));
    follow();
    begin_step();
  });
  std::optional<nn::AsyncDataSetIterator> ahead;
  nn::DataSetIterator& batches = MadeAhead(images, prefetch, device, ahead);
  for (; epoch <= epochs; ++epoch) {
    loss = 0;
    begin_step();
    const nn::TrainingPass pass = trainer.Fit(batches);
    progress.EndEpoch(epoch, loss / static_cast<double>(pass.batches));
    last_finite.EndEpoch(trainer.steps(), epoch, [&] { return images.Make(0).features; });
    if (epoch < epochs) batches.Reset();
  }
  trainer.set_listener(nullptr);
  if (follower.has_value() && follower->report() != nullptr) budgeted = *follower->report();
  if (budgeted.has_value()) {
    const double mean = step_seconds / static_cast<double>(std::max<int64_t>(1, trainer.steps()));
    std::printf("%s", nn::OutcomeOf(*model.network, *budgeted, mean).ToString().c_str());
  }
  // Before anything else can go wrong.
  if (!save.empty()) {
    room.Release();
    nn::SaveModelAnywhere(model, save);
  }
  last_finite.Release();

  Evaluation evaluation(static_cast<int>(model.classes));
  int64_t images_at_once = batch;
  for (;; images_at_once /= 2) {
    try {
      EvaluateModel(model, data.test, images_at_once, {&evaluation});
      break;
    } catch (const OutOfMemoryError&) {
      // The budget that training has kept to has no room for so many without a plan.
      if (images_at_once == 1) throw;
      evaluation.Reset();
    }
  }
  if (images_at_once < batch) {
    std::printf("evaluated %lld images at once: the budget has no room for more\n",
                static_cast<long long>(images_at_once));
  }
  std::printf("\n%s\n", evaluation.Report().c_str());
  std::printf(
      "%s\n%s",
      MemoryTable({&model.network->training_workspace(), &model.network->inference_workspace()})
          .c_str(),
      counters.Report().c_str());
  if (const ReplayedStep::Stats* graphs = trainer.graph_stats()) {
    std::printf(
        "graphs: %lld captured, %lld launches of %zu nodes, %lld steps without, %lld "
        "failures%s%s\n",
        static_cast<long long>(graphs->captures), static_cast<long long>(graphs->launches),
        graphs->nodes, static_cast<long long>(graphs->done_as_it_is),
        static_cast<long long>(graphs->failures), graphs->failures > 0 ? ": " : "",
        graphs->last_failure.c_str());
  }
  std::printf("first step done %.3f s after the start of the program\n", first_step_seconds);
  if (!save.empty()) std::printf("saved %s\n", save.c_str());
  if (memory_log) {
    memory_log->WriteCsv(memory_log_file);
    std::printf("wrote memory after each step to %s\n", memory_log_file.c_str());
  }
  if (memory_profile) {
    memory_profile->WriteHtml(memory_profile_file);
    std::printf("wrote the memory's profile to %s\n", memory_profile_file.c_str());
  }
  if (!trace.empty()) WriteTrace(model.network->training_workspace(), trace);
  std::printf("test accuracy %.4f\n", evaluation.Accuracy());
  return kExitOk;
}

}  // namespace tidepool::tools
