#include "tidepool/tools/commands/recording_commands.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/append_format.h"
#include "tidepool/memory/io/json_writer.h"
#include "tidepool/memory/profile/pytorch_snapshot.h"
#include "tidepool/memory/recording/advice.h"
#include "tidepool/memory/recording/record.h"
#include "tidepool/memory/recording/record_report.h"
#include "tidepool/memory/recording/replay.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/tools/commands/command_line.h"
#include "tidepool/tools/commands/flags.h"

ABSL_FLAG(std::string, allocator, "all",
          "workspace,raw,pool,heap,glibc,tcmalloc,mimalloc,jemalloc");
ABSL_FLAG(int, runs, 5, "of each allocator");
ABSL_FLAG(int, lines, 10, "of each table, at most");

namespace tidepool::tools {
namespace {

constexpr int kMostRuns = 1000;

int Runs(int least) {
  const int runs = absl::GetFlag(FLAGS_runs);
  if (runs < least || runs > kMostRuns) {
    ThrowInvalidArgument(
        absl::StrCat("flag --runs is ", runs, ", expected ", least, " to ", kMostRuns));
  }
  return runs;
}

// A record, or a snapshot of PyTorch as one. Of a damaged one it is said what is left out.
Record RecordOf(const std::string& path) {
  if (IsPyTorchSnapshot(path)) return ReadPyTorchSnapshotAsRecord(path);
  Record record = ReadRecord(path);
  if (!record.damage.empty()) {
    std::fprintf(stderr, "tidepool: %s is damaged, %s; the last %llu bytes are left out\n",
                 path.c_str(), record.damage.c_str(),
                 static_cast<unsigned long long>(record.bytes_behind));
  }
  return record;
}

// Of these or of a report's JSON.
RecordReport ReportOfFile(const std::string& path) {
  return IsPyTorchSnapshot(path) ? ReportOf(ReadPyTorchSnapshotAsRecord(path), path)
                                 : ReadReport(path);
}

double MiB(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

// How much more is held than what was alive.
double Fragmentation(const ReplayRun& run, uint64_t live_bound) {
  if (live_bound == 0) return 0;
  return 100 * (static_cast<double>(run.peak_bytes) / static_cast<double>(live_bound) - 1);
}

std::string Range(double median, double least, double most) {
  std::string text;
  AppendFormat(&text, "%.2f (%.2f to %.2f)", median, least, most);
  return text;
}

template <typename Value>
std::string RangeOf(const std::vector<ReplayRun>& runs, const Value& value) {
  std::vector<double> values;
  for (const ReplayRun& run : runs) values.push_back(value(run));
  std::sort(values.begin(), values.end());
  return Range(values[values.size() / 2], values.front(), values.back());
}

void PrintHeader() {
  std::printf("%-10s %25s %25s %7s %8s %8s\n", "allocator", "time, ms", "memory, MiB", "more",
              "faults", "syscalls");
}

void PrintLine(const ReplayResult& result, uint64_t live_bound) {
  if (!result.absent.empty()) {
    std::printf("%s\n", result.absent.c_str());
    return;
  }
  const ReplayRun& median = result.median();
  std::string calls = result.system_calls < 0 ? "-" : absl::StrCat(result.system_calls);
  std::printf(
      "%-10s %25s %25s %6.1f%% %8lld %8s", result.allocator.c_str(),
      RangeOf(result.runs, [](const ReplayRun& run) { return run.seconds * 1e3; }).c_str(),
      RangeOf(result.runs, [](const ReplayRun& run) { return MiB(run.peak_bytes); }).c_str(),
      Fragmentation(median, live_bound), static_cast<long long>(median.page_faults), calls.c_str());
  if (median.refused > 0) std::printf("  %lld refused", static_cast<long long>(median.refused));
  std::printf("\n");
}

// What of a table's times was planning, which a program pays once however long it runs. Nothing where nothing was planned.
void PrintPlanning(const ReplayResult& result) {
  if (result.runs.empty() || result.planning_seconds < 0 || result.median().plans == 0) return;
  const int64_t plans = result.median().plans;
  std::printf("%s: %lld plan%s, made in %.2f ms of that time\n", result.allocator.c_str(),
              static_cast<long long>(plans), plans == 1 ? "" : "s", result.planning_seconds * 1e3);
}

void AddResult(JsonWriter& json, const ReplayResult& result) {
  json.BeginObject();
  json.Member("allocator", result.allocator);
  if (!result.absent.empty()) json.Member("absent", result.absent);
  json.Member("system_calls", result.system_calls);
  const bool has_planning = result.planning_seconds >= 0;
  json.Member("planning_nanoseconds",
              has_planning ? static_cast<int64_t>(result.planning_seconds * 1e9) : int64_t{-1});
  json.Key("runs");
  json.BeginArray();
  for (const ReplayRun& run : result.runs) {
    json.BeginObject();
    json.Member("nanoseconds", static_cast<int64_t>(run.seconds * 1e9));
    json.Member("peak_bytes", run.peak_bytes);
    json.Member("page_faults", run.page_faults);
    json.Member("refused", run.refused);
    json.Member("hits", run.hits);
    json.Member("misses", run.misses);
    json.Member("spills", run.spills);
    json.Member("plans", run.plans);
    json.EndObject();
  }
  json.EndArray();
  json.EndObject();
}

void PrintJson(JsonWriter&& json) {
  json.EndObject();
  std::printf("%s\n", std::move(json).Take().c_str());
}

int RunReplay() {
  std::vector<std::string> allocators = absl::StrSplit(absl::GetFlag(FLAGS_allocator), ',');
  if (allocators == std::vector<std::string>{"all"}) allocators = ReplayAllocators();
  const std::vector<std::string> known = ReplayAllocators();
  for (const std::string& name : allocators) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      ThrowInvalidArgument(absl::StrCat("flag --allocator has \"", name,
                                        "\", expected all, or some of ", absl::StrJoin(known, ","),
                                        " with commas between"));
    }
  }
  const ReplayOptions options = {.runs = Runs(1), .device = DeviceOfFlags()};
  if (std::find(allocators.begin(), allocators.end(), "jemalloc") != allocators.end()) {
    RestartWithStaticTls();
  }
  const ReplayScript script(RecordOf(CommandArguments()[0]));
  if (script.events() == 0)
    throw CommandFailed(
        absl::StrCat(CommandArguments()[0], ": found no events, expected some to replay"));
  const bool as_json = absl::GetFlag(FLAGS_json);
  JsonWriter json(/*indent=*/2);
  json.BeginObject();
  json.Member("file", CommandArguments()[0]);
  json.Member("device", DeviceName(options.device));
  json.Member("threads", script.threads().size());
  json.Member("events", script.events());
  json.Member("blocks", script.blocks().size());
  json.Member("cycles", script.cycles().size());
  json.Member("live_bound_bytes", script.live_bound());
  json.Key("results");
  json.BeginArray();
  if (!as_json) {
    std::printf("%zu thread%s, %llu events, %zu blocks, %zu cycles (%s), bound %.2f MiB; %d runs\n",
                script.threads().size(), script.threads().size() == 1 ? "" : "s",
                static_cast<unsigned long long>(script.events()), script.blocks().size(),
                script.cycles().size(),
                script.cycles().empty()    ? "none found"
                : script.cycles_by_marks() ? "marked"
                                           : "by their period",
                MiB(static_cast<int64_t>(script.live_bound())), options.runs);
    PrintHeader();
  }
  std::string why;
  std::vector<ReplayResult> results;
  for (const std::string& allocator : allocators) {
    results.push_back(Replay(script, allocator, options));
    const ReplayResult& result = results.back();
    if (result.system_calls < 0 && !result.why.empty()) why = result.why;
    if (as_json) {
      AddResult(json, result);
    } else {
      PrintLine(result, script.live_bound());
      std::fflush(stdout);
    }
  }
  json.EndArray();
  if (as_json) {
    PrintJson(std::move(json));
  } else {
    for (const ReplayResult& result : results) PrintPlanning(result);
    if (!why.empty()) std::printf("system calls are not counted: %s\n", why.c_str());
  }
  return kExitOk;
}

int RunAdvise() {
  const int runs = Runs(0);
  const Record record = RecordOf(CommandArguments()[0]);
  if (record.events.empty())
    throw CommandFailed(
        absl::StrCat(CommandArguments()[0], ": found no events, expected some to advise on"));
  const Advice advice = Advise(record);
  const bool as_json = absl::GetFlag(FLAGS_json);
  JsonWriter json(/*indent=*/2);
  json.BeginObject();
  advice.AddTo(json);
  if (!as_json) std::printf("%s", advice.ToString().c_str());
  bool containers = false, plans = false;
  for (const CycleAdvice& of : advice.of_cycles) {
    containers |= of.use == CycleAdvice::Use::kContainers;
    plans |= of.use == CycleAdvice::Use::kPlans || of.use == CycleAdvice::Use::kManyPlans;
  }
  if (runs > 0 && (containers || plans)) {
    const ReplayScript script(record);
    json.Key("measured");
    json.BeginArray();
    if (!as_json) {
      std::printf("\nreplayed %d times, bound %.2f MiB:\n", runs,
                  MiB(static_cast<int64_t>(script.live_bound())));
      PrintHeader();
    }
    std::vector<std::string> allocators = {"glibc"};
    if (plans) allocators.push_back("workspace");
    if (containers) allocators.push_back("raw");
    std::vector<ReplayResult> results;
    for (const std::string& allocator : allocators) {
      results.push_back(Replay(script, allocator, {.runs = runs}));
      as_json ? AddResult(json, results.back()) : PrintLine(results.back(), script.live_bound());
    }
    json.EndArray();
    if (!as_json) {
      for (const ReplayResult& result : results) PrintPlanning(result);
    }
  }
  if (as_json) PrintJson(std::move(json));
  return kExitOk;
}

int RunMemory() {
  const std::vector<std::string>& files = CommandArguments();
  const int lines = absl::GetFlag(FLAGS_lines);
  if (lines < 1)
    ThrowInvalidArgument(absl::StrCat("flag --lines is ", lines, ", expected at least 1"));
  const RecordReport report = ReportOfFile(files[0]);
  JsonWriter json(/*indent=*/2);
  json.BeginObject();
  if (files.size() == 1) {
    if (!absl::GetFlag(FLAGS_json)) {
      std::printf("%s", report.ToString(lines).c_str());
      return kExitOk;
    }
    report.AddTo(json, lines);
  } else {
    const RecordReport after = ReportOfFile(files[1]);
    if (!absl::GetFlag(FLAGS_json)) {
      std::printf("%s", DifferenceToString(report, after, lines).c_str());
      return kExitOk;
    }
    AddDifferenceTo(json, report, after, lines);
  }
  PrintJson(std::move(json));
  return kExitOk;
}

}  // namespace

std::vector<Command> WithRecordingCommands(std::vector<Command> commands) {
  const std::vector<Command> recording = {
      {"replay",
       "run a recorded program's requests again, on any allocator",
       "FILE is a record (docs/recording.md). Threads keep their own order, and a block is "
       "released after\n"
       "it was made. Each run is a process of its own; memory is touched once a page. workspace: "
       "cycles of\n"
       "the record are a workspace's; raw: the same as bytes without records. Times are the median "
       "and\n"
       "range; memory is what the process grew by, bound what was alive at once in the record.",
       {"allocator", "runs", "device", "json"},
       &RunReplay,
       "",
       {},
       "FILE",
       1,
       1},
      {"advise",
       "what a workspace would save a recorded program, and which one",
       "FILE is a record (docs/recording.md). Cycles are those it marks, else what its threads "
       "repeat.\n"
       "Replays it on glibc and on what is advised; --runs=0: does not.",
       {"runs", "json"},
       &RunAdvise,
       "",
       {},
       "FILE",
       1,
       1},
      {"memory",
       "report a record or memory JSON, or the difference of two",
       "A file is a record (docs/recording.md) or what a ledger or timeline wrote as JSON. With "
       "FILE2: what\n"
       "it has more or less than FILE.",
       {"lines", "json"},
       &RunMemory,
       "",
       {},
       "FILE [FILE2]",
       1,
       2},
  };
  commands.insert(commands.end(), recording.begin(), recording.end());
  return commands;
}

}  // namespace tidepool::tools
