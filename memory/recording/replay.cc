#include "tidepool/memory/recording/replay.h"

#include <malloc.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_snapshot.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/accounting/system_counters.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/recording/replay_places.h"

namespace tidepool {
namespace {

using What = RecordEvent::What;
using Step = ReplayScript::Step;

constexpr size_t kLeastAlignment = 64;   // of workspaces
constexpr size_t kMostAlignment = 4096;  // that they are asked for

// Bytes; a line of /proc/self/status, whose name ends with a colon. 0 where there is none.
int64_t StatusBytes(const char* name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;) {
    int64_t kib = 0;
    if (word == name && status >> kib) return kib * 1024;
  }
  return 0;
}

// One replay: what its threads share.
class Runner {
 public:
  Runner(const ReplayScript& script, internal::ReplayPlace& place)
      : script_(script),
        place_(place),
        blocks_(script.blocks().size()),
        waits_(script.cycles().size()) {
    for (size_t i = 0; i < waits_.size(); ++i) {
      waits_[i].store(script.cycles()[i].other_frees, std::memory_order_relaxed);
    }
  }

  ReplayRun Run(Device device) {
    const size_t count = script_.threads().size();
    std::vector<std::thread> threads;
    threads.reserve(count);
    try {
      for (size_t i = 0; i < count; ++i)
        threads.emplace_back([this, i] { Thread(script_.threads()[i]); });
    } catch (const std::system_error& error) {
      abandoned_.store(true, std::memory_order_relaxed);
      started_.store(true, std::memory_order_release);
      started_.notify_all();
      for (std::thread& thread : threads) thread.join();
      ThrowErrno(error.code().value(),
                 absl::StrCat("cannot start thread ", threads.size() + 1, " of ", count));
    }
    while (ready_.load(std::memory_order_acquire) < count) sched_yield();
    const int64_t before = StatusBytes("VmRSS:");
    std::ofstream("/proc/self/clear_refs") << "5\n";
    const int64_t faults = PageFaults();
    const auto start = std::chrono::steady_clock::now();
    started_.store(true, std::memory_order_release);
    started_.notify_all();
    while (done_.load(std::memory_order_acquire) < count) {
      const size_t done = done_.load(std::memory_order_acquire);
      if (done < count) done_.wait(done);
    }
    ReplayRun run;
    run.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    run.page_faults = PageFaults() - faults;
    run.peak_bytes = std::max<int64_t>(StatusBytes("VmHWM:") - before, 0);
    ended_.store(true, std::memory_order_release);
    ended_.notify_all();
    for (std::thread& thread : threads) thread.join();
    if (device != Host()) {
      for (const DeviceMemory& memory : MemoryTracker::Global().Snapshot().devices) {
        if (memory.device == device) run.peak_bytes = memory.total.peak_bytes;
      }
    }
    run.refused = refused_.load(std::memory_order_relaxed);
    place_.AddCounts(run);
    ReleaseRest();
    return run;
  }

 private:
  // In the place of a block that was refused.
  static void* Refused() { return reinterpret_cast<void*>(uintptr_t{1}); }

  void Thread(const std::vector<Step>& steps) {
    const std::unique_ptr<internal::ReplayThread> thread = place_.ForThread();
    ready_.fetch_add(1, std::memory_order_release);
    started_.wait(false);
    if (abandoned_.load(std::memory_order_relaxed)) return;
    for (const Step& step : steps) {
      switch (step.what) {
        case Step::What::kAllocate:
          Allocate(*thread, step.index);
          break;
        case Step::What::kFree:
          Release(*thread, step.index);
          break;
        case Step::What::kCycleBegin:
          thread->BeginCycle(script_.cycles()[step.index]);
          break;
        case Step::What::kCycleEnd:
          WaitFor([&] { return waits_[step.index].load(std::memory_order_acquire) == 0; });
          thread->EndCycle();
          break;
      }
    }
    done_.fetch_add(1, std::memory_order_release);
    done_.notify_all();
    ended_.wait(false);  // what it has cached stays until all has been measured
  }

  void Allocate(internal::ReplayThread& thread, uint32_t index) {
    const ReplayScript::Block& block = script_.blocks()[index];
    void* data = nullptr;
    void* made = nullptr;
    try {
      made = thread.Allocate(block, &data);
    } catch (const std::exception&) {
      // Out of memory: the rest goes on without it.
    }
    if (made == nullptr) {
      refused_.fetch_add(1, std::memory_order_relaxed);
      made = Refused();
    } else if (place_.writes_bytes()) {
      for (size_t at = 0; at < block.bytes; at += 4096) static_cast<volatile char*>(data)[at] = 1;
    }
    blocks_[index].store(made, std::memory_order_release);
  }

  void Release(internal::ReplayThread& thread, uint32_t index) {
    void* block = nullptr;
    WaitFor([&] { return (block = blocks_[index].load(std::memory_order_acquire)) != nullptr; });
    blocks_[index].store(nullptr, std::memory_order_relaxed);
    const ReplayScript::Block& as = script_.blocks()[index];
    if (block != Refused()) thread.Release(block, as);
    if (as.wakes != ReplayScript::kNone) waits_[as.wakes].fetch_sub(1, std::memory_order_acq_rel);
  }

  template <typename Condition>
  void WaitFor(const Condition& condition) {
    for (int i = 0; !condition(); ++i) {
      if (i > 100) sched_yield();
    }
  }

  // What the record has not released.
  void ReleaseRest() {
    const std::unique_ptr<internal::ReplayThread> thread = place_.ForThread();
    for (uint32_t i = 0; i < blocks_.size(); ++i) {
      void* const block = blocks_[i].exchange(nullptr, std::memory_order_acquire);
      if (block != nullptr && block != Refused()) thread->Release(block, script_.blocks()[i]);
    }
  }

  const ReplayScript& script_;
  internal::ReplayPlace& place_;
  std::vector<std::atomic<void*>> blocks_;    // null: not there yet, or any more
  std::vector<std::atomic<uint32_t>> waits_;  // releases that a cycle's end waits for
  std::atomic<size_t> ready_{0}, done_{0};
  std::atomic<bool> started_{false}, ended_{false};
  std::atomic<bool> abandoned_{false};  // not all threads could be started
  std::atomic<int64_t> refused_{0};
};

// What a child tells.
struct Told {
  bool ran = false;
  ReplayRun run;
  int64_t system_calls = -1;
  double planning_seconds = -1;
  char text[256] = {};
};

Told RunHere(const ReplayScript& script, const std::string& allocator, Device device, bool counts) {
  Told told;
  try {
    std::string reason;
    if (counts && !StartCountingMemorySystemCalls(&reason)) {
      std::snprintf(told.text, sizeof(told.text), "%s", reason.c_str());
      return told;
    }
    std::string absent;
    const auto place = internal::MakeReplayPlace(allocator, script, device, &absent);
    if (place == nullptr) {
      std::snprintf(told.text, sizeof(told.text), "%s", absent.c_str());
      return told;
    }
    if (counts) place->WatchPlanning();
    const auto runner = std::make_unique<Runner>(script, *place);
    PrefaultProgram();  // what grows from here on is memory
    malloc_trim(0);     // nothing is served from what was there before
    const int64_t before = MemorySystemCalls();
    told.run = runner->Run(device);
    if (counts) {
      told.system_calls = MemorySystemCalls() - before;
      told.planning_seconds = place->planning_seconds();
    }
    told.ran = true;
  } catch (const std::exception& error) {
    std::snprintf(told.text, sizeof(told.text), "%s", error.what());
  }
  return told;
}

Told RunInAnotherProcess(const ReplayScript& script, const std::string& allocator, Device device,
                         bool counts) {
  int ends[2];
  if (pipe(ends) != 0) ThrowErrno(errno, "replay: pipe");
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) ThrowErrno(errno, "replay: fork");
  if (child == 0) {
    close(ends[0]);
    const Told told = RunHere(script, allocator, device, counts);
    const bool written = write(ends[1], &told, sizeof(told)) == sizeof(told);
    std::_Exit(written ? 0 : 1);
  }
  close(ends[1]);
  Told told;
  size_t got = 0;
  while (got < sizeof(told)) {
    const ssize_t more = read(ends[0], reinterpret_cast<char*>(&told) + got, sizeof(told) - got);
    if (more < 0 && errno == EINTR) continue;
    if (more <= 0) break;
    got += static_cast<size_t>(more);
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (got < sizeof(told)) {
    ThrowInternal(absl::StrCat("replay on ", allocator, ": its process ended ",
                               WIFSIGNALED(status)
                                   ? absl::StrCat("by signal ", WTERMSIG(status))
                                   : absl::StrCat("with status ", WEXITSTATUS(status)),
                               ", expected a result"));
  }
  return told;
}

}  // namespace

ReplayScript::ReplayScript(const Record& record)
    : names_(record.names), events_(record.events.size()) {
  if (record.threads > kMostReplayThreads) {
    ThrowResourceExhausted(absl::StrCat("replay: found a record of ", record.threads,
                                        " threads, expected at most ", kMostReplayThreads));
  }
  const RecordedBlocks matched = MatchBlocks(record);
  const RecordedCycles found = FindCycles(record, matched);
  by_marks_ = found.by_marks;
  live_bound_ = matched.live_bound - std::min(matched.live_bound, matched.from_before);
  left_open_ = matched.never_freed;
  const auto most = static_cast<uint64_t>(MachineMemoryBytes()) / 2;
  if (live_bound_ > most) {
    ThrowResourceExhausted(absl::StrCat("replay: found a record that had ", live_bound_,
                                        " bytes alive at once, expected at most ", most,
                                        ", half of this machine's memory"));
  }
  cycles_.reserve(found.cycles.size());
  for (const RecordedCycle& cycle : found.cycles)
    cycles_.push_back({cycle.name, 0, kLeastAlignment});
  threads_.resize(record.threads);
  blocks_.resize(matched.blocks.size());

  // The cycles that are open on each thread, the innermost last.
  std::vector<std::vector<uint32_t>> open(record.threads);
  size_t next = 0;
  const auto end_until = [&](uint32_t thread, uint32_t at) {
    while (!open[thread].empty() && found.cycles[open[thread].back()].end <= at) {
      threads_[thread].push_back({Step::What::kCycleEnd, open[thread].back()});
      open[thread].pop_back();
    }
  };
  for (uint32_t i = 0; i < record.events.size(); ++i) {
    const RecordEvent& event = record.events[i];
    std::vector<Step>& steps = threads_[event.thread];
    end_until(event.thread, i);
    for (; next < found.cycles.size() && found.cycles[next].begin == i; ++next) {
      steps.push_back({Step::What::kCycleBegin, static_cast<uint32_t>(next)});
      open[event.thread].push_back(static_cast<uint32_t>(next));
    }
    const uint32_t index = matched.block_of[i];
    if (event.what == What::kAllocate) {
      const RecordedBlock& block = matched.blocks[index];
      if (block.end_is_guessed) ++left_open_;
      const uint32_t cycle = found.cycle_of[index];
      const bool in_cycle = cycle != RecordedCycles::kNone && !block.end_is_guessed;
      blocks_[index] = {event.bytes, event.alignment_log2, in_cycle, kNone};
      if (in_cycle) {
        const size_t alignment = size_t{1} << event.alignment_log2;
        if (alignment <= kMostAlignment) {
          cycles_[cycle].alignment = std::max(cycles_[cycle].alignment, alignment);
        }
        if (record.events[block.freed].thread != event.thread) {
          ++cycles_[cycle].other_frees;
          blocks_[index].wakes = cycle;
        }
      }
      steps.push_back({Step::What::kAllocate, index});
    } else if (event.what == What::kFree && index != RecordedBlock::kNever) {
      steps.push_back({Step::What::kFree, index});
    }
  }
  for (uint32_t thread = 0; thread < record.threads; ++thread) end_until(thread, UINT32_MAX);
}

ReplayRun ReplayHere(const ReplayScript& script, const std::string& allocator, Device device) {
  const Told told = RunHere(script, allocator, device, /*counts=*/false);
  if (!told.ran) ThrowFailedPrecondition(absl::StrCat("replay on ", allocator, ": ", told.text));
  return told.run;
}

ReplayResult Replay(const ReplayScript& script, const std::string& allocator,
                    const ReplayOptions& options) {
  if (options.runs < 1) {
    ThrowInvalidArgument(
        absl::StrCat("replay: found ", options.runs, " runs, expected at least 1"));
  }
  ReplayResult result;
  result.allocator = allocator;
  {
    std::string absent;
    if (internal::MakeReplayPlace(allocator, script, options.device, &absent) == nullptr) {
      result.absent = absent;
      return result;
    }
  }
  for (int i = 0; i < options.runs; ++i) {
    const Told told = RunInAnotherProcess(script, allocator, options.device, /*counts=*/false);
    if (!told.ran) ThrowInternal(absl::StrCat("replay on ", allocator, ": ", told.text));
    result.runs.push_back(told.run);
  }
  std::sort(result.runs.begin(), result.runs.end(),
            [](const ReplayRun& a, const ReplayRun& b) { return a.seconds < b.seconds; });
  if (options.count_system_calls) {
    const Told told = RunInAnotherProcess(script, allocator, options.device, /*counts=*/true);
    result.system_calls = told.ran ? told.system_calls : -1;
    result.why = told.text;
    if (told.ran) result.planning_seconds = told.planning_seconds;
  }
  return result;
}

}  // namespace tidepool
