#include "tidepool/memory/spill/spill_space.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/nameless_file.h"
#include "tidepool/memory/spill/spill_counters.h"

namespace tidepool::internal {
namespace {

constexpr int64_t kMostBytes = int64_t{1} << 46;
// Blocks of the disk are asked for in steps, which keeps them together.
constexpr int64_t kStep = int64_t{64} << 20;

std::string FolderOf(const std::string& asked) {
  if (!asked.empty()) return asked;
  for (const char* const variable : {"TIDEPOOL_SPILL_FOLDER", "TMPDIR"}) {
    const char* const value = std::getenv(variable);
    if (value != nullptr && *value != '\0') return value;
  }
  return "/var/tmp";
}

}  // namespace

SpillSpace::SpillSpace(const std::string& folder, int64_t capacity_bytes, bool direct)
    : capacity_(capacity_bytes) {
  const std::string place = FolderOf(folder);
  name_ = absl::StrCat("spill file in ", place);
  if (capacity_bytes < 0 || capacity_bytes > kMostBytes) {
    ThrowInvalidArgument(absl::StrCat(name_, ": capacity_bytes is ", capacity_bytes,
                                      ", expected 0 to ", kMostBytes));
  }
  if (direct) {
    descriptor_ = OpenNamelessFile(place, O_DIRECT);
    direct_ = descriptor_ >= 0;
  }
  if (descriptor_ < 0) descriptor_ = OpenNamelessFile(place);
  if (descriptor_ < 0) {
    struct stat status;
    if (stat(place.c_str(), &status) == 0 && !S_ISDIR(status.st_mode)) {
      ThrowInvalidArgument(absl::StrCat(name_, ": found a file, expected a folder"));
    }
    ThrowErrno(errno, absl::StrCat(name_, " cannot be made"));
  }
  ranges_.Begin(0, static_cast<size_t>(capacity_ > 0 ? capacity_ : kMostBytes) /
                       SpillFile::kPageBytes * SpillFile::kPageBytes);
}

SpillSpace::~SpillSpace() { close(descriptor_); }

void SpillSpace::EndDirect() noexcept {
  const int flags = fcntl(descriptor_, F_GETFL);
  if (flags >= 0 && fcntl(descriptor_, F_SETFL, flags & ~O_DIRECT) == 0) direct_ = false;
}

// ---- places -----------------------------------------------------------------------------------

void SpillSpace::CheckHere() const {
  if (IsHere()) return;
  ThrowFailedPrecondition(absl::StrCat(name_,
                                       ": found a child of fork(), expected the process that made "
                                       "the file; a child makes one of its own"));
}

void SpillSpace::Take(absl::Span<SpilledBlock> blocks) {
  CheckHere();
  std::lock_guard lock(mutex_);
  size_t taken = 0, wanted = 0;
  for (const SpilledBlock& block : blocks) wanted += WholePages(block.stored);
  try {
    int64_t end = 0;
    for (SpilledBlock& block : blocks) {
      ranges_.Reserve();
      size_t offset = 0;
      const FreeRanges::Range range = ranges_.Take(WholePages(block.stored), &offset);
      if (range == FreeRanges::Range::kNone) {
        ThrowResourceExhausted(absl::StrCat(name_, " is full: ", wanted, " bytes more, ", used_,
                                            " of ", capacity_,
                                            " bytes (capacity_bytes) are in use"));
      }
      block.offset = static_cast<int64_t>(offset);
      block.range = static_cast<uint32_t>(range);
      ++taken;
      end = std::max(end, block.offset + static_cast<int64_t>(WholePages(block.stored)));
    }
    Allocate(end, wanted);
  } catch (...) {
    for (SpilledBlock& block : blocks.subspan(0, taken)) {
      ranges_.Give(FreeRanges::Range{block.range}, WholePages(block.stored));
      block.range = SpilledBlock::kNoPlace;
    }
    throw;
  }
  used_ += static_cast<int64_t>(wanted);
  CountSpillUse(static_cast<int64_t>(wanted));
}

// With the lock.
void SpillSpace::Allocate(int64_t end, size_t wanted) {
  if (end <= allocated_ || !can_allocate_) return;
  const int64_t most = capacity_ > 0 ? capacity_ : kMostBytes;
  const int64_t ahead = std::max(end, std::min(most, (end + kStep - 1) / kStep * kStep));
  for (const int64_t to : {ahead, end}) {
    int result = 0;
    do {
      result = fallocate(descriptor_, 0, allocated_, to - allocated_);
    } while (result != 0 && errno == EINTR);
    if (result == 0) {
      allocated_ = to;
      return;
    }
    if (errno == EOPNOTSUPP || errno == ENOSYS) {
      can_allocate_ = false;  // a full disk is told when it is written to
      return;
    }
    if (to != end) continue;
    const int error = errno;
    if (error != ENOSPC && error != EFBIG && error != EDQUOT) {
      ThrowErrno(error, absl::StrCat(name_, " cannot be extended to ", end, " bytes"));
    }
    struct statvfs disk;
    const std::string left =
        fstatvfs(descriptor_, &disk) == 0
            ? absl::StrCat(", which has ", uint64_t{disk.f_bavail} * disk.f_frsize, " bytes free")
            : "";
    // Some of it may have been allocated.
    if (ftruncate(descriptor_, allocated_) != 0) {
    }
    ThrowResourceExhausted(absl::StrCat(name_, ": the disk is full (", std::strerror(error),
                                        "): ", wanted, " bytes more, to ", end, " bytes", left,
                                        "; ", used_, " bytes are in use"));
  }
}

void SpillSpace::Give(absl::Span<const SpilledBlock> blocks) noexcept {
  if (!IsHere()) return;
  std::lock_guard lock(mutex_);
  int64_t given = 0;
  for (const SpilledBlock& block : blocks) {
    if (block.range == SpilledBlock::kNoPlace) continue;
    ranges_.Give(FreeRanges::Range{block.range}, WholePages(block.stored));
    given += static_cast<int64_t>(WholePages(block.stored));
  }
  used_ -= given;
  CountSpillUse(-given);
}

int64_t SpillSpace::Trim() {
  CheckHere();
  std::lock_guard lock(mutex_);
  ranges_.Merge();
  const auto top = static_cast<int64_t>(ranges_.top());
  if (top >= allocated_) return 0;
  if (ftruncate(descriptor_, top) != 0) ThrowErrno(errno, absl::StrCat(name_, " cannot be cut"));
  const int64_t before = allocated_;
  allocated_ = top;
  return before - top;
}

int64_t SpillSpace::used_bytes() const {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (IsHere()) lock.lock();
  return used_;
}

int64_t SpillSpace::file_bytes() const {
  std::unique_lock lock(mutex_, std::defer_lock);
  if (IsHere()) lock.lock();
  return allocated_;
}

}  // namespace tidepool::internal
