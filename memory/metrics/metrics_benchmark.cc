// What a scrape costs, and its size: workspaces of ids of their own (the worst), and of one.
#include <memory>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/metrics/metrics.h"
#include "tidepool/memory/workspace/allocate.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

void Scrape(benchmark::State& state, bool own_ids, const MetricsOptions& options) {
  std::vector<std::unique_ptr<Workspace>> workspaces;
  for (int i = 0; i < state.range(0); ++i) {
    workspaces.push_back(std::make_unique<Workspace>(
        own_ids ? "request " + std::to_string(i) : "request", WorkspaceConfig::Training()));
    for (int cycle = 0; cycle < 3; ++cycle) {
      const WorkspaceScope scope(*workspaces.back());
      const BufferHandle made(AllocateHere(1000));
    }
  }
  size_t bytes = 0;
  for (auto _ : state) {
    const std::string text = MetricsText(options);
    benchmark::DoNotOptimize(text.data());
    bytes = text.size();
  }
  state.counters["bytes"] = static_cast<double>(bytes);
}
void OwnIds(benchmark::State& state) { Scrape(state, true, {}); }
void OneId(benchmark::State& state) { Scrape(state, false, {}); }
void OwnIdsTogether(benchmark::State& state) {
  Scrape(state, true, {.by_owner = false, .by_id = false});
}
// OneId first: owners are for ever.
BENCHMARK(OneId)->Arg(1)->Arg(100)->Arg(4000)->Unit(benchmark::kMicrosecond);
BENCHMARK(OwnIds)->Arg(1)->Arg(100)->Arg(4000)->Unit(benchmark::kMicrosecond);
BENCHMARK(OwnIdsTogether)->Arg(1)->Arg(100)->Arg(4000)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace tidepool
