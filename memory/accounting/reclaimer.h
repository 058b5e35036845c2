// Gives unreferenced memory back to the system: now and then, on demand, and before a budget
// refuses.
//
//   Reclaimer::Global().set_window(absl::Seconds(30));   // a thread of its own, from here on
//   int64_t bytes = Reclaimer::Global().RunNow();
//
// Workspaces, pools and caches register a callback. It may run on any thread, also in the middle of
// an allocation on the thread that holds the callback's own locks, so it must never wait: what is
// busy (a workspace in a cycle, a locked pool) is left alone and 0 returned. A workspace that is in
// a cycle gives back what it can spare when the cycle ends.
//
// What a callback does on its thread happens outside of what it is called in the middle of: it sees
// no scope of the thread, so what it makes goes to the heap and is the process's, as in the
// callbacks of memory_events.h. It may let go of arrays, and enter workspaces that are not in the
// middle of something. Those that are (in a cycle of its thread, in a Trim() or a run of anybody's)
// it may not enter, trim or change (kFailedPrecondition). One that it destroys ends when that is
// over.
//
// Threads: any. Without a window there is no thread. fork(): waits for a run that is under way on another thread, unless that
// forks itself, in the middle of a callback of memory_events.h; callbacks of the Reclaimer may not fork. A child may use
// Global(), which has no window there until it gets one anew. A Reclaimer of one's own may not have a window at a fork.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_RECLAIMER_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_RECLAIMER_H_

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "tidepool/memory/accounting/memory_events.h"

namespace tidepool {

// Who can write memory away, or drop what can be computed again, when giving back what nobody refers to was not enough
// (memory/spill/spillables.h). As a callback it may run in the middle of an allocation: it waits for its device, and for no
// thread that may need memory. Threads: any.
class Spiller {
 public:
  // `wanted` bytes or more, as far as there are any whose going serves the request. Returns how many went. An exception
  // counts as 0.
  virtual int64_t Spill(int64_t wanted, const MemoryRequest& request) = 0;
  // What could not go and why, for the error of a request that is refused: one line; empty: nothing stays.
  virtual std::string DescribePinned() const = 0;

 protected:
  ~Spiller() = default;
};

enum class ReclaimDepth {
  kSpare,     // what the next use will not need
  kPeriodic,  // also all of what was not used since the last periodic run
  kIdle,      // also all of what is not in use at this moment; the next use takes it again
};

class Reclaimer {
 public:
  // Returns the bytes given back. An exception counts as 0, and so does less than 0; more than
  // kMostCountedBytes as that many.
  using Callback = std::function<int64_t(ReclaimDepth)>;

  // Takes the callback off when it dies; waits for a call of it on another thread to end.
  class Registration {
   public:
    Registration() = default;
    Registration(Registration&& other) noexcept
        : reclaimer_(std::exchange(other.reclaimer_, nullptr)), id_(other.id_) {}
    Registration& operator=(Registration&& other) noexcept {
      std::swap(reclaimer_, other.reclaimer_);
      std::swap(id_, other.id_);
      return *this;
    }
    ~Registration() { Reset(); }
    void Reset() noexcept {
      if (Reclaimer* reclaimer = std::exchange(reclaimer_, nullptr)) reclaimer->Unregister(id_);
    }

   private:
    friend class Reclaimer;
    Registration(Reclaimer* reclaimer, uint64_t id) : reclaimer_(reclaimer), id_(id) {}
    Reclaimer* reclaimer_ = nullptr;
    uint64_t id_ = 0;
  };

  struct Stats {
    int64_t periodic_runs = 0;
    int64_t pressure_runs = 0;  // asked for by a budget or a refusing system
    int64_t reclaimed_bytes = 0;
    int64_t spilled_bytes = 0;  // of these: by spillers
  };

  // The one that budgets ask. Never destroyed; its thread ends with the program.
  static Reclaimer& Global();
  Reclaimer() = default;
  ~Reclaimer();
  Reclaimer(const Reclaimer&) = delete;
  Reclaimer& operator=(const Reclaimer&) = delete;

  // `name` is for reports. The callback may register and unregister others, not wait; a
  // null one is kInvalidArgument.
  [[nodiscard]] Registration Register(std::string name, Callback callback);

  // The same of what is asked under pressure alone, after all callbacks and only for what is still missing. `spiller` must stay
  // until then.
  [[nodiscard]] Registration Register(std::string name, Spiller& spiller);
  // Of all spillers, for errors. Not from a spiller.
  std::string DescribePinned();

  // Time between two periodic runs; zero or less: none. Not to be called from a callback. Throws
  // kResourceExhausted where the system refuses the thread; there are no periodic runs then.
  void set_window(absl::Duration window);
  absl::Duration window() const;
  // Off: neither periodic runs nor runs under pressure. RunNow() always works. Initially on.
  void set_enabled(bool enabled);
  bool enabled() const;

  // Gives back all that no array uses and returns how many bytes that was; then malloc does with what it keeps
  // free (glibc's malloc_trim), which is not among them. One thread at a time:
  // others wait, but within a callback of the runtime, where nothing is given back then.
  int64_t RunNow();
  // Gives back until `wanted` bytes are found: the spare ones first, then what is idle, then what spillers can write away. 0 when off, or when called
  // from inside a callback of this one. Tells memory_events.h before and after, for `request`.
  int64_t ReclaimUnderPressure(int64_t wanted, const MemoryRequest& request = {});
  // For a request that was refused: gives back what is missing and tries again, as long as anything
  // comes back, eight times at most (what comes back may be of another owner or device, or taken by
  // others). On the host nothing is given back for more than the machine has. `retry` returns how many bytes it still
  // lacks; 0: it is served. Returns how many came back. Tells memory_events.h before and after, and tries again after each: ten times in all.
  int64_t RetryWhileReclaiming(int64_t missing, absl::FunctionRef<int64_t()> retry,
                               const MemoryRequest& request = {});

  Stats stats() const;

 private:
  struct Entry {
    uint64_t id;
    std::string name;
    Callback callback;
    Spiller* spiller = nullptr;  // in place of a callback
    bool dead = false;
  };

  void Unregister(uint64_t id) noexcept;
  void DropDead() noexcept;
  Registration Add(std::unique_ptr<Entry> entry);
  int64_t Run(ReclaimDepth depth, int64_t wanted) noexcept;
  // `call` is given an entry and how much is wanted still.
  int64_t RunEach(int64_t wanted, absl::FunctionRef<int64_t(Entry&, int64_t)> call) noexcept;
  int64_t RunUnderPressure(int64_t wanted, const MemoryRequest& request);
  void Loop();
  void StopThread() noexcept;
  void TellOfFork() noexcept;  // by this thread
  void LockForFork() noexcept;
  void UnlockAfterFork() noexcept;
  void ForgetThread() noexcept;  // in the child, where there is none

  std::mutex entries_mutex_;  // not held while callbacks run
  std::condition_variable call_ended_, run_ended_;
  // Guarded by it:
  // By their ids, which rise; dead ones go when they are half of all, so that a ring of thousands
  // of slots comes and goes in linear time; while there is a run they stay.
  std::vector<std::unique_ptr<Entry>> entries_;
  size_t dead_entries_ = 0;
  uint64_t next_id_ = 1;
  const void* runner_ = nullptr;  // the thread that runs; null: none
  bool runner_forks_ = false;     // it is within fork(), in the middle of its run
  uint64_t called_ = 0;           // by it, now; 0: none

  std::mutex window_mutex_;  // one change of the window at a time
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Duration window_ = absl::ZeroDuration();  // guarded by mutex_
  bool enabled_ = true;                           // guarded by mutex_
  bool stop_ = false;                             // guarded by mutex_
  Stats stats_;                                   // guarded by mutex_
  std::thread thread_;                            // guarded by window_mutex_
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_RECLAIMER_H_
