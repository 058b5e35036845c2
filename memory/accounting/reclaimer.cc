#include "tidepool/memory/accounting/reclaimer.h"

#include <malloc.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <new>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/callbacks.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

// Of this thread alone.
const void* Here() { return &internal::callbacks_here; }

void Tell(MemoryEvent::Kind kind, const MemoryRequest& request, int64_t wanted, int64_t reclaimed,
          int64_t missing) noexcept {
  MemoryEvent event{kind, request};
  event.wanted_bytes = wanted;
  event.reclaimed_bytes = reclaimed;
  event.missing_bytes = missing;
  TellMemoryEvent(event);
}

}  // namespace

Reclaimer& Reclaimer::Global() {
  static Reclaimer* const reclaimer = [] {
    static constinit const ForkHandlers handlers{[] { Global().LockForFork(); },
                                                 [] { Global().UnlockAfterFork(); },
                                                 [] {
                                                   Global().ForgetThread();
                                                   Global().UnlockAfterFork();
                                                 }};
    HandleFork(ForkLevel::kReclaimer, &handlers);
    ToldBeforeFork([]() noexcept { Global().TellOfFork(); });
    return new Reclaimer;
  }();
  return *reclaimer;
}

// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] static const Reclaimer& at_start = Reclaimer::Global();

// Another thread that forks waits for the end of this one's run, and this one for that thread's locks.
void Reclaimer::TellOfFork() noexcept {
  const std::lock_guard<std::mutex> lock(entries_mutex_);
  if (runner_ != Here()) return;
  runner_forks_ = true;
  run_ended_.notify_all();
}

// The window's lock is left alone: who has it may wait for a run on this thread. A child makes it anew.
void Reclaimer::LockForFork() noexcept {
  std::unique_lock<std::mutex> lock(entries_mutex_);
  run_ended_.wait(lock,
                  [this] { return runner_ == nullptr || runner_ == Here() || runner_forks_; });
  lock.release();
  mutex_.lock();
}

void Reclaimer::UnlockAfterFork() noexcept {
  if (runner_ == Here()) runner_forks_ = false;
  mutex_.unlock();
  entries_mutex_.unlock();
}

// What these hold is of threads that are not here: they are made anew, not ended.
void Reclaimer::ForgetThread() noexcept {
  if (runner_ != Here()) {
    runner_ = nullptr;
    called_ = 0;
    runner_forks_ = false;
  }
  new (&window_mutex_) std::mutex;
  new (&thread_) std::thread;
  for (std::condition_variable* waited : {&changed_, &call_ended_, &run_ended_}) {
    new (waited) std::condition_variable;
  }
  window_ = absl::ZeroDuration();
  stop_ = true;
}

Reclaimer::~Reclaimer() { StopThread(); }

Reclaimer::Registration Reclaimer::Register(std::string name, Callback callback) {
  if (callback == nullptr) {
    ThrowInvalidArgument(absl::StrCat("reclaimer: registration of [", OneLine(name),
                                      "]: found no callback, expected a function to call"));
  }
  return Add(std::make_unique<Entry>(Entry{0, std::move(name), std::move(callback)}));
}

Reclaimer::Registration Reclaimer::Register(std::string name, Spiller& spiller) {
  return Add(std::make_unique<Entry>(Entry{0, std::move(name), nullptr, &spiller}));
}

Reclaimer::Registration Reclaimer::Add(std::unique_ptr<Entry> entry) {
  std::lock_guard<std::mutex> lock(entries_mutex_);
  const uint64_t id = entry->id = next_id_;
  entries_.push_back(std::move(entry));
  ++next_id_;
  return Registration(this, id);
}

void Reclaimer::Unregister(uint64_t id) noexcept {
  Callback gone;  // goes without the lock, with what it has kept
  std::unique_lock<std::mutex> lock(entries_mutex_);
  call_ended_.wait(lock, [&] { return called_ != id || runner_ == Here(); });
  const auto found =
      std::lower_bound(entries_.begin(), entries_.end(), id,
                       [](const auto& entry, uint64_t wanted) { return entry->id < wanted; });
  if (found == entries_.end() || (*found)->id != id || (*found)->dead) return;
  (*found)->dead = true;
  ++dead_entries_;
  if (called_ == id) return;  // its own: the run takes it out
  gone = std::exchange((*found)->callback, nullptr);
  if (runner_ == nullptr && dead_entries_ * 2 > entries_.size()) DropDead();
  lock.unlock();
}

void Reclaimer::DropDead() noexcept {
  std::erase_if(entries_, [](const auto& entry) { return entry->dead; });
  dead_entries_ = 0;
}

std::string Reclaimer::DescribePinned() {
  std::lock_guard<std::mutex> lock(entries_mutex_);
  std::string all;
  for (const auto& entry : entries_) {
    if (entry->dead || entry->spiller == nullptr) continue;
    const std::string one = entry->spiller->DescribePinned();
    if (!one.empty()) absl::StrAppend(&all, all.empty() ? "" : "; ", one);
  }
  return all;
}

int64_t Reclaimer::Run(ReclaimDepth depth, int64_t wanted) noexcept {
  return RunEach(wanted, [depth](Entry& entry, int64_t) {
    return entry.callback != nullptr ? entry.callback(depth) : 0;
  });
}

int64_t Reclaimer::RunEach(int64_t wanted,
                           absl::FunctionRef<int64_t(Entry&, int64_t)> call) noexcept {
  std::unique_lock<std::mutex> lock(entries_mutex_);
  if (runner_ == Here()) return 0;  // a callback that allocates does not reclaim for itself
  // The other thread may wait for what this one is in the middle of.
  if (runner_ != nullptr && internal::InCallback()) return 0;
  run_ended_.wait(lock, [this] { return runner_ == nullptr; });
  runner_ = Here();
  int64_t reclaimed = 0;
  for (size_t i = 0; i < entries_.size() && reclaimed < wanted; ++i) {
    Entry& entry = *entries_[i];  // stays where it is while others are added
    if (entry.dead) continue;
    called_ = entry.id;
    lock.unlock();
    int64_t bytes = 0;
    internal::CallBack([&] { bytes = call(entry, wanted - reclaimed); });
    reclaimed += std::clamp<int64_t>(bytes, 0, kMostCountedBytes);
    lock.lock();
    called_ = 0;
    call_ended_.notify_all();
    if (!entry.dead) continue;
    lock.unlock();
    entry.callback = nullptr;  // nobody else has it any more
    lock.lock();
  }
  runner_ = nullptr;
  run_ended_.notify_all();
  if (dead_entries_ > 0) DropDead();
  return reclaimed;
}

int64_t Reclaimer::RunNow() {
  const int64_t reclaimed = Run(ReclaimDepth::kIdle, std::numeric_limits<int64_t>::max());
#ifdef __GLIBC__
  malloc_trim(0);  // what objects that are gone have left between others goes only so
#endif
  std::lock_guard<std::mutex> lock(mutex_);
  stats_.reclaimed_bytes += reclaimed;
  return reclaimed;
}

int64_t Reclaimer::RunUnderPressure(int64_t wanted, const MemoryRequest& request) {
  int64_t reclaimed = Run(ReclaimDepth::kSpare, wanted);
  if (reclaimed < wanted) reclaimed += Run(ReclaimDepth::kIdle, wanted - reclaimed);
  int64_t spilled = 0;
  if (reclaimed < wanted) {
    MemoryRequest known = request;
    if (known.owner == nullptr)
      known.owner = &MemoryOwner::Current();  // no scope is seen within callbacks
    spilled = RunEach(wanted - reclaimed, [&](Entry& entry, int64_t missing) {
      return entry.spiller != nullptr ? entry.spiller->Spill(missing, known) : 0;
    });
  }
  std::lock_guard<std::mutex> lock(mutex_);
  ++stats_.pressure_runs;
  stats_.reclaimed_bytes += reclaimed + spilled;
  stats_.spilled_bytes += spilled;
  return reclaimed + spilled;
}

int64_t Reclaimer::ReclaimUnderPressure(int64_t wanted, const MemoryRequest& request) {
  if (!enabled()) return 0;
  Tell(MemoryEvent::Kind::kReclaimBegins, request, wanted, 0, wanted);
  const int64_t reclaimed = RunUnderPressure(wanted, request);
  Tell(MemoryEvent::Kind::kReclaimEnds, request, wanted, reclaimed,
       std::max<int64_t>(0, wanted - reclaimed));
  return reclaimed;
}

int64_t Reclaimer::RetryWhileReclaiming(int64_t missing, absl::FunctionRef<int64_t()> retry,
                                        const MemoryRequest& request) {
  constexpr int kRounds = 8;
  if (missing <= 0 || !enabled()) return 0;
  const int64_t wanted = missing;
  // Who is told may raise a limit or let go of arrays, which makes room that no callback of ours gave back,
  // and may be gone then.
  const bool told = MemoryEventsAreTold();
  Tell(MemoryEvent::Kind::kReclaimBegins, request, wanted, 0, wanted);
  if (told) missing = retry();
  // What is more than the machine has, giving back would not serve, and would leave all others cold.
  const int64_t most =
      request.device == Host() ? MachineMemoryAndSwapBytes() : std::numeric_limits<int64_t>::max();
  int64_t reclaimed = 0;
  for (int round = 0; missing > 0 && missing <= most && round < kRounds; ++round) {
    const int64_t more = RunUnderPressure(missing, request);
    if (more <= 0) break;
    reclaimed += more;
    missing = retry();
  }
  Tell(MemoryEvent::Kind::kReclaimEnds, request, wanted, reclaimed, missing);
  if (told && missing > 0) retry();
  return reclaimed;
}

Reclaimer::Stats Reclaimer::stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return stats_;
}

// ---- the thread -----------------------------------------------------------------------------

void Reclaimer::set_window(absl::Duration window) {
  std::lock_guard<std::mutex> one_at_a_time(window_mutex_);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    window_ = window;
    stop_ = window <= absl::ZeroDuration();
  }
  changed_.notify_all();
  if (window <= absl::ZeroDuration()) {
    if (thread_.joinable()) thread_.join();
  } else if (!thread_.joinable()) {
    if (this == &Global()) {
      // Callbacks of static objects must not run while those are destroyed.
      [[maybe_unused]] static const int registered =
          std::atexit([] { Global().set_window(absl::ZeroDuration()); });
    }
    try {
      thread_ = std::thread([this] { Loop(); });
    } catch (const std::system_error& error) {
      {
        std::lock_guard<std::mutex> lock(mutex_);
        window_ = absl::ZeroDuration();
        stop_ = true;
      }
      ThrowResourceExhausted(absl::StrCat(
          "Reclaimer: set_window: a thread for periodic runs: ", error.code().message(),
          "; memory goes back under pressure all the same"));
    }
  }
}

absl::Duration Reclaimer::window() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return window_;
}

void Reclaimer::set_enabled(bool enabled) {
  std::lock_guard<std::mutex> lock(mutex_);
  enabled_ = enabled;
}

bool Reclaimer::enabled() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return enabled_;
}

void Reclaimer::Loop() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stop_) {
    const absl::Duration window = window_;
    const auto until = std::chrono::steady_clock::now() +
                       absl::ToChronoNanoseconds(std::min(window, absl::Hours(24 * 365)));
    const bool interrupted =
        changed_.wait_until(lock, until, [&] { return stop_ || window_ != window; });
    if (interrupted || !enabled_) continue;
    lock.unlock();
    const int64_t reclaimed = Run(ReclaimDepth::kPeriodic, std::numeric_limits<int64_t>::max());
    lock.lock();
    ++stats_.periodic_runs;
    stats_.reclaimed_bytes += reclaimed;
  }
}

void Reclaimer::StopThread() noexcept { set_window(absl::ZeroDuration()); }

}  // namespace tidepool
