// What families of streams hold beside glibc's malloc, by counts (P20 of docs/performance.md).
//
//   bazel run //memory/workspace:footprint_benchmark -- --benchmark_filter=Families
//
// Families/NAME: seeds 1 to 12 of a family (stream_families.h) in a workspace of defaults, as arrays and as raw bytes, and
// the same by malloc, each in a process of its own; the most that cycles 300 to 449 hold. times_malloc: of the worst
// seed, whose numbers the others are; beyond: seeds that hold more than 1.05 times malloc's and 1 MiB; beside_MiB: the
// most of any seed beyond 1.125 times malloc's; asked: requests to the system in a cycle, the mean of the seeds.
// Families/table, last, prints all that ran before it as a table on stderr.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/memory/workspace/stream_families.h"

namespace tidepool {
namespace {

constexpr double kMiB = 1 << 20;

StreamBytes InAnotherProcess(StreamPlayer player, const StreamFamily& family, uint64_t seed) {
  const int from = RunsOnce() ? 4 : 300, cycles = RunsOnce() ? 8 : 450;
  int ends[2];
  if (pipe(ends) != 0) std::abort();
  const pid_t child = fork();
  if (child == 0) {
    const StreamBytes found = CountStream(player, family.stream(seed), seed, from, cycles);
    std::_Exit(write(ends[1], &found, sizeof(found)) == sizeof(found) ? 0 : 1);
  }
  close(ends[1]);
  StreamBytes found;
  if (child < 0 || read(ends[0], &found, sizeof(found)) != sizeof(found)) {
    std::fprintf(stderr, "%s, seed %d: its process gave no result\n", family.name.c_str(),
                 static_cast<int>(seed));
    std::_Exit(1);
  }
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return found;
}

struct Row {
  double alive = 0, peer = 0, held = 0;  // MiB, of the worst seed
  int streams = 0, beyond = 0;
  double beside = 0, asked = 0;
  std::vector<double> times;  // of each seed

  double worst() const { return held / peer; }
};

struct Rows {
  std::string name, what;
  Row rows[2];  // arrays, raw
};

std::vector<Rows>& Found() {
  static std::vector<Rows> found;
  return found;
}

void Add(Row& row, const StreamBytes& ours, const StreamBytes& peer) {
  const double held = static_cast<double>(ours.held) / kMiB;
  const double theirs = static_cast<double>(peer.held) / kMiB;
  ++row.streams;
  row.beyond += held > 1.05 * theirs + 1;
  row.beside = std::max(row.beside, held - 1.125 * theirs);
  row.asked += ours.asked;
  row.times.push_back(held / theirs);
  if (row.streams > 1 && held / theirs <= row.worst()) return;
  row.alive = static_cast<double>(ours.alive) / kMiB;
  row.peer = theirs;
  row.held = held;
}

void Count(benchmark::State& state, const StreamFamily& family) {
  Rows found{family.name, family.what, {}};
  for (auto _ : state) {
    for (uint64_t seed = 1; seed <= (RunsOnce() ? 1 : 12); ++seed) {
      const StreamBytes peer = InAnotherProcess(StreamPlayer::kMalloc, family, seed);
      Add(found.rows[0], InAnotherProcess(StreamPlayer::kArrays, family, seed), peer);
      Add(found.rows[1], InAnotherProcess(StreamPlayer::kRaw, family, seed), peer);
    }
  }
  for (const bool raw : {false, true}) {
    const Row& row = found.rows[raw];
    const std::string of = raw ? "raw_" : "arrays_";
    state.counters[of + "alive_MiB"] = row.alive;
    state.counters[of + "malloc_MiB"] = row.peer;
    state.counters[of + "held_MiB"] = row.held;
    state.counters[of + "times_malloc"] = row.worst();
    state.counters[of + "beyond"] = row.beyond;
    state.counters[of + "beside_MiB"] = row.beside;
    state.counters[of + "asked"] = row.asked / row.streams;
  }
  Found().push_back(std::move(found));
}

void Print(benchmark::State& state) {
  for (auto _ : state) {
    std::fprintf(
        stderr,
        "| family | | arrays: alive | malloc | held | times malloc | beyond | raw: alive | malloc "
        "| held | times malloc | beyond |\n|---|---|---|---|---|---|---|---|---|---|---|---|\n");
    Row sums[2];
    for (const Rows& found : Found()) {
      std::fprintf(stderr, "| %s | %s", found.name.c_str(), found.what.c_str());
      for (int i = 0; i < 2; ++i) {
        const Row& row = found.rows[i];
        std::fprintf(stderr, " | %.1f | %.1f | %.1f | %.2f | %d", row.alive, row.peer, row.held,
                     row.worst(), row.beyond);
        sums[i].streams += row.streams;
        sums[i].beyond += row.beyond;
        sums[i].beside = std::max(sums[i].beside, row.beside);
        sums[i].asked += row.asked;
        sums[i].times.insert(sums[i].times.end(), row.times.begin(), row.times.end());
      }
      std::fprintf(stderr, " |\n");
    }
    for (int i = 0; i < 2; ++i) {
      std::vector<double>& times = sums[i].times;
      if (times.empty()) continue;
      std::sort(times.begin(), times.end());
      std::fprintf(
          stderr,
          "%s: %d streams, %d beyond 1.05 times malloc and 1 MiB; at most 1.125 times and %.1f "
          "MiB; "
          "median %.2f, ninth decile %.2f, most %.2f times; the system asked %.2f times a cycle\n",
          i == 0 ? "arrays" : "raw bytes", sums[i].streams, sums[i].beyond, sums[i].beside,
          times[times.size() / 2], times[times.size() * 9 / 10], times.back(),
          sums[i].asked / sums[i].streams);
    }
  }
}

const int registered = [] {
  for (const StreamFamily& family : StreamFamilies()) {
    benchmark::RegisterBenchmark(("Families/" + family.name).c_str(),
                                 [family](benchmark::State& state) { Count(state, family); })
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("Families/table", &Print)->Iterations(1);
  return 0;
}();

}  // namespace
}  // namespace tidepool
