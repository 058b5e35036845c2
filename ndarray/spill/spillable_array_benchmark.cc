// A sweep over arrays of which a budget has room for a part, again and again, with compute between: by least recent use, and by the plan that
// EndCycle() has learned. Arrays of 4 MiB, room for 8 of them; what is computed is exp(x) summed up, so many times.
//
//   bazel run //ndarray/spill:spillable_array_benchmark    # in $TIDEPOOL_SPILL_FOLDER, else $TMPDIR, else /var/tmp
#include <cstdint>
#include <cstdlib>
#include <deque>

#include "benchmark/benchmark.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/spill/spillables.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/spill/spillable_array.h"

namespace tidepool {
namespace {

constexpr int64_t kMiB = 1 << 20;

void Sweep(benchmark::State& state, bool by_plan, bool writes) {
  const bool brief = std::getenv("TIDEPOOL_BENCHMARK_ONCE") != nullptr;
  const int64_t elements = brief ? 4096 : kMiB, bytes = 4 * elements;
  const int64_t room = 8, count = room * state.range(0);
  const int64_t passes = state.range(1);
  SpillFile file;
  Spillables spillables(file);
  MemoryOwner& owner = MemoryOwner::Process().Child("sweep");
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), room * bytes);
  std::deque<SpillableArray> arrays;
  {
    const MemoryOwnerScope scope(owner);
    for (int64_t i = 0; i < count; ++i)
      arrays.emplace_back(spillables, RandomUniform({elements}, -1, 1, static_cast<uint64_t>(i)));
  }
  float sum = 0;
  const auto cycle = [&] {
    for (SpillableArray& array : arrays) {
      const SpillableArray::Pinned pinned = writes ? array.Write() : array.Read();
      for (int64_t pass = 0; pass < passes; ++pass) sum += Sum(Exp(*pinned)).Item<float>();
      if (writes) *pinned *= Scalar(0.5);
    }
    if (by_plan) spillables.EndCycle();
  };
  for (int i = 0; i < 4; ++i) cycle();
  const SpillFileStats before = file.stats();
  const int64_t stalls = spillables.stats().stalls;
  for (auto _ : state) cycle();
  benchmark::DoNotOptimize(sum);
  const SpillFileStats after = file.stats();
  const auto each = [&](int64_t what) {
    return static_cast<double>(what) / static_cast<double>(state.iterations());
  };
  state.counters["read_MiB"] = each(after.read.bytes - before.read.bytes) / kMiB;
  state.counters["written_MiB"] = each(after.written.bytes - before.written.bytes) / kMiB;
  state.counters["stalls"] = each(spillables.stats().stalls - stalls);
  state.counters["waited_ms"] =
      1e-6 * (each(after.read.stall_nanoseconds - before.read.stall_nanoseconds) +
              each(after.written.stall_nanoseconds - before.written.stall_nanoseconds));
  arrays.clear();
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
}
#define TIDEPOOL_SWEEP(name, by_plan, writes)     \
  BENCHMARK_CAPTURE(Sweep, name, by_plan, writes) \
      ->ArgNames({"times_the_budget", "passes"})  \
      ->ArgsProduct({{2, 4}, {1, 4}})             \
      ->UseRealTime()                             \
      ->Unit(benchmark::kMillisecond)
TIDEPOOL_SWEEP(read_least_recent, false, false);
TIDEPOOL_SWEEP(read_planned, true, false);
TIDEPOOL_SWEEP(written_least_recent, false, true);
TIDEPOOL_SWEEP(written_planned, true, true);

// A use of what is in memory anyway: 64 arrays, each once in a cycle.
void Use(benchmark::State& state, bool by_plan) {
  constexpr int kArrays = 64;
  SpillFile file;
  Spillables spillables(file);
  std::deque<SpillableArray> arrays;
  for (int i = 0; i < kArrays; ++i) arrays.emplace_back(spillables, Zeros({1024}));
  for (auto _ : state) {
    for (SpillableArray& array : arrays) benchmark::DoNotOptimize(array.Read()->raw_data());
    if (by_plan) spillables.EndCycle();
  }
  state.SetItemsProcessed(state.iterations() * kArrays);
}
BENCHMARK_CAPTURE(Use, least_recent, false);
BENCHMARK_CAPTURE(Use, planned, true);

}  // namespace
}  // namespace tidepool
