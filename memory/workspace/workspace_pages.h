// Where a workspace's requests lie: pages of its device, or a mapped file.
//
// The pages have a size, which is what was configured or learned, and are there or not: the Reclaimer
// may have taken those of a closed workspace, and Destroy() lets an initial size be reserved again.
// Prepare() brings them back before a cycle. Nothing in them survives between cycles, so that they may
// move when they grow.
//
// Errors: OutOfMemoryError, and what MappedFile throws. Threads: whoever is inside the workspace's gate.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_PAGES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_PAGES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/provider/mapped_file.h"
#include "tidepool/memory/provider/pages.h"
#include "tidepool/memory/provider/poison.h"
#include "tidepool/memory/workspace/owned_bytes.h"
#include "tidepool/memory/workspace/two_ended_ranges.h"
#include "tidepool/memory/workspace/workspace_config.h"
#include "tidepool/memory/workspace/workspace_counters.h"

namespace tidepool {

// A smaller hole costs more than it gives, where nothing is refused.
inline constexpr size_t kLeastHole = size_t{1} << 20;
// So much beside what is needed is not worth giving memory back in the middle of a cycle.
inline constexpr size_t kWorthHoles = size_t{8} << 20;
// Pages for so much alive, with gaps between: where these do not serve it, larger ones might not either.
inline size_t WorthHoles(size_t alive) {
  return std::clamp(alive / 8, size_t{1} << 20, kWorthHoles);
}
inline size_t WithGaps(size_t alive) { return alive + std::max(alive / 16, WorthHoles(alive)); }

class WorkspacePages {
 public:
  // All of these must live as long. Takes nothing yet.
  WorkspacePages(const std::string& id, const WorkspaceConfig& config, size_t alignment,
                 DeviceProvider& provider, MemoryOwner& owner, OwnedBytes& owned,
                 WorkspaceCounters& counters);

  std::byte* base() const { return base_; }
  size_t capacity() const { return capacity_; }  // usable bytes, a multiple of the alignment
  size_t size() const { return counters_.size; }
  // What initial_size came to: the least that is kept.
  size_t initial_bytes() const { return initial_bytes_; }
  bool is_mapped_file() const { return file_ != nullptr; }

  // Before a cycle. Does nothing in the usual case, which needs_preparing() tells. `touched`: so much
  // of pages that are taken again is touched at once, where the configuration wants that.
  bool needs_preparing() const { return lacks_initial_ || lacks_pages_ || file_ != nullptr; }
  void Prepare(size_t touched);
  // What was learned is not there, and requests are served all the same.
  bool may_do_without() const {
    return lacks_pages_ && !lacks_initial_ && size() > initial_bytes_ &&
           config_.policy_spill != SpillPolicy::kFail;
  }
  // What the Reclaimer took.
  void TakeAgain(size_t touched);

  // Between cycles, at once; Prefault() what is surely used. Errors leave a workspace whose next cycle takes pages of the size it had.
  void Resize(size_t bytes);
  // Resize() to nothing, and the initial size is to be reserved again.
  void Destroy();
  // To a smaller size; pages that are not there are taken at that size when they are next needed.
  void Shrink(size_t bytes);

  // Within a cycle: memory of what `ranges`, of these pages, has free goes back, `bytes` of it or as much as there
  // is in pieces worth it. Nobody gets these ranges until FillHoles(), which comes after the cycle and before
  // anything else here; where it is refused, the pages are taken again before the next one.
  // `least`: of such a piece.
  void MakeHoles(TwoEndedRanges& ranges, size_t bytes, size_t least = kLeastHole) noexcept;
  bool has_holes() const { return pages_.hole_end() > 0; }
  void FillHoles() noexcept;

  // Memory of others, for a cycle of a workspace without pages of its own; and its end.
  void Lend(std::byte* base, size_t bytes) noexcept { Set(base, bytes, bytes); }
  void TakeBack() noexcept;

  // Touches the first bytes, where the configuration wants that. Of the host's memory not more than is surely
  // there: what was asked for need never have been touched by who asked.
  void Prefault(size_t bytes) noexcept;
  // What of that was left to who uses it, since the pages had another size.
  size_t left_untouched() const { return left_untouched_; }
  // Gives the pages back, some at a time from the end on, until `enough()`.
  template <typename Enough>
  void Reclaim(const Enough& enough) noexcept {
    while (capacity_ > 0 || pages_.committed_bytes() > 0) {
      ReclaimStep();
      if (enough()) return;
    }
  }

  // Only addresses of the host's own have an AddressSanitizer shadow.
  void Poison(const std::byte* data, size_t bytes) const {
    if (host_readable_) PoisonBlock(data, bytes);
  }
  void Unpoison(const std::byte* data, size_t bytes) const {
    if (host_readable_) UnpoisonBlock(data, bytes);
  }

 private:
  void TakeInitial();
  void Set(std::byte* base, size_t size, size_t capacity) noexcept;
  void AfterRefusal() noexcept;
  void ReclaimStep() noexcept;
  void ReportOwned() noexcept;

  const std::string& id_;
  const WorkspaceConfig& config_;
  const size_t alignment_;
  const bool host_readable_;
  WorkspaceCounters& counters_;
  OwnedBytes::Part owned_;
  Pages pages_;
  std::unique_ptr<MappedFile> file_;  // policy_location kMmap: instead of pages_
  std::byte* base_ = nullptr;         // of either
  size_t capacity_ = 0;
  size_t initial_bytes_ = 0;
  bool lacks_initial_ = true;
  size_t left_untouched_ = 0;
  bool lacks_pages_ = false;  // reclaimed: the next cycle takes size() bytes again
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_PAGES_H_
