// Containers in workspaces beside other memory resources and allocators (P20 of
// docs/performance.md).
//
//   bazel run //memory/pmr:pmr_benchmark -- --benchmark_repetitions=9
//
// with --benchmark_enable_random_interleaving=true --benchmark_report_aggregates_only=true.
//
// An iteration is a cycle: WORK/PEER. Works: json_equal parses one document of 22 KB and destroys it;
// json_different another one each time, 64 documents of up to 47 KB in turn; json_tiny one of 700
// bytes; mix_equal and mix_different fill a map, an unordered map, a vector of strings, a list and a
// deque, erase some and destroy them, of one size and of sizes drawn anew. Counter ns_per_block: the
// whole cycle's time, parsing and all, by the blocks it allocates.
//
// Peers: workspace (WorkspaceResource, a scope for each cycle), here (ResourceHere()), new_delete
// (std::pmr::new_delete_resource), the allocators of memory/workspace/allocators.h behind a
// resource, pool (std::pmr::unsynchronized_pool_resource, kept), monotonic
// (std::pmr::monotonic_buffer_resource, released after each cycle: it takes and gives back each
// time), monotonic_16M (the same over a buffer that is kept and large enough, which releases
// nothing within a cycle: the least that can be). Counters of workspaces: live_KiB, the most bytes
// asked for and alive at once in 64 cycles; kept_KiB, what the workspace has for blocks in the end.
#include <algorithm>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <memory_resource>
#include <new>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/examples/containers/documents.h"
#include "tidepool/examples/containers/json.h"
#include "tidepool/memory/pmr/workspace_resource.h"
#include "tidepool/memory/workspace/allocators.h"
#include "tidepool/memory/workspace/workspace_scope.h"

namespace tidepool {
namespace {

class AllocatorResource final : public std::pmr::memory_resource {
 public:
  explicit AllocatorResource(Allocator allocator) : allocator_(std::move(allocator)) {}

 private:
  // All of them align to 16, which is all that is asked for here.
  void* do_allocate(size_t bytes, size_t) override {
    void* const block = allocator_.allocate(bytes);
    if (block == nullptr) throw std::bad_alloc();
    return block;
  }
  void do_deallocate(void* block, size_t, size_t) override { allocator_.release(block); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }

  const Allocator allocator_;
};

class CountingResource final : public std::pmr::memory_resource {
 public:
  int64_t blocks = 0;
  size_t live = 0;
  size_t most_live = 0;  // at once

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    ++blocks;
    live += bytes;
    most_live = std::max(most_live, live);
    return std::pmr::new_delete_resource()->allocate(bytes, alignment);
  }
  void do_deallocate(void* block, size_t bytes, size_t alignment) override {
    live -= bytes;
    std::pmr::new_delete_resource()->deallocate(block, bytes, alignment);
  }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

// One cycle of a work, numbered from 0, in a resource.
using Work = std::function<void(int cycle, std::pmr::memory_resource* resource)>;
// Calls a function in a cycle of a peer.
using InCycle = std::function<void(const std::function<void(std::pmr::memory_resource*)>&)>;

void ParseOne(const std::string& text, std::pmr::memory_resource* resource) {
  const json::Value document = json::Parse(text, resource);
  benchmark::DoNotOptimize(document.value.index());
}

void Mix(int size, uint32_t seed, std::pmr::memory_resource* resource) {
  std::minstd_rand random(seed);
  std::pmr::map<int, std::pmr::string> names(resource);
  std::pmr::unordered_map<int, double> values(resource);
  std::pmr::vector<std::pmr::string> words(resource);
  std::pmr::list<int> order(resource);
  std::pmr::deque<std::pmr::vector<char>> queue(resource);
  for (int i = 0; i < size; ++i) {
    names.try_emplace(static_cast<int>(random() % size), random() % 80, 'n');
    values[static_cast<int>(random())] = i;
    words.emplace_back(random() % 200, 'w');
    order.push_back(i);
    queue.emplace_back(random() % 2000);
    if (i % 2 == 1) queue.pop_front();
    if (i % 3 == 2) names.erase(names.begin());
    if (i % 4 == 3) order.pop_front();
  }
  benchmark::DoNotOptimize(names.size() + values.size() + words.size() + order.size() +
                           queue.size());
}

// How cycles of a peer are run, and how many bytes it keeps, where it says.
struct Cycles {
  InCycle in_cycle;
  std::function<size_t()> kept_bytes = nullptr;
};

void Run(benchmark::State& state, const Work& work, const Cycles& cycles) {
  CountingResource counting;
  constexpr int kCounted = 64;
  for (int cycle = 0; cycle < kCounted; ++cycle) work(cycle, &counting);
  int number = 0;
  const auto cycle = [&] {
    cycles.in_cycle([&](std::pmr::memory_resource* resource) { work(number++, resource); });
  };
  for (int i = 0; i < kCounted; ++i) cycle();
  for (auto _ : state) cycle();
  state.counters["ns_per_block"] =
      benchmark::Counter(state.iterations() * (counting.blocks * 1e-9 / kCounted),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
  if (cycles.kept_bytes == nullptr) return;
  state.counters["live_KiB"] = static_cast<double>(counting.most_live) / 1024;
  state.counters["kept_KiB"] = static_cast<double>(cycles.kept_bytes()) / 1024;
}

struct Peer {
  std::string name;
  std::function<Cycles()> make;
};

std::vector<Peer> Peers() {
  std::vector<Peer> peers;
  for (const bool here : {false, true}) {
    peers.push_back({here ? "here" : "workspace", [here]() -> Cycles {
                       auto workspace =
                           std::make_shared<Workspace>("w", WorkspaceConfig::Inference());
                       auto resource = std::make_shared<WorkspaceResource>(*workspace);
                       std::pmr::memory_resource* const used =
                           here ? ResourceHere() : resource.get();
                       return {[workspace, resource, used](const auto& cycle) {
                                 WorkspaceScope scope(*workspace);
                                 cycle(used);
                               },
                               [workspace] { return workspace->stats().block_bytes; }};
                     }});
  }
  peers.push_back({"new_delete", []() -> Cycles {
                     return {[](const auto& cycle) { cycle(std::pmr::new_delete_resource()); }};
                   }});
  for (const Allocator& allocator : FindAllocators()) {
    peers.push_back({allocator.name, [allocator]() -> Cycles {
                       auto resource = std::make_shared<AllocatorResource>(allocator);
                       return {[resource](const auto& cycle) { cycle(resource.get()); }};
                     }});
  }
  peers.push_back({"pool", []() -> Cycles {
                     auto pool = std::make_shared<std::pmr::unsynchronized_pool_resource>(
                         std::pmr::new_delete_resource());
                     return {[pool](const auto& cycle) { cycle(pool.get()); }};
                   }});
  peers.push_back({"monotonic", []() -> Cycles {
                     return {[](const auto& cycle) {
                       std::pmr::monotonic_buffer_resource buffer(std::pmr::new_delete_resource());
                       cycle(&buffer);
                     }};
                   }});
  peers.push_back({"monotonic_16M", []() -> Cycles {
                     constexpr size_t kBytes = size_t{16} << 20;
                     auto bytes = std::make_shared<std::vector<char>>(kBytes);
                     return {[bytes](const auto& cycle) {
                       std::pmr::monotonic_buffer_resource buffer(bytes->data(), kBytes,
                                                                  std::pmr::new_delete_resource());
                       cycle(&buffer);
                     }};
                   }});
  return peers;
}

const int registered = [] {
  auto texts = std::make_shared<std::vector<std::string>>();
  for (uint32_t i = 0; i < 64; ++i) texts->push_back(MakeOrders(1 + i * 37 % 90, i));
  auto tiny = std::make_shared<std::string>(MakeOrders(1, 3));
  const std::pair<const char*, Work> works[] = {
      {"json_equal", [texts](int, auto* resource) { ParseOne((*texts)[40], resource); }},
      {"json_different", [texts](int i, auto* resource) { ParseOne((*texts)[i % 64], resource); }},
      {"json_tiny", [tiny](int, auto* resource) { ParseOne(*tiny, resource); }},
      {"mix_equal", [](int, auto* resource) { Mix(1000, 1, resource); }},
      {"mix_different",
       [](int i, auto* resource) {
         Mix(1 + i * 7919 % 2000, static_cast<uint32_t>(i + 1), resource);
       }},
  };
  const std::vector<Peer> peers = Peers();
  for (const auto& [name, work] : works) {
    for (const Peer& peer : peers) {
      benchmark::RegisterBenchmark(
          (std::string(name) + "/" + peer.name).c_str(),
          [work = work, peer](benchmark::State& state) { Run(state, work, peer.make()); });
    }
  }
  return 0;
}();

}  // namespace
}  // namespace tidepool
