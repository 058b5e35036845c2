// Blocks outside of workspaces beside malloc and other allocators, by one thread and by many at once.
//
//   bazel run //memory/pmr:outside_benchmark -- --benchmark_repetitions=9
//
// with --benchmark_enable_random_interleaving=true --benchmark_report_aggregates_only=true.
//
// WORK/PEER/threads:N, time per pair of a request and a release, in CPU time of a thread. Works: pair takes
// one of 40 bytes and gives it back; mixed the same of 8 to 4096 bytes in turn; replace has 10,000 of 8 to
// 512 bytes and replaces one at random; rounds takes 1000 of 8 to 512 bytes and gives them back in the
// order they came; large is pair of 20,000 bytes; handed leaves one of 40 bytes in one of 64 places and gives back
// what some thread left there.
// Peers: here (outside_blocks.h), malloc, and those of memory/workspace/allocators.h that are found.
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "benchmark/benchmark.h"
#include "tidepool/memory/pmr/block_bytes.h"
#include "tidepool/memory/workspace/allocators.h"

namespace tidepool {
namespace {

constexpr int kMostThreads = 32;

// Both take the size; only some look at it.
struct Here {
  void* Take(size_t bytes) const { return AllocateBytesHere(bytes); }
  void Give(void* block, size_t bytes) const { ReleaseBytes(block, bytes); }
};
struct Other {
  void* Take(size_t bytes) const { return allocator->allocate(bytes); }
  void Give(void* block, size_t) const { allocator->release(block); }
  std::shared_ptr<const Allocator> allocator;
};

class Random {
 public:
  explicit Random(uint32_t seed) : state_(seed * 2654435761u + 1) {}
  uint32_t operator()() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 17;
    return state_ ^= state_ << 5;
  }

 private:
  uint32_t state_;
};

template <typename Peer>
void* Take(const Peer& peer, size_t bytes) {
  void* const block = peer.Take(bytes);
  *static_cast<volatile char*>(block) = 1;
  return block;
}

template <typename Peer>
void Pair(const Peer& peer, benchmark::State& state, size_t bytes) {
  for (auto _ : state) peer.Give(Take(peer, bytes), bytes);
}

template <typename Peer>
void Mixed(const Peer& peer, benchmark::State& state) {
  constexpr size_t kBytes[] = {8, 24, 40, 64, 100, 256, 700, 4096};
  size_t i = 0;
  for (auto _ : state) {
    const size_t bytes = kBytes[i++ % std::size(kBytes)];
    peer.Give(Take(peer, bytes), bytes);
  }
}

template <typename Peer>
void Replace(const Peer& peer, benchmark::State& state) {
  Random random(static_cast<uint32_t>(state.thread_index()));
  std::vector<std::pair<void*, size_t>> blocks(10000);
  for (auto& [block, bytes] : blocks) block = Take(peer, bytes = 8 + random() % 505);
  for (auto _ : state) {
    auto& [block, bytes] = blocks[random() % blocks.size()];
    peer.Give(block, bytes);
    block = Take(peer, bytes = 8 + random() % 505);
  }
  for (auto& [block, bytes] : blocks) peer.Give(block, bytes);
}

template <typename Peer>
void Rounds(const Peer& peer, benchmark::State& state) {
  Random random(static_cast<uint32_t>(state.thread_index()));
  std::vector<std::pair<void*, size_t>> blocks(1000);
  while (state.KeepRunningBatch(static_cast<int64_t>(blocks.size()))) {
    for (auto& [block, bytes] : blocks) block = Take(peer, bytes = 8 + random() % 505);
    for (auto& [block, bytes] : blocks) peer.Give(block, bytes);
  }
}

template <typename Peer>
void Handed(const Peer& peer, benchmark::State& state) {
  constexpr size_t kBytes = 40;
  static std::array<std::atomic<void*>, 64> places;
  size_t i = static_cast<size_t>(state.thread_index()) * 7;
  for (auto _ : state) {
    void* const before = places[i++ % places.size()].exchange(Take(peer, kBytes));
    if (before != nullptr) peer.Give(before, kBytes);
  }
  // The last of each place, of whatever thread.
  for (auto& place : places) {
    if (void* const block = place.exchange(nullptr); block != nullptr) peer.Give(block, kBytes);
  }
}

template <typename Peer>
void Register(const std::string& name, const Peer& peer) {
  const auto add = [&](const char* work, auto run) {
    auto* const registered =
        benchmark::RegisterBenchmark((std::string(work) + "/" + name).c_str(),
                                     [peer, run](benchmark::State& state) { run(peer, state); });
    registered->Threads(1)->Threads(2);
    // Debian's tcmalloc 2.10 crashes with more when it comes by dlopen (CentralFreeList::Populate).
    if (name != "tcmalloc") registered->Threads(kMostThreads);
  };
  add("pair", [](const Peer& p, benchmark::State& state) { Pair(p, state, 40); });
  add("mixed", [](const Peer& p, benchmark::State& state) { Mixed(p, state); });
  add("replace", [](const Peer& p, benchmark::State& state) { Replace(p, state); });
  add("rounds", [](const Peer& p, benchmark::State& state) { Rounds(p, state); });
  add("handed", [](const Peer& p, benchmark::State& state) { Handed(p, state); });
  add("large", [](const Peer& p, benchmark::State& state) { Pair(p, state, 20000); });
}

const int registered = [] {
  Register("here", Here{});
  for (const Allocator& allocator : FindAllocators()) {
    Register(allocator.name, Other{std::make_shared<const Allocator>(allocator)});
  }
  return 0;
}();

}  // namespace
}  // namespace tidepool
