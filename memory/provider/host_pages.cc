#include "tidepool/memory/provider/host_pages.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tidepool {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
// Reserving address space costs nothing; growing inside it keeps addresses stable.
constexpr size_t kDefaultReserveBytes = size_t{64} << 30;

constexpr size_t kMostBytes = SIZE_MAX / 4;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

void Prefault(std::byte* begin, size_t bytes) {
  if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return;
  // Kernels before 5.14: touch by hand. Fresh pages are zero, so writing zero changes nothing.
  for (size_t offset = 0; offset < bytes; offset += PageBytes()) {
    reinterpret_cast<volatile unsigned char*>(begin)[offset] = 0;
  }
}

}  // namespace

HostPages::~HostPages() { ReleaseAll(); }

void HostPages::ReleaseAll() noexcept {
  if (mapping_ == nullptr) return;
  munmap(mapping_, mapped_);
  if (committed_ > 0) MemoryTracker::Global().CountSystemRelease();
  mapping_ = base_ = nullptr;
  reserved_ = mapped_ = committed_ = 0;
  charge_.ShrinkTo(0);
}

bool HostPages::Reserve(size_t bytes) {
  const size_t mapped = bytes + kHugePageBytes;  // room to align the base
  void* address =
      mmap(nullptr, mapped, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) return false;
  mapping_ = static_cast<std::byte*>(address);
  mapped_ = mapped;
  base_ = reinterpret_cast<std::byte*>(RoundUp(reinterpret_cast<uintptr_t>(address), kHugePageBytes));
  reserved_ = bytes;
  committed_ = 0;
  return true;
}

void HostPages::Resize(size_t bytes) {
  if (bytes == 0) return ReleaseAll();
  if (bytes > kMostBytes) {
    throw OutOfMemoryError(absl::StrCat("HostPages: a range of ", bytes, " bytes cannot exist"),
                           MemoryTracker::Global().Snapshot().ToString());
  }
  const bool huge = options_.huge_pages && bytes >= kHugePageBytes;
  const size_t wanted = RoundUp(bytes + kReadableTailBytes, huge ? kHugePageBytes : PageBytes());
  if (wanted == committed_) return;
  if (wanted < committed_) {
    // Keep the address range; only the pages go back.
    if (mmap(base_ + wanted, committed_ - wanted, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) != MAP_FAILED) {
      committed_ = wanted;
      charge_.ShrinkTo(static_cast<int64_t>(wanted));
      MemoryTracker::Global().CountSystemRelease();
    }
    return;
  }
  if (wanted > reserved_) {
    HostPages larger(options_);
    const size_t preferred = options_.reserve_bytes ? options_.reserve_bytes : kDefaultReserveBytes;
    if (!larger.Reserve(RoundUp(std::max(preferred, wanted), kHugePageBytes)) &&
        !larger.Reserve(RoundUp(wanted, kHugePageBytes))) {
      throw OutOfMemoryError(
          absl::StrCat("HostPages: the system refused an address range of ", wanted, " bytes"),
          MemoryTracker::Global().Snapshot().ToString());
    }
    std::swap(mapping_, larger.mapping_);
    std::swap(base_, larger.base_);
    std::swap(reserved_, larger.reserved_);
    std::swap(mapped_, larger.mapped_);
    std::swap(committed_, larger.committed_);
    charge_.Swap(larger.charge_);
    try {
      Resize(bytes);
    } catch (...) {
      std::swap(mapping_, larger.mapping_);
      std::swap(base_, larger.base_);
      std::swap(reserved_, larger.reserved_);
      std::swap(mapped_, larger.mapped_);
      std::swap(committed_, larger.committed_);
      charge_.Swap(larger.charge_);
      throw;
    }
    return;
  }
  std::byte* const added = base_ + committed_;
  const size_t added_bytes = wanted - committed_;
  charge_.GrowTo(static_cast<int64_t>(wanted), "pages");
  if (mprotect(added, added_bytes, PROT_READ | PROT_WRITE) != 0) {
    charge_.ShrinkTo(static_cast<int64_t>(committed_));
    throw OutOfMemoryError(absl::StrCat("HostPages: the system refused ", added_bytes, " bytes more"),
                           MemoryTracker::Global().Snapshot().ToString());
  }
  MemoryTracker::Global().CountSystemAllocation();
  if (huge) madvise(added, added_bytes, MADV_HUGEPAGE);
  committed_ = wanted;
  if (options_.prefault) Prefault(added, added_bytes);
}

}  // namespace tidepool
