#include "tidepool/memory/workspace/cycle_detector.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/provider/fork_handlers.h"

namespace tidepool {
namespace {

template <typename Report>
class Sink {
 public:
  using Function = std::function<void(const Report&)>;

  void Set(Function function) {
    auto made = function ? std::make_shared<Function>(std::move(function)) : nullptr;
    std::lock_guard<std::mutex> lock(mutex_);
    function_ = std::move(made);
  }
  // True when there is one. It may set another meanwhile.
  bool Call(const Report& report) {
    std::shared_ptr<Function> function;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      function = function_;
    }
    if (function == nullptr) return false;
    try {
      (*function)(report);
    } catch (...) {
      // A cycle ends here; there is nobody to throw to.
    }
    return true;
  }

  void LockForFork() { mutex_.lock(); }
  void UnlockAfterFork() { mutex_.unlock(); }

 private:
  std::mutex mutex_;
  std::shared_ptr<Function> function_;
};

Sink<LeakReport>& LeakSink() {
  static auto* const sink = new Sink<LeakReport>;
  return *sink;
}
Sink<CycleFinding>& FindingSink() {
  static auto* const sink = new Sink<CycleFinding>;
  return *sink;
}

// Before there are threads, for a child of fork() to have them.
[[maybe_unused]] const bool handles_forks = [] {
  static constexpr auto kUnlock = [] {
    FindingSink().UnlockAfterFork();
    LeakSink().UnlockAfterFork();
  };
  static constinit const ForkHandlers handlers{[] {
                                                 LeakSink().LockForFork();
                                                 FindingSink().LockForFork();
                                               },
                                               kUnlock, kUnlock};
  HandleFork(ForkLevel::kSinks, &handlers);
  LeakSink();
  FindingSink();
  return true;
}();

}  // namespace

std::string LeakReport::ToString() const {
  std::string out = absl::StrCat("workspace [", workspace, "], generation ", generation, ": ");
  if (count > 0 || blocks == 0) {
    absl::StrAppend(&out, count, count == 1 ? " array of " : " arrays of ", bytes, " bytes");
  }
  if (blocks > 0) {
    absl::StrAppend(&out, count > 0 ? " and " : "", blocks,
                    blocks == 1 ? " block of " : " blocks of ", block_bytes,
                    " bytes of containers");
  }
  absl::StrAppend(&out, " outlived the cycle");
  for (const LeakedArray& array : arrays) {
    absl::StrAppend(&out, "\n  request ", array.request, ", ", array.bytes, " bytes");
    if (!array.owner.empty()) absl::StrAppend(&out, ", made for ", array.owner);
    if (!array.site.empty()) absl::StrAppend(&out, ", at ", array.site);
  }
  if (static_cast<int64_t>(arrays.size()) < count) absl::StrAppend(&out, "\n  ...");
  return out + "\n";
}

void SetLeakSink(std::function<void(const LeakReport&)> sink) { LeakSink().Set(std::move(sink)); }
void SetCycleFindingSink(std::function<void(const CycleFinding&)> sink) {
  FindingSink().Set(std::move(sink));
}

void FirstFinding::Keep(const std::string& text) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (taken_ || !text_.empty()) return;
  text_ = text;
  has_.store(true, std::memory_order_release);
}

std::string FirstFinding::Take() {
  std::lock_guard<std::mutex> lock(mutex_);
  taken_ = true;
  has_.store(false, std::memory_order_relaxed);
  return std::exchange(text_, std::string());
}

void CycleDetector::OnLeaks(const LeakReport& report) noexcept {
  try {
    const bool taken = LeakSink().Call(report);
    if (!enabled_) return;
    if (taken) first_->Tell();
    const std::string text = report.ToString();
    const bool traced = !report.arrays.empty() && !report.arrays[0].site.empty();
    if (report.count == 0) {
      return Find(CycleFindingKind::kLeakedBlocks, report.generation,
                  absl::StrCat(text.substr(0, text.find('\n')),
                               "; they stay as they are until they are released"));
    }
    Find(CycleFindingKind::kLeakedArrays, report.generation,
         absl::StrCat(text.substr(0, text.find('\n')),
                      traced ? absl::StrCat("; the first was made at ", report.arrays[0].site)
                             : "; MemoryTracing::Enable() says where they were made"));
  } catch (const std::exception&) {
    // No memory for a report: the count stays in the statistics.
  }
}

void CycleDetector::OnReentry(uint64_t generation, const std::string& through) noexcept {
  if (!enabled_) return;
  try {
    Find(CycleFindingKind::kReentry, generation,
         absl::StrCat("workspace [", workspace_, "], generation ", generation,
                      ": entered again from inside the scope of workspace [", through,
                      "]; use BorrowScope to allocate from an outer workspace"));
  } catch (const std::exception&) {
  }
}

void CycleDetector::OnCannotLearn(uint64_t generation, const std::string& why) noexcept {
  if (!enabled_) return;
  try {
    Find(CycleFindingKind::kCannotLearn, generation,
         absl::StrCat("workspace [", workspace_, "], generation ", generation,
                      ": nothing was learned from the cycle: ", why));
  } catch (const std::exception&) {
  }
}

void CycleDetector::OnNeverLeft(uint64_t generation) noexcept {
  if (!enabled_) return;
  try {
    first_->Tell();  // its destructor prints a line already
    Find(CycleFindingKind::kNeverLeft, generation,
         absl::StrCat("workspace [", workspace_, "], generation ", generation,
                      ": destroyed while open"));
  } catch (const std::exception&) {
  }
}

void CycleDetector::EndStreaks() noexcept {
  std::fill(std::begin(streaks_), std::end(streaks_), 0);
  growing_ = false;
}

void CycleDetector::Compare(uint64_t generation, const Levels& levels) noexcept {
  struct Watched {
    CycleFindingKind kind;
    int64_t before, now;
    const char* what;
  };
  const Watched watched[] = {
      {CycleFindingKind::kGrowingSpills, last_.spilled, levels.spilled, "spilled bytes"},
      {CycleFindingKind::kGrowingUnreferenced, last_.unreferenced, levels.unreferenced,
       "bytes held by the workspace"},
      {CycleFindingKind::kGrowingWorkspaces, last_.workspaces, levels.workspaces,
       "workspaces of this thread"},
      {CycleFindingKind::kGrowingExternal, last_.external, levels.external, "external bytes"},
  };
  last_ = levels;
  growing_ = true;
  for (int i = 0; i < 4; ++i) {
    const Watched& w = watched[i];
    streaks_[i] = w.now > w.before ? streaks_[i] + 1 : 0;
    if (streaks_[i] < kGrowingCycles) continue;
    streaks_[i] = 0;
    try {
      Find(w.kind, generation,
           absl::StrCat("workspace [", workspace_, "], generation ", generation, ": ", w.what,
                        " have grown in each of the last ", kGrowingCycles, " cycles, to ", w.now));
    } catch (const std::exception&) {
    }
  }
}

void CycleDetector::Find(CycleFindingKind kind, uint64_t generation, std::string text) noexcept {
  ++findings_;
  try {
    first_->Keep(text);
    if (FindingSink().Call({kind, workspace_, generation, text})) first_->Tell();
  } catch (const std::exception&) {
  }
  if (first_->Tell()) std::fprintf(stderr, "tidepool: %s\n", text.c_str());
}

}  // namespace tidepool
