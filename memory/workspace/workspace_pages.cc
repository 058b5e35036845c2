// Where a workspace's memory is: pages of its device, or a mapped file.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_core.h"

namespace tidepool {
namespace {

// An initial_size may be far more than the first cycles use. So much of it is touched when it is
// taken; the rest at first use, and at the end of a cycle up to where that one and its plan reach.
constexpr size_t kPrefaultedInitialBytes = size_t{64} << 20;

}  // namespace

std::string WorkspaceCore::WhyNoHostCopy() const {
  if (host_readable_ || config.policy_mirroring != MirroringPolicy::kDisabled) return "";
  return absl::StrCat("workspace [", id, "] on ", DeviceName(device),
                      " is device memory only (policy_mirroring kDisabled)");
}

void WorkspaceCore::AccountOwned() {
  const int64_t owned = static_cast<int64_t>(pages_.committed_bytes() + spills_.owned_bytes() +
                                             (file_ != nullptr ? file_->mapped_bytes() : 0));
  MemoryTracker::Global().AddOwned(&account_, owned - owned_reported_);
  owned_reported_ = owned;
}

// Before a cycle begins.
void WorkspaceCore::PreparePages() {
  if (file_ != nullptr) file_->CheckLength(id);
  if (lacks_initial_pages_) TakeInitialPages();
  TakePagesAgain();
}

void WorkspaceCore::TakeInitialPages() {
  if (!passes_through() && config.debug_mode != DebugMode::kGuard) {
    size_t wanted = config.initial_size;
    if (wanted > 0 && config.policy_allocation == AllocationPolicy::kOverallocate) {
      const size_t extra = config.overallocation_limit.ExtraFor(wanted);
      wanted = wanted <= SIZE_MAX - extra ? wanted + extra : SIZE_MAX;
    }
    if (config.max_size > 0) wanted = std::min(wanted, config.max_size);
    if (config.policy_location == LocationPolicy::kMmap) {
      file_ = std::make_unique<MappedFile>(id, config.temp_file_path, wanted, config.max_size,
                                           alignment_);
      SetPages(file_->base(), file_->bytes(), file_->bytes());
      wanted = file_->bytes();
    } else if (wanted > 0) {
      ResizePages(wanted);
      PrefaultPages(std::min(wanted, kPrefaultedInitialBytes));
    }
    initial_pages_ = wanted;
  }
  lacks_initial_pages_ = false;
}

void WorkspaceCore::ResizePages(size_t new_size) {
  if (new_size > SIZE_MAX / 4) {
    throw OutOfMemoryError(
        absl::StrCat("workspace [", id, "]: pages of ", new_size, " bytes cannot exist"),
        MemoryTracker::Global().Snapshot().ToString());
  }
  const size_t capacity = (new_size + alignment_ - 1) & ~(alignment_ - 1);
  // The system may give these addresses to others.
  if (capacity_ > 0) Unpoison(base_, capacity_);
  if (file_ != nullptr) {
    file_.reset();  // a file is mapped as a whole or not at all
  } else {
    pages_.Resize(capacity);
  }
  SetPages(pages_.base(), new_size, capacity);
}

void WorkspaceCore::SetPages(std::byte* base, size_t new_size, size_t capacity) {
  base_ = base;
  size = new_size;
  capacity_ = capacity;
  lacks_pages_ = false;
  if (capacity > 0) Poison(base, capacity);
  AccountOwned();
}

void WorkspaceCore::PrefaultPages(size_t bytes) noexcept {
  if (config.prefault && file_ == nullptr && bytes > 0 && capacity_ > 0) {
    pages_.Prefault(std::min(bytes, capacity_));
  }
}

}  // namespace tidepool
