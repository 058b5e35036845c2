// Who waits for a slot, and when waiting would not help.
#include <dirent.h>

#include <chrono>
#include <string>

#if __has_include(<sys/single_threaded.h>)
#include <sys/single_threaded.h>
#endif

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/ring_core.h"

namespace tidepool {
namespace {

using Clock = std::chrono::steady_clock;

// How often a wait without a limit looks whether anybody is left to end it.
constexpr auto kLookAfter = std::chrono::seconds(1);

// True only when certain.
bool WasNeverAnotherThread() {
#if __has_include(<sys/single_threaded.h>)
  return __libc_single_threaded;
#else
  return false;
#endif
}

// The same by asking the system. (A thread that was joined may be there for a moment longer.)
bool IsTheOnlyThread() {
  DIR* const threads = opendir("/proc/self/task");
  if (threads == nullptr) return false;
  int count = 0;
  while (const dirent* entry = readdir(threads)) count += entry->d_name[0] != '.';
  closedir(threads);
  return count == 1;
}

}  // namespace

// False when stopped. Throws when waiting would not help; nothing is changed then.
bool RingCore::Wait(std::unique_lock<std::mutex>& lock, const std::stop_token& stop) {
  const auto limit = std::chrono::milliseconds(config.ring_stall_limit_ms);
  const bool limited = limit.count() > 0;
  const Clock::time_point start = Clock::now();
  // Since when it is stuck and no slot was released.
  Clock::time_point stuck_since = start;
  uint64_t returned = returned_;
  bool stalled = false;
  bool alone = false;
  holders_.Add();
  ++waiters_;
  ++stats_.waits;
  table_.SetWaiting(true);
  WakeAllWhenStuck();
  const auto over = [&] { return table_.is_closed() || !table_.is_full(); };
  while (!over() && !stop.stop_requested() && !stalled && !alone) {
    if (limited && table_.is_stuck()) {
      changed_.wait_until(lock, stop, stuck_since + limit,
                          [&] { return over() || !table_.is_stuck() || returned_ != returned; });
      stalled = table_.is_stuck() && returned_ == returned && Clock::now() >= stuck_since + limit;
    } else {
      changed_.wait_for(lock, stop, kLookAfter,
                        [&] { return over() || (limited && table_.is_stuck()); });
      alone = !over() && Clock::now() >= start + kLookAfter && IsTheOnlyThread();
      stuck_since = Clock::now();
    }
    if (returned_ != returned) stuck_since = Clock::now();
    returned = returned_;
  }
  --waiters_;
  table_.SetWaiting(false);
  stats_.wait_nanoseconds +=
      std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - start).count();
  if (table_.is_closed()) {
    const std::string message =
        absl::StrCat("ring [", id, "] was destroyed while a producer waited for a slot");
    lock.unlock();
    Leave();
    ThrowFailedPrecondition(message);
  }
  (void)holders_.Leave();  // the RingWorkspace is another one
  if (!table_.is_full()) return true;
  if (stop.stop_requested()) return false;
  if (alone) ThrowOnlyWhoWaitsCouldRelease();
  ThrowStalled();
}

void RingCore::ThrowStalled() const {
  table_.ThrowTooManyKept(
      absl::StrCat(" and none was released in ", config.ring_stall_limit_ms, " ms"));
}

// Of a full ring.
void RingCore::ThrowIfOnlyWhoWaitsCouldRelease() const {
  if (!WasNeverAnotherThread() && !table_.OnlyWhoWaitsCouldRelease()) return;
  ThrowOnlyWhoWaitsCouldRelease();
}

void RingCore::ThrowOnlyWhoWaitsCouldRelease() const {
  if (table_.too_many_kept()) table_.ThrowTooManyKept();
  ThrowResourceExhausted(absl::StrCat(
      "ring [", id, "] is full and would wait for ever: only ",
      waiters_ == 0 ? "this thread could release a slot: "
                    : "threads that wait for a slot, as this one would, could release one: ",
      table_.DescribeTaken()));
}

uint64_t RingCore::StuckForReaders() {
  std::lock_guard<std::mutex> lock(mutex_);
  return table_.is_stuck_for_readers() ? returned_ + 1 : 0;
}

void RingCore::ThrowIfStillStuckForReaders(uint64_t stuck) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stuck == returned_ + 1 && table_.is_stuck_for_readers()) ThrowStalled();
}

}  // namespace tidepool
