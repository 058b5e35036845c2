#include "tidepool/backends/cuda/emulation/block_runner.h"

#include <sys/mman.h>

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>

namespace tidepool::cuda_emulation {

constinit thread_local ThreadContext* current_thread = nullptr;

namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr size_t kStackBytes = size_t{256} << 10;
#else
constexpr size_t kStackBytes = size_t{64} << 10;
#endif
constexpr size_t kPage = 4096;
constexpr int kWarp = 32;

// An odd stride through 0 .. n - 1 that meets each once.
int StepFor(uint64_t random, int n) {
  for (int step = static_cast<int>(random % n);; ++step) {
    if (std::gcd(step, n) == 1) return step;
  }
}

}  // namespace

BlockRunner& BlockRunner::Get() {
  thread_local BlockRunner runner;
  return runner;
}

BlockRunner::BlockRunner() = default;
BlockRunner::~BlockRunner() {
  if (shared_mapping_ != nullptr) munmap(shared_mapping_, shared_mapping_bytes_ + kPage);
}

BlockRunner::Fiber::Fiber(BlockRunner* of) : runner(of), fiber(kStackBytes, &RunThreads, this) {}

uint64_t BlockRunner::Random() {  // splitmix64 (Steele, Lea, Flood 2014)
  uint64_t z = random_ += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}

// Ends where a page without access begins, so that what is written behind it is seen.
void BlockRunner::SetShared(size_t bytes) {
  const size_t whole = (bytes + kPage - 1) / kPage * kPage;
  if (whole > shared_mapping_bytes_) {
    if (shared_mapping_ != nullptr) munmap(shared_mapping_, shared_mapping_bytes_ + kPage);
    void* const mapping =
        mmap(nullptr, whole + kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED ||
        mprotect(static_cast<char*>(mapping) + whole, kPage, PROT_NONE) != 0) {
      std::perror("tidepool: shared memory of an emulated block");
      std::abort();
    }
    shared_mapping_ = static_cast<char*>(mapping);
    shared_mapping_bytes_ = whole;
  }
  const size_t aligned = (bytes + 15) / 16 * 16;
  block_.shared = bytes == 0 ? nullptr : shared_mapping_ + shared_mapping_bytes_ - aligned;
}

void BlockRunner::Run(const Grid& grid, uint64_t seed, void (*body)(void*), void* argument) {
  random_ = seed;
  body_ = body;
  argument_ = argument;
  threads_ = static_cast<int>(grid.threads.x * grid.threads.y * grid.threads.z);
  block_.block_dim = grid.threads;
  block_.grid_dim = grid.blocks;
  SetShared(grid.shared_bytes);
  exchanges_.resize((threads_ + kWarp - 1) / kWarp);
  exchange_waits_.resize(exchanges_.size());
  const int64_t blocks = int64_t{grid.blocks.x} * grid.blocks.y * grid.blocks.z;
  const int64_t first = static_cast<int64_t>(Random() % blocks);
  const bool backward = (Random() & 1) != 0;
  ThreadContext* const outer = current_thread;
  for (int64_t n = 0; n < blocks; ++n) {
    const int64_t block = ((backward ? blocks - 1 - n : n) + first) % blocks;
    block_.block = {static_cast<unsigned>(block % grid.blocks.x),
                    static_cast<unsigned>(block / grid.blocks.x % grid.blocks.y),
                    static_cast<unsigned>(block / grid.blocks.x / grid.blocks.y)};
    RunBlock();
  }
  current_thread = outer;
}

void BlockRunner::RunBlock() {
  if (block_.shared != nullptr) {
    std::memset(block_.shared, 0xff,
                shared_mapping_ + shared_mapping_bytes_ - static_cast<char*>(block_.shared));
  }
  next_ = ended_ = 0;
  barrier_values_ = 0;
  step_ = StepFor(Random(), threads_);
  first_ = static_cast<int>(Random() % threads_);
  for (;;) {
    Fiber* fiber;
    if (!ready_.empty()) {
      std::swap(ready_[Random() % ready_.size()], ready_.back());
      fiber = ready_.back();
      ready_.pop_back();
    } else if (next_ < threads_) {
      if (free_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>(this));
        free_.push_back(fibers_.back().get());
      }
      fiber = free_.back();
      free_.pop_back();
    } else {
      break;
    }
    running_ = fiber;
    current_thread = &fiber->context;
    SwitchFiber(scheduler_, fiber->fiber);
  }
  if (ended_ < threads_) Stuck();
}

void BlockRunner::RunThreads(void* argument) {
  Fiber* const fiber = static_cast<Fiber*>(argument);
  BlockRunner* const runner = fiber->runner;
  for (;;) {
    fiber->context = runner->block_;
    const Index3 dim = runner->block_.block_dim;
    while (runner->next_ < runner->threads_) {
      const int number = runner->next_++;
      const int linear =
          static_cast<int>((int64_t{number} * runner->step_ + runner->first_) % runner->threads_);
      fiber->context.linear = linear;
      fiber->context.thread = {linear % dim.x, linear / dim.x % dim.y, linear / dim.x / dim.y};
      runner->body_(runner->argument_);
      ++runner->ended_;
    }
    runner->free_.push_back(fiber);
    SwitchFiber(fiber->fiber, runner->scheduler_);
  }
}

void BlockRunner::Park() {
  Fiber* const self = running_;
  SwitchFiber(self->fiber, scheduler_);
}

void BlockRunner::WakeAll(std::vector<Fiber*>& waiting) {
  ready_.insert(ready_.end(), waiting.begin(), waiting.end());
  waiting.clear();
}

int BlockRunner::Barrier(Vote vote, int value) {
  const int before = barrier_values_;
  barrier_values_ = before + (value != 0 ? 1 : 0);
  if (static_cast<int>(at_barrier_.size()) + 1 < threads_) {
    at_barrier_.push_back(running_);
    Park();
  } else {
    barrier_result_ = barrier_values_;
    barrier_values_ = 0;
    // Not first of all: it goes on in its turn like the others.
    at_barrier_.push_back(running_);
    WakeAll(at_barrier_);
    Park();
  }
  switch (vote) {
    case Vote::kNone:
      return 0;
    case Vote::kAny:
      return barrier_result_ > 0;
    case Vote::kAll:
      return barrier_result_ == threads_;
    case Vote::kCount:
      return barrier_result_;
  }
  return 0;
}

BlockRunner::Exchange* BlockRunner::BeginExchange(uint32_t mask, const void* value, size_t bytes) {
  const int warp = current_thread->linear / kWarp, lane = current_thread->linear % kWarp;
  const uint32_t bit = 1u << lane;
  if ((mask & bit) == 0) {
    std::fprintf(stderr, "tidepool CUDA emulation: lane %d is not in its own mask %08x\n", lane,
                 mask);
    std::abort();
  }
  Exchange* exchange = nullptr;
  for (const auto& open : exchanges_[warp]) {
    if (open->mask == mask && (open->arrived & bit) == 0 && open->arrived != mask) {
      exchange = open.get();
    }
  }
  if (exchange == nullptr) {
    if (spare_.empty()) spare_.push_back(std::make_unique<Exchange>());
    exchanges_[warp].push_back(std::move(spare_.back()));
    spare_.pop_back();
    exchange = exchanges_[warp].back().get();
    exchange->mask = mask;
    exchange->arrived = 0;
    exchange->left = std::popcount(mask);
  }
  std::memcpy(exchange->values[lane], value, bytes);
  exchange->arrived |= bit;
  auto& waits = exchange_waits_[warp];
  waits.push_back({exchange, running_});
  if (exchange->arrived == mask) {
    for (size_t i = 0; i < waits.size();) {
      if (waits[i].first != exchange) {
        ++i;
        continue;
      }
      ready_.push_back(waits[i].second);
      waits[i] = waits.back();
      waits.pop_back();
    }
  }
  Park();
  return exchange;
}

void BlockRunner::EndExchange(Exchange* exchange) {
  if (--exchange->left > 0) return;
  auto& open = exchanges_[current_thread->linear / kWarp];
  for (auto& candidate : open) {
    if (candidate.get() != exchange) continue;
    spare_.push_back(std::move(candidate));
    candidate = std::move(open.back());
    open.pop_back();
    return;
  }
}

void BlockRunner::Stuck() {
  size_t in_exchanges = 0;
  for (const auto& waits : exchange_waits_) in_exchanges += waits.size();
  std::fprintf(stderr,
               "tidepool CUDA emulation: block (%u, %u, %u) of %d threads is stuck: %zu wait at "
               "__syncthreads, %zu at a shuffle or vote, %d have ended\n",
               block_.block.x, block_.block.y, block_.block.z, threads_, at_barrier_.size(),
               in_exchanges, ended_);
  std::abort();
}

}  // namespace tidepool::cuda_emulation
