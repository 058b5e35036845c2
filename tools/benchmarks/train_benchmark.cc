// Milliseconds per training step on real digits, beside the same networks in libtorch where the
// peer is built, or in PyTorch (torch_training.py; P8 of docs/performance.md).
//
//   tools/benchmarks/run          builds both sides and keeps the results
//
// Exit status 1: another process was busy, nothing is reported (--force overrides); 2: bad input.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/error.h"
#include "tidepool/tools/benchmarks/conductor.h"
#include "tidepool/tools/benchmarks/machine.h"
#include "tidepool/tools/benchmarks/report.h"
#include "tidepool/tools/benchmarks/step_server.h"
#include "tidepool/tools/benchmarks/tidepool_side.h"

ABSL_FLAG(std::vector<std::string>, models, (std::vector<std::string>{"mlp", "lenet"}),
          "of mlp, lenet, residual, lstm and transformer (training_networks.h)");
ABSL_FLAG(std::vector<std::string>, batches, (std::vector<std::string>{"32", "128"}),
          "images in a step");
ABSL_FLAG(std::vector<std::string>, threads, (std::vector<std::string>{"1", "2"}),
          "threads of each side");
ABSL_FLAG(std::vector<std::string>, updater, (std::vector<std::string>{"sgd"}), "of sgd and adam");
ABSL_FLAG(int, rounds, 11, "both sides run once in each");
ABSL_FLAG(int, warm_up, 10, "steps before the first round");
ABSL_FLAG(int, steps, 0, "in a round; 0: as many as fit --round_seconds");
ABSL_FLAG(double, round_seconds, 0.25, "length of a round of one side");
ABSL_FLAG(std::string, data, "",
          "folder with the four IDX files of MNIST's names; empty: examples/data/mnist");
ABSL_FLAG(std::string, torch_peer, "",
          "command of the peer's side, its arguments behind spaces (\"python3 "
          "tools/benchmarks/torch_training.py "
          "--mode=compiled\"), or none; empty: train_benchmark_torch beside this program");
ABSL_FLAG(std::string, json, "", "file for the results in Google Benchmark's form");
ABSL_FLAG(std::string, revision, "", "version of the sources, put into the report");
ABSL_FLAG(std::string, device, "host",
          "of Tidepool's side, \"cuda\" for instance; the peer's is an argument of its command");
ABSL_FLAG(bool, graphs, false,
          "Tidepool's steps are captured and replayed: needs a device that can");
ABSL_FLAG(bool, force, false, "report even when other processes are busy");
ABSL_FLAG(bool, serve, false, "be Tidepool's side: for this program's own use");

namespace tidepool::tools {
namespace {

namespace fs = std::filesystem;

// Others may use this share of one processor: a desktop's daemons, not a second job.
constexpr double kBusyLimit = 0.1;

std::string ProgramPath() { return fs::read_symlink("/proc/self/exe").string(); }

// Started by Bazel the runfiles are the current folder; started by hand they are beside `program`.
std::string DataFolder(const std::string& program) {
  if (!absl::GetFlag(FLAGS_data).empty()) return absl::GetFlag(FLAGS_data);
  const std::string folder = "examples/data/mnist";
  const std::string runfiles = program + ".runfiles/tidepool/" + folder;
  for (const std::string& candidate : {folder, runfiles}) {
    if (fs::exists(candidate)) return candidate;
  }
  ThrowNotFound(
      absl::StrCat("flag --data is not set, and neither ", folder, " nor ", runfiles, " exists"));
}

std::vector<std::string> PeerCommand(const std::string& program) {
  const std::string wanted = absl::GetFlag(FLAGS_torch_peer);
  if (wanted == "none") return {};
  if (!wanted.empty()) return absl::StrSplit(wanted, ' ', absl::SkipEmpty());
  const std::string beside = (fs::path(program).parent_path() / "train_benchmark_torch").string();
  return fs::exists(beside) ? std::vector<std::string>{beside} : std::vector<std::string>{};
}

std::vector<int64_t> Numbers(const char* flag, const std::vector<std::string>& texts) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    int64_t number = 0;
    if (!absl::SimpleAtoi(text, &number) || number < 1) {
      ThrowInvalidArgument(
          absl::StrCat("flag --", flag, " has \"", text, "\", expected numbers of at least 1"));
    }
    numbers.push_back(number);
  }
  return numbers;
}

std::vector<TrainingCase> Cases() {
  std::vector<TrainingCase> cases;
  const auto batches = Numbers("batches", absl::GetFlag(FLAGS_batches));
  const auto threads = Numbers("threads", absl::GetFlag(FLAGS_threads));
  for (const std::string& updater : absl::GetFlag(FLAGS_updater)) {
    for (const std::string& model : absl::GetFlag(FLAGS_models)) {
      for (const int64_t batch : batches) {
        for (const int64_t count : threads) {
          cases.push_back({model, batch, static_cast<int>(count), updater});
        }
      }
    }
  }
  return cases;
}

// Says why nothing is reported and returns true, unless --force: then `note` gets the reason.
bool Refuses(const std::string& reason, std::string& note) {
  if (reason.empty()) return false;
  if (absl::GetFlag(FLAGS_force)) {
    absl::StrAppend(&note, note.empty() ? "" : "; ", reason);
    return false;
  }
  std::fprintf(stderr, "train_benchmark: %s; nothing is reported (--force overrides)\n",
               reason.c_str());
  return true;
}

int Run() {
  const std::string program = ProgramPath();
  MeasurementConfig config;
  config.tidepool = {program, "--serve", absl::StrCat("--device=", absl::GetFlag(FLAGS_device)),
                     absl::StrCat("--graphs=", absl::GetFlag(FLAGS_graphs))};
  config.peer = PeerCommand(program);
  config.data = DataFolder(program);
  config.rounds =
      static_cast<int>(Numbers("rounds", {absl::StrCat(absl::GetFlag(FLAGS_rounds))}).front());
  config.warm_up = absl::GetFlag(FLAGS_warm_up);
  config.steps = absl::GetFlag(FLAGS_steps);
  config.round_seconds = absl::GetFlag(FLAGS_round_seconds);
  const std::vector<TrainingCase> cases = Cases();

  const Machine machine = DescribeMachine();
  Report report;
  report.context = {
      {"machine",
       absl::StrCat(machine.processor, ", ", machine.processors, " processors, ", machine.kernel)},
      {"load before", machine.load},
      {"tidepool", Greeting(config.tidepool)},
      {"revision", absl::GetFlag(FLAGS_revision)},
      {"compilation mode", TIDEPOOL_COMPILATION_MODE},
      {"peer", config.peer.empty() ? "absent" : Greeting(config.peer)},
      {"data", config.data},
      {"rounds", absl::StrCat(config.rounds, ", the sides in turn")},
  };
  if (absl::GetFlag(FLAGS_revision).empty()) report.context.erase(report.context.begin() + 3);

  std::string note;
  if (Refuses(WhoIsBusy(1.0, kBusyLimit), note)) return 1;
  const OthersWatch watch;
  for (const TrainingCase& training_case : cases) {
    if (isatty(STDERR_FILENO)) {
      std::fprintf(stderr, "\r\033[K%s, batch %lld, %d threads, %s", training_case.model.c_str(),
                   static_cast<long long>(training_case.batch), training_case.threads,
                   training_case.updater.c_str());
    }
    report.cases.push_back(Measure(config, training_case));
  }
  if (isatty(STDERR_FILENO)) std::fprintf(stderr, "\r\033[K");
  const double others = watch.Share();
  if (others > kBusyLimit &&
      Refuses(
          absl::StrFormat("others used %.0f %% of a processor while it measured (limit %.0f %%)",
                          100 * others, 100 * kBusyLimit),
          note)) {
    return 1;
  }
  report.context.emplace_back("others while measuring",
                              absl::StrFormat("%.0f %% of a processor", 100 * others));
  if (!note.empty()) report.context.emplace_back("FORCED although", note);

  std::fputs(MarkdownOf(report).c_str(), stdout);
  const std::string path = absl::GetFlag(FLAGS_json);
  if (!path.empty()) {
    std::ofstream file(path);
    file << JsonOf(report) << std::flush;
    if (!file) ThrowErrno(errno, absl::StrCat("cannot write ", path));
  }
  return 0;
}

}  // namespace
}  // namespace tidepool::tools

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("milliseconds per training step of Tidepool, and of its peer");
  const std::vector<char*> rest = absl::ParseCommandLine(argc, argv);
  try {
    if (rest.size() > 1) {
      tidepool::ThrowInvalidArgument(
          absl::StrCat("argument \"", rest[1], "\", expected flags only"));
    }
    if (absl::GetFlag(FLAGS_serve)) {
      tidepool::tools::ServeSteps(
          *tidepool::tools::NewTidepoolSide(tidepool::DeviceNamed(absl::GetFlag(FLAGS_device)),
                                            absl::GetFlag(FLAGS_graphs)),
          std::cin, std::cout);
      return 0;
    }
    return tidepool::tools::Run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "train_benchmark: %s\n", error.what());
    return 2;
  }
}
