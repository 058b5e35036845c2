#include "tidepool/memory/workspace/workspace_pages.h"

#include <algorithm>
#include <atomic>
#include <new>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/machine_memory.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

// An initial_size may be far more than the first cycles use. So much of it is touched when it is
// taken; the rest at first use, and at the end of a cycle up to where that one and its plan reach.
constexpr size_t kPrefaultedInitialBytes = size_t{64} << 20;
// Of the host, so much more may be touched at once without a look at what there is.
constexpr size_t kTouchedUnseen = size_t{64} << 20;
// And so much beyond what the process had in memory at some time.
constexpr size_t kTouchedBeyond = size_t{256} << 20;
// The most that the process had in memory when that was raised by touching ahead, and by how much in all since use raised it.
constinit std::atomic<int64_t> most_when_touched{0};
constinit std::atomic<size_t> raised_by_touching{0};
// What the Reclaimer gives back between two looks at who waits: tens of milliseconds at most.
constexpr size_t kReclaimStepBytes = size_t{256} << 20;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }
size_t RoundDown(size_t n, size_t unit) { return n & ~(unit - 1); }

// How much of `bytes` may be touched before it is used. Memory that was asked for may be for tables that stay nearly
// empty: it is touched as far as the process had as much before, and never so that others are left without. What is touched
// beyond that raises what the process had, so it is bounded in all, until use has raised it much further: else each large table
// would let the next one be touched further.
size_t MostTouched(size_t bytes) {
  if (bytes <= kTouchedUnseen) return bytes;
  const ResidentMemory resident = ResidentMemoryOfProcess();
  const auto had = static_cast<size_t>(resident.most_bytes - resident.bytes);
  const auto available = static_cast<size_t>(AvailableMemoryBytes());
  size_t raised = raised_by_touching.load(std::memory_order_relaxed);
  if (resident.most_bytes >
      most_when_touched.load(std::memory_order_relaxed) + static_cast<int64_t>(kTouchedUnseen)) {
    raised = 0;
  }
  const size_t beyond = kTouchedBeyond - std::min(raised, kTouchedBeyond);
  const size_t touched = std::min({bytes, had + beyond, available / 2});
  if (touched > had) {
    raised_by_touching.store(raised + (touched - had), std::memory_order_relaxed);
    most_when_touched.store(resident.bytes + static_cast<int64_t>(touched),
                            std::memory_order_relaxed);
  }
  return touched;
}

// The workspace decides itself what of its pages to touch ahead.
PagesOptions OptionsOf(const WorkspaceConfig& config, MemoryOwner& owner) {
  PagesOptions options;
  options.large_pages = config.huge_pages;
  options.fits = true;  // a step of 2.2 MiB would take 4 of a budget
  options.prefault = false;
  options.owner = &owner;
  return options;
}

}  // namespace

WorkspacePages::WorkspacePages(const std::string& id, const WorkspaceConfig& config,
                               size_t alignment, DeviceProvider& provider, MemoryOwner& owner,
                               OwnedBytes& owned, WorkspaceCounters& counters)
    : id_(id),
      config_(config),
      alignment_(alignment),
      host_readable_(provider.traits().host_readable),
      counters_(counters),
      owned_(owned),
      pages_(OptionsOf(config, owner), provider) {}

void WorkspacePages::Prepare(size_t touched) {
  if (file_ != nullptr) file_->CheckLength(id_);
  if (lacks_initial_) TakeInitial();
  TakeAgain(touched);
}

void WorkspacePages::TakeInitial() {
  if (!config_.passes_through() && config_.debug_mode != DebugMode::kGuard) {
    size_t wanted = config_.initial_size;
    if (wanted > 0 && config_.policy_allocation == AllocationPolicy::kOverallocate) {
      const size_t extra = config_.overallocation_limit.ExtraFor(wanted);
      wanted = wanted <= SIZE_MAX - extra ? wanted + extra : SIZE_MAX;
    }
    if (config_.max_size > 0) wanted = std::min(wanted, config_.max_size);
    // Requests have multiples of the alignment, and under kFail no more than was asked for.
    if (config_.policy_spill == SpillPolicy::kFail || wanted == config_.max_size) {
      wanted = RoundDown(wanted, alignment_);
    }
    if (config_.policy_location == LocationPolicy::kMmap) {
      file_ = std::make_unique<MappedFile>(id_, config_.temp_file_path, wanted, config_.max_size,
                                           alignment_);
      wanted = file_->bytes();
      Set(file_->base(), wanted, wanted);
    } else if (wanted > 0) {
      Resize(wanted);
      Prefault(std::min(wanted, kPrefaultedInitialBytes));
    }
    initial_bytes_ = wanted;
  }
  lacks_initial_ = false;
}

void WorkspacePages::TakeAgain(size_t touched) {
  if (!lacks_pages_) return;
  Resize(size());
  Prefault(touched);
}

void WorkspacePages::Shrink(size_t bytes) {
  if (lacks_pages_) {
    counters_.size = bytes;
  } else {
    Resize(bytes);
  }
}

void WorkspacePages::Resize(size_t bytes) {
  if (bytes > SIZE_MAX / 4) {
    ThrowOutOfMemory(pages_.RequestOf(bytes), "the size of memory",
                     absl::StrCat("workspace [", id_, "]: pages of ", bytes, " bytes cannot exist"),
                     MemoryTracker::Global().Snapshot().ToString());
  }
  size_t capacity = (bytes + alignment_ - 1) & ~(alignment_ - 1);
  if (config_.max_size > 0) capacity = std::min(capacity, RoundDown(config_.max_size, alignment_));
  // The system may give these addresses to others.
  if (capacity_ > 0) Unpoison(base_, capacity_);
  if (file_ != nullptr) {
    file_.reset();  // a file is mapped as a whole or not at all
  } else {
    try {
      pages_.Resize(capacity, PagesMove::kGivesFirst);
    } catch (...) {
      AfterRefusal();
      throw;
    }
  }
  Set(pages_.base(), std::min(bytes, capacity), capacity);
  if (bytes >= initial_bytes_) lacks_initial_ = false;  // taking that would make them smaller
}

// The pages may be as before, or gone to make room for larger ones that were then refused.
void WorkspacePages::AfterRefusal() noexcept {
  if (pages_.committed_bytes() == 0 && capacity_ > 0) {
    base_ = pages_.base();
    capacity_ = 0;
    lacks_pages_ = true;
  }
  if (capacity_ > 0) Poison(base_, capacity_);
  ReportOwned();
}

void WorkspacePages::TakeBack() noexcept {
  Unpoison(base_, capacity_);
  Set(nullptr, 0, 0);
}

void WorkspacePages::Set(std::byte* base, size_t size, size_t capacity) noexcept {
  base_ = base;
  counters_.size = size;
  capacity_ = capacity;
  lacks_pages_ = false;
  left_untouched_ = 0;
  if (capacity > 0) Poison(base, capacity);
  ReportOwned();
}

void WorkspacePages::Destroy() {
  Resize(0);
  lacks_initial_ = true;
}

void WorkspacePages::Prefault(size_t bytes) noexcept {
  if (!config_.prefault || file_ != nullptr || bytes == 0 || capacity_ == 0) return;
  bytes = std::min(bytes, capacity_);
  if (bytes <= pages_.prefaulted_bytes() || left_untouched_ > 0) return;
  const size_t more = bytes - pages_.prefaulted_bytes();
  const size_t touched = pages_.provider().device() == Host() ? MostTouched(more) : more;
  left_untouched_ = more - touched;
  if (touched > 0) pages_.Prefault(bytes - left_untouched_);
}

// Of one range as much as is wanted. What is above all that is in use is one more.
void WorkspacePages::MakeHoles(TwoEndedRanges& ranges, size_t bytes, size_t least) noexcept {
  if (file_ != nullptr) return;
  ranges.Merge();
  const size_t before = pages_.committed_bytes();
  for (;;) {
    const size_t given = before - pages_.committed_bytes();
    if (given >= bytes) break;
    const size_t wanted = std::max(RoundUp(bytes - given, alignment_), least);
    const size_t above = ranges.end() - ranges.top(), largest = ranges.largest_free();
    if (std::max(above, largest) < least) break;
    if (largest < wanted && above > largest) {
      const size_t begin = ranges.end() - std::min(above, wanted);
      if (!pages_.MakeHole(begin, ranges.end() - begin)) break;
      ranges.SetEnd(begin);
      continue;
    }
    try {
      ranges.Reserve();
    } catch (const std::bad_alloc&) {
      break;
    }
    size_t offset = 0;
    const size_t hole = std::min(largest, wanted);
    const TwoEndedRanges::Range range = ranges.Take(hole, &offset);
    if (range == TwoEndedRanges::Range::kNone) break;
    if (!pages_.MakeHole(offset, hole)) {
      ranges.Give(range, hole);
      break;
    }
    ranges.Lose();
  }
  ReportOwned();
}

void WorkspacePages::FillHoles() noexcept {
  try {
    while (has_holes()) pages_.FillFirstHole();
    ReportOwned();
  } catch (const Error&) {
    Reclaim([] { return false; });
  } catch (const std::bad_alloc&) {
    Reclaim([] { return false; });
  }
}

void WorkspacePages::ReclaimStep() noexcept {
  if (capacity_ > 0) Unpoison(base_, capacity_);
  capacity_ = 0;  // size() stays: what the next cycle takes again
  lacks_pages_ = true;
  const size_t committed = pages_.committed_bytes();
  if (committed > kReclaimStepBytes) pages_.Resize(committed - kReclaimStepBytes);
  // The last step, and where a part cannot be given back.
  if (committed <= kReclaimStepBytes || pages_.committed_bytes() >= committed) pages_.Resize(0);
  base_ = pages_.base();
  ReportOwned();
}

void WorkspacePages::ReportOwned() noexcept {
  owned_.Set(pages_.committed_bytes() + (file_ != nullptr ? file_->mapped_bytes() : 0));
  counters_.relocations = pages_.relocations();
}

}  // namespace tidepool
