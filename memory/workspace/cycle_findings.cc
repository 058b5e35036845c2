#include "tidepool/memory/workspace/cycle_findings.h"

#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

void CycleFindings::TellRequest(const RecordedCycleRequest& request) const noexcept {
  if (MemoryListener* const profile = MemoryListener::Current(MemoryListener::kProfile))
    profile->Requested(request);
  if ((watches_ & MemoryTracing::kRecords) == 0) return;
  if (MemoryListener* const record = MemoryListener::Current(MemoryListener::kRecord))
    record->Requested(request);
}

void CycleFindings::TellBegin(const MemoryOwner& owner, uint64_t generation) noexcept {
  if ((watches_ & MemoryTracing::kRecords) == 0 || told_begin_) return;
  told_begin_ = true;
  MemoryListener::Each([&](MemoryListener& listener) { listener.Began(owner, generation); });
}

void CycleFindings::TellEnd(const MemoryOwner& owner, uint64_t generation) noexcept {
  if (!std::exchange(told_begin_, false)) return;
  MemoryListener::Each([&](MemoryListener& listener) { listener.Left(owner, generation); });
}

void CycleFindings::Outlives(const Buffer& buffer) noexcept {
  if ((watches_ & MemoryTracing::kRecords) != 0 && buffer.IsAlive()) {
    MemoryListener::Each([&](MemoryListener& listener) { listener.Gone(buffer); });
  }
  if (!keeps_sites() || buffer.request.slot >= traces_.size()) return;
  try {
    std::lock_guard<std::mutex> lock(origins_mutex_);
    origins_[buffer.id] = traces_[buffer.request.slot];
    has_origins_.store(true, std::memory_order_relaxed);
  } catch (const std::exception&) {
    // An error that uses it will not say where it was made.
  }
}

void CycleFindings::Erase(const Buffer& buffer) noexcept {
  std::lock_guard<std::mutex> lock(origins_mutex_);
  origins_.erase(buffer.id);
  has_origins_.store(!origins_.empty(), std::memory_order_relaxed);
}

std::string CycleFindings::DescribeOrigin(const Buffer& buffer) const {
  if (!has_origins_.load(std::memory_order_relaxed)) return "";
  std::lock_guard<std::mutex> lock(origins_mutex_);
  const auto found = origins_.find(buffer.id);
  if (found == origins_.end()) return "";
  return absl::StrCat("made for ", found->second.Owner(), " at ", found->second.Site());
}

void CycleFindings::Leaks(const Buffer& buffer) noexcept {
  ++leaks_.count;
  leaks_.bytes += static_cast<int64_t>(buffer.request.bytes);
  if (leaks_.arrays.size() >= LeakReport::kMostArrays) return;
  try {
    LeakedArray leaked{buffer.request.slot, buffer.bytes, "", ""};
    if (keeps_sites() && buffer.request.slot < traces_.size()) {
      leaked.owner = traces_[buffer.request.slot].Owner();
      leaked.site = traces_[buffer.request.slot].Site();
    }
    leaks_.arrays.push_back(std::move(leaked));
  } catch (const std::exception&) {
    // Counted all the same.
  }
}

void CycleFindings::CannotLearn(const char* why) noexcept {
  try {
    cannot_learn_ = why;
  } catch (const std::exception&) {
  }
}

void CycleFindings::Report(uint64_t generation, CycleDetector::Levels levels,
                           Device memory_device) noexcept {
  if (leaks_.count > 0 || leaks_.blocks > 0) {
    LeakReport report;
    std::swap(report, leaks_);
    report.generation = generation;
    try {
      report.workspace = workspace_;
    } catch (const std::exception&) {
    }
    detector_.OnLeaks(report);
  }
  if (!cannot_learn_.empty()) {
    detector_.OnCannotLearn(generation, cannot_learn_);
    cannot_learn_.clear();
  }
  MemoryTracker& tracker = MemoryTracker::Global();
  detector_.OnCycleEnd(generation, levels, tracker.changes(),
                       [&] { return tracker.CurrentBytes(memory_device, MemoryKind::kExternal); });
}

}  // namespace tidepool
