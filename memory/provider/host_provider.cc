#include "tidepool/memory/provider/host_provider.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_set>

#include "tidepool/memory/provider/block_cache.h"
#include "tidepool/memory/provider/fork_handlers.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace tidepool {
namespace {

constexpr size_t kHugePageBytes = size_t{2} << 20;
// Reserving address space costs nothing; growing inside it keeps addresses stable. Emulators of processors may have something for each
// page that is reserved, and are given less (tools/compat/aarch64).
#ifndef TIDEPOOL_HOST_RESERVE_BYTES
#define TIDEPOOL_HOST_RESERVE_BYTES (size_t{64} << 30)
#endif
constexpr size_t kReserveBytes = TIDEPOOL_HOST_RESERVE_BYTES;

constexpr size_t kMallocAlignment = 16;
static_assert(alignof(std::max_align_t) >= kMallocAlignment);

// Blocks are aligned by hand. malloc serves medium ones from a cache of the thread, which posix_memalign goes
// around at several times the cost; and of large ones posix_memalign cuts off what lies in front of the
// alignment, which then fits no request of their size: in a process that replaces some of them now and then,
// 1.5 times what is alive stays resident. Checkers see whole blocks.
constexpr bool kAlignedByHand = kSmallBlocksInUse;

constexpr bool IsSmall(size_t bytes) {
  return kSmallBlocksInUse && bytes <= SmallBlocks::kMostBytes;
}

static_assert(SmallBlocks::kTailBytes >= kReadableTailBytes);

// Those that are small and aligned to more than small blocks are. Rare: who releases a block knows how
// many bytes it has, not how it was aligned.
class OverAligned {
 public:
  bool Add(std::byte* data) noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    try {
      blocks_.insert(data);
    } catch (const std::bad_alloc&) {
      return false;
    }
    count_.fetch_add(1, std::memory_order_relaxed);
    return true;
  }
  bool empty() const noexcept { return count_.load(std::memory_order_relaxed) == 0; }
  bool Remove(std::byte* data) noexcept {
    if (empty()) return false;
    std::lock_guard<std::mutex> lock(mutex_);
    if (blocks_.erase(data) == 0) return false;
    count_.fetch_sub(1, std::memory_order_relaxed);
    return true;
  }
  static OverAligned& Blocks() {
    static OverAligned& blocks = []() -> OverAligned& {
      static constinit const ForkHandlers handlers{[] { Blocks().mutex_.lock(); },
                                                   [] { Blocks().mutex_.unlock(); },
                                                   [] { Blocks().mutex_.unlock(); }};
      HandleFork(ForkLevel::kHostBlocks, &handlers);
      // It outlives every static array, and a release that comes first needs no memory for it.
      alignas(OverAligned) static std::byte storage[sizeof(OverAligned)];
      return *new (storage) OverAligned;
    }();
    return blocks;
  }

 private:
  std::mutex mutex_;
  std::unordered_set<std::byte*> blocks_;
  std::atomic<int64_t> count_{0};
};

// Before there are threads, for a child of fork() to have it.
[[maybe_unused]] const OverAligned& at_start = OverAligned::Blocks();

size_t PageBytes() {
  static const size_t bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return bytes;
}

class Provider final : public DeviceProvider {
 public:
  constexpr Provider() = default;

  std::string name() const override { return "host"; }
  Device device() const override { return Host(); }
  MemoryTraits traits() const override {
    return {16, PageBytes(), kHugePageBytes, kReserveBytes, true};
  }

  std::byte* Reserve(size_t bytes) noexcept override {
    // Room to align the base; what is not needed of it goes back at once. Without MAP_NORESERVE: addresses alone are not
    // counted, and memory that is committed in them is, so that the system refuses of it what it refuses malloc.
    if (bytes > SIZE_MAX - kHugePageBytes) return nullptr;
    void* address =
        mmap(nullptr, bytes + kHugePageBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (address == MAP_FAILED) return nullptr;
    auto* const mapping = static_cast<std::byte*>(address);
    const size_t before = -reinterpret_cast<uintptr_t>(mapping) & (kHugePageBytes - 1);
    if (before > 0) munmap(mapping, before);
    munmap(mapping + before + bytes, kHugePageBytes - before);
    return mapping + before;
  }
  void Unreserve(std::byte* base, size_t bytes) noexcept override { munmap(base, bytes); }
  bool Commit(std::byte* at, size_t bytes, bool large_pages) noexcept override {
    if (mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return false;
    if (large_pages) madvise(at, bytes, MADV_HUGEPAGE);
    return true;
  }
  // The address range is kept; only the pages go back.
  bool Decommit(std::byte* at, size_t bytes) noexcept override {
    return mmap(at, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != MAP_FAILED;
  }
  void Prefault(std::byte* begin, size_t bytes) noexcept override {
    if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return;
    // Kernels before 5.14: touch by hand. Adding nothing to a byte of each page keeps contents.
    for (size_t offset = 0; offset < bytes; offset += PageBytes()) {
      auto* const at = reinterpret_cast<volatile unsigned char*>(begin) + offset;
      *at = *at;
    }
  }

  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    if (IsSmall(bytes) && alignment <= SmallBlocks::kAlignment) return AllocateSmallBlock(bytes);
    if (bytes > SIZE_MAX / 4 || alignment > SIZE_MAX / 4) return nullptr;
    if (!kAlignedByHand) {
      void* data = nullptr;
      const int error =
          posix_memalign(&data, std::max(alignment, sizeof(void*)), bytes + kReadableTailBytes);
      return error == 0 ? static_cast<std::byte*>(data) : nullptr;
    }
    // malloc's blocks begin at multiples of 16, so there is room for the address in front.
    void* const block =
        std::malloc(bytes + kReadableTailBytes + std::max(alignment, kMallocAlignment));
    if (block == nullptr) return nullptr;
    const uintptr_t after = reinterpret_cast<uintptr_t>(block) + kMallocAlignment;
    auto* const data = reinterpret_cast<std::byte*>((after + alignment - 1) & -alignment);
    if (IsSmall(bytes) && !OverAligned::Blocks().Add(data)) {
      std::free(block);
      return nullptr;
    }
    reinterpret_cast<void**>(data)[-1] = block;
    return data;
  }
  void Release(std::byte* data, size_t bytes) noexcept override {
    if (IsSmall(bytes) && !OverAligned::Blocks().Remove(data)) {
      return ReleaseSmallBlock(data, bytes);
    }
    std::free(kAlignedByHand ? reinterpret_cast<void**>(data)[-1] : data);
  }

  void ReleaseMany(const Block* blocks, int count) noexcept override {
    if (!OverAligned::Blocks().empty()) return DeviceProvider::ReleaseMany(blocks, count);
    for (int i = 0, end = 1; i < count; i = end++) {
      const size_t bytes = blocks[i].bytes;
      if (!IsSmall(bytes)) {
        Release(blocks[i].data, bytes);
        continue;
      }
      const size_t size = SmallBlocks::ClassOf(bytes);
      while (end < count && SmallBlocks::ClassOf(blocks[end].bytes) == size) ++end;
      ReleaseSmallBlocks(bytes, &blocks[i].data, sizeof(Block), end - i);
    }
  }

  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    if (bytes > 0) std::memcpy(to, from, bytes);
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override {
    if (bytes > 0) std::memset(to, static_cast<int>(value), bytes);
  }
};

constinit Provider host_provider;

}  // namespace

DeviceProvider& HostProvider() { return host_provider; }

}  // namespace tidepool
