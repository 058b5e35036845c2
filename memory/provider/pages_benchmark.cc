// What taking pages from the system costs: first touch is nearly all of it.
#include "benchmark/benchmark.h"
#include "tidepool/memory/provider/pages.h"

namespace tidepool {
namespace {

void TakePages(benchmark::State& state, bool prefault, bool large_pages) {
  const size_t bytes = static_cast<size_t>(state.range(0)) << 20;
  PagesOptions options;
  options.prefault = prefault;
  options.large_pages = large_pages;
  for (auto _ : state) {
    Pages pages(options);
    pages.Resize(bytes);
    benchmark::DoNotOptimize(pages.base());
  }
}
BENCHMARK_CAPTURE(TakePages, untouched, false, true)->Arg(64)->Arg(256);
BENCHMARK_CAPTURE(TakePages, touched_huge, true, true)->Arg(64)->Arg(256);
BENCHMARK_CAPTURE(TakePages, touched_small, true, false)->Arg(64)->Arg(256);

// Growing in place by a page at a time, as cycles grow.
void GrowPages(benchmark::State& state) {
  PagesOptions options;
  options.prefault = false;
  for (auto _ : state) {
    Pages pages(options);
    for (size_t bytes = 1; bytes <= 64; ++bytes) pages.Resize(bytes * 4096);
  }
}
BENCHMARK(GrowPages);

}  // namespace
}  // namespace tidepool
