// The tidepool command line. Each command lives in tools/commands.
#include "tidepool/memory/io/standard_streams.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/commands.h"
#include "tidepool/tools/commands/recording_commands.h"

int main(int argc, char** argv) {
  using namespace tidepool::tools;
  tidepool::OpenClosedStandardStreams();
  return RunCommand(
      WithRecordingCommands({
          {"train",
           "train a network on labelled images and save it",
           "Modes, same bits: enabled learns lifetimes, single appends, separate by purpose, none "
           "is the heap.",
           {"data", "model", "epochs", "batch", "updater", "learning_rate", "schedule", "seed",
            "workspace_mode", "device", "graphs", "threads", "memory_log", "memory_profile",
            "trace_file", "save", "memory_budget"},
           &RunTrain,
           "More (see docs)",
           {"memory_limits", "budget_strategy", "spill_folder", "spill_compression", "distributed",
            "ranks", "checkpoints", "checkpoint_every", "shard_updater", "shard_parameters",
            "rank_limit", "prefetch"}},
          {"evaluate",
           "measure a saved model on labelled images",
           "",
           {"model_file", "images", "labels", "batch", "workspace_mode", "device", "threads",
            "max_operations", "curves", "curves_as"},
           &RunEvaluate},
          {"predict",
           "print the class of each image as CSV",
           "",
           {"model_file", "images", "batch", "workspace_mode", "device", "threads",
            "max_operations"},
           &RunPredict},
          {"plan",
           "place the buffers of a cycle in one range of memory",
           "Exit status 1: no placement within the capacity was found in time; the best is "
           "written.",
           {"input", "capacity", "time_limit", "alignment", "output"},
           &RunPlanCommand},
          {"memory_report",
           "what a network takes for a batch, before it runs",
           "By layer and type, and in all: parameters, gradients, updater, planned peak. Exact on "
           "the host; on\n"
           "other devices memory is taken there for as long as the report takes.",
           {"model", "input", "classes", "batch", "updater", "workspace_mode", "device", "budget",
            "json"},
           &RunMemoryReport},
          {"view",
           "show a memory snapshot of PyTorch as a page or a trace",
           "",
           {"snapshot", "page", "trace"},
           &RunView},
          {"kernels", "print the table of linked kernels", "", {}, &RunKernels},
      }),
      argc, argv);
}
