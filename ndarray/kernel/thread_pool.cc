#include "tidepool/ndarray/kernel/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <mutex>
#include <new>
#include <system_error>

#include "tidepool/memory/stack.h"

namespace tidepool {
namespace {

// state_: 8 bits of workers inside, 1 bit "open", the rest the job's number.
constexpr uint32_t kInside = 0xFF;
constexpr uint32_t kOpen = 0x100;
constexpr uint32_t kJob = 0x200;
constexpr int kMaxWorkers = 254;

// About 30 us: longer than the gap between the operators of a training step, much shorter than a
// scheduler's quantum.
constexpr int kSpins = 1000;

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void SleepWhile(std::atomic<uint32_t>& word, uint32_t value) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT_PRIVATE, value, nullptr,
          nullptr, 0);
}

void Wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE_PRIVATE, INT_MAX, nullptr,
          nullptr, 0);
}

// How often this process's ancestors forked since the first pool was made.
std::atomic<int> forks{0};

int ThisProcess() {
  static const bool is_registered = [] {
    pthread_atfork(nullptr, nullptr, [] { forks.fetch_add(1, std::memory_order_relaxed); });
    return true;
  }();
  static_cast<void>(is_registered);
  return forks.load(std::memory_order_relaxed);
}

// The shared pool of a process.
struct Kept {
  const int process;
  Kept* const of_parent;  // nobody's any more: a thread that the child has not may be changing it
  std::mutex mutex;
  std::shared_ptr<WorkerPool> pool;
  int threads = 0;
};
// Never destroyed: exit() need not wait for threads that own nothing.
std::atomic<Kept*> kept_here{nullptr};

// No lock that a fork could leave taken.
Kept& KeptHere() {
  const int process = ThisProcess();
  Kept* kept = kept_here.load(std::memory_order_acquire);
  if (kept != nullptr && kept->process == process) return *kept;
  std::unique_ptr<Kept> fresh(new Kept{.process = process, .of_parent = kept});
  if (kept_here.compare_exchange_strong(kept, fresh.get(), std::memory_order_acq_rel))
    return *fresh.release();
  return *kept;
}

}  // namespace

WorkerPool::WorkerPool(int threads)
    : shares_(new Share[static_cast<size_t>(std::clamp(threads, 1, kMaxWorkers + 1))]),
      process_(ThisProcess()) {
#if defined(__SANITIZE_THREAD__)
  if (process_ > 0) return;  // it ends a child that starts threads
#endif
  const int workers = std::min(threads - 1, kMaxWorkers);
  for (int slot = 1; slot <= workers; ++slot) {
    try {
      workers_.emplace_back([this, slot] { Work(slot); });
    } catch (const std::system_error&) {
      break;
    }
  }
}

WorkerPool::~WorkerPool() {
  if (process_ != ThisProcess()) {
    // They are the parent's: here there is nobody to wait for, nor a handle of anybody.
    for (std::thread& worker : workers_) new (&worker) std::thread();
    return;
  }
  stop_.store(true);
  state_.fetch_add(kJob);  // a new number that cannot be joined: sleepers look again
  Wake(state_);
  for (std::thread& worker : workers_) worker.join();
}

void WorkerPool::TakeTasks(int slot) {
  for (int other = 0; other < job_.slots; ++other) {
    Share& share = shares_[static_cast<size_t>((slot + other) % job_.slots)];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const int64_t index = share.next.fetch_add(1, std::memory_order_relaxed);
      if (index < share.end) (*job_.task)(index, slot);
    }
  }
}

void WorkerPool::Work(int slot) {
  // A worker may meet an operator for the first time in any step. What its stack will need is touched
  // here, so that steady steps have no page faults on any thread.
  TouchStack();
  uint32_t done = UINT32_MAX;  // number of the last job this worker was in
  int spins = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    uint32_t state = state_.load(std::memory_order_acquire);
    const bool joinable = (state & kOpen) != 0 && state / kJob != done;
    if (!joinable) {
      if (++spins < kSpins) {
        Pause();
        continue;
      }
      sleepers_.fetch_add(1);
      // Between the load above and here a job may have begun; the kernel compares once more.
      state = state_.load();
      if (((state & kOpen) == 0 || state / kJob == done) && !stop_.load())
        SleepWhile(state_, state);
      sleepers_.fetch_sub(1);
      spins = 0;
      continue;
    }
    if (!state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel)) continue;
    done = state / kJob;
    if (slot < job_.slots) TakeTasks(slot);
    const uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
    if ((before & kInside) == 1 && (before & kOpen) == 0 && caller_sleeps_.load()) Wake(state_);
    spins = 0;
  }
}

void WorkerPool::Run(int64_t tasks, absl::FunctionRef<void(int64_t, int)> task) {
  const int slots = static_cast<int>(std::min<int64_t>(tasks, threads()));
  if (slots <= 1 || process_ != forks.load(std::memory_order_relaxed) ||
      busy_.exchange(true, std::memory_order_acquire)) {
    for (int64_t index = 0; index < tasks; ++index) task(index, 0);
    return;
  }
  job_ = {slots, &task};
  for (int64_t slot = 0, begin = 0; slot < slots; ++slot) {
    Share& share = shares_[static_cast<size_t>(slot)];
    share.next.store(begin, std::memory_order_relaxed);
    begin += tasks / slots + (slot < tasks % slots ? 1 : 0);
    share.end = begin;
  }
  state_.store((state_.load(std::memory_order_relaxed) & ~(kInside | kOpen)) + kJob + kOpen);
  if (sleepers_.load() > 0) Wake(state_);
  TakeTasks(0);
  // Nobody may join any more; those inside finish the task they have.
  uint32_t state = state_.fetch_and(~kOpen, std::memory_order_acq_rel) & ~kOpen;
  for (int spins = 0; (state & kInside) != 0; state = state_.load(std::memory_order_acquire)) {
    if (++spins < kSpins) {
      Pause();
      continue;
    }
    caller_sleeps_.store(true);
    state = state_.load();
    if ((state & kInside) != 0) SleepWhile(state_, state);
    caller_sleeps_.store(false);
  }
  busy_.store(false, std::memory_order_release);
}

std::shared_ptr<ThreadPool> PoolOf(Threads wanted) {
  const int threads = wanted.count;
  if (threads <= 1) return nullptr;
  // Nobody's here: a pointer without a count.
  if (wanted.pool != nullptr) return {std::shared_ptr<ThreadPool>(), wanted.pool};
  Kept& kept = KeptHere();
  std::lock_guard<std::mutex> lock(kept.mutex);
  if (kept.threads != threads) {
    kept.pool = std::make_shared<WorkerPool>(threads);
    kept.threads = threads;
  }
  return kept.pool;
}

void ParallelFor(Threads threads, int64_t count, int64_t grain, int64_t work,
                 absl::FunctionRef<void(int64_t, int64_t)> body) {
  if (count <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  const int64_t pieces = (count - 1) / grain + 1;
  auto piece = [&](int64_t index, int) {
    const int64_t begin = index * grain;
    body(begin, begin + std::min(grain, count - begin));
  };
  if (work >= kMinParallelWork && pieces > 1) {
    if (const std::shared_ptr<ThreadPool> pool = PoolOf(threads)) {
      pool->Run(pieces, piece);
      return;
    }
  }
  for (int64_t index = 0; index < pieces; ++index) piece(index, 0);
}

}  // namespace tidepool
