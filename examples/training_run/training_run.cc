#include "tidepool/examples/training_run/training_run.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <stop_token>
#include <vector>

#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/ops/random.h"
#include "tidepool/nn/data/data_set_iterator.h"
#include "tidepool/nn/model_file.h"
#include "tidepool/nn/training/listener.h"
#include "tidepool/nn/training/trainer.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/last_finite.h"
#include "tidepool/tools/commands/memory_table.h"

namespace tidepool::examples {

int64_t StepsOf(const TrainingRun& run, int64_t examples) {
  if (run.epochs < 1 || run.batch < 1) {
    ThrowInvalidArgument(absl::StrCat("training: ", run.epochs, " epochs of batches of ", run.batch,
                                      ", expected at least 1 of each"));
  }
  return run.epochs * ((examples + run.batch - 1) / run.batch);
}

void Train(
    nn::Model& model, const nn::UpdaterConfig& updater, const TrainingRun& run, int64_t examples,
    absl::FunctionRef<nn::Batch(absl::Span<const int64_t> examples, int64_t epoch)> make_batch,
    absl::FunctionRef<double()> score) {
  StepsOf(run, examples);  // refuses what cannot be
  if (!run.save.empty()) {
    nn::CheckModelCanBeSaved(model);
    nn::CheckModelPathIsWritable(run.save);
  }
  nn::Network& network = *model.network;
  std::printf("%s; %lld parameters; %lld examples\n", network.Describe().c_str(),
              static_cast<long long>(network.NumParameters()), static_cast<long long>(examples));

  nn::Trainer trainer(model, updater);
  nn::ProgressPrinter printer(stdout);
  nn::TrainingWatch watch({.epochs = run.epochs, .examples = examples});
  watch.Add(&printer);
  tools::LastFinite last_finite(model, run.save, "a lower learning rate may help");
  tools::StepCounters counters;
  counters.Start();
  int64_t epoch = 0;
  std::vector<int64_t> order;
  // In the order of the epoch; of each, the examples that make_batch makes.
  nn::FunctionIterator<nn::DataSet> batches(
      StepsOf({.batch = run.batch}, examples), [&](int64_t i) {
        const auto of_batch = absl::MakeConstSpan(order).subspan(
            static_cast<size_t>(i * run.batch),
            static_cast<size_t>(std::min(run.batch, examples - i * run.batch)));
        return make_batch(of_batch, epoch);
      });
  trainer.set_listener([&](const nn::TrainedStep& step) {
    if (epoch > 0) counters.EndStep();
    last_finite.CheckLoss(step.loss, trainer.steps(), static_cast<int>(epoch) + 1);
    watch.OnStep(step.examples, step.loss);
    if (epoch > 0) counters.BeginStep();
  });
  for (; epoch < run.epochs; ++epoch, batches.Reset()) {
    order = RandomPermutation(examples, run.seed, static_cast<uint64_t>(epoch)).ToVector<int64_t>();
    if (epoch > 0) counters.BeginStep();
    trainer.Fit(batches);
    last_finite.EndEpoch(trainer.steps(), static_cast<int>(epoch) + 1,
                         [&] { return batches.Make(0, std::stop_token()).features; });
    watch.OnEpoch(score());
  }
  watch.OnEnd();
  std::printf(
      "%s\n%s",
      tools::MemoryTable({&network.training_workspace(), &network.inference_workspace()}).c_str(),
      counters.Report("after the first epoch").c_str());
  if (!run.save.empty()) {
    nn::SaveModelAnywhere(model, run.save);
    std::printf("saved %s\n", run.save.c_str());
  }
}

int RunProgram(const char* name, int argc, char** argv, absl::FunctionRef<void()> program) {
  return tools::RunProgram(name, absl::ParseCommandLine(argc, argv), [&] {
    program();
    return tools::kExitOk;
  });
}

}  // namespace tidepool::examples
