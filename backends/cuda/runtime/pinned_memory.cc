#include "tidepool/backends/cuda/runtime/pinned_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "cuda_runtime_api.h"
#include "tidepool/backends/cuda/runtime/refusal.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/host_provider.h"

namespace tidepool::cuda {
namespace {

constexpr size_t kAlignment = 256;
constexpr size_t kSmallest = 4096;

// Eight sizes to each power of two.
size_t SizeClass(size_t bytes) {
  bytes = std::max(bytes + kReadableTailBytes, kSmallest);
  const size_t unit = std::bit_floor(bytes) / 8;
  return (bytes + unit - 1) / unit * unit;
}

// Nobody's but the process's, whose entry the ledger has: adding to it takes no memory.
void CountKept(int64_t bytes) noexcept {
  if (bytes != 0) MemoryTracker::Global().Add(Host(), MemoryKind::kUnreferenced, bytes);
}

}  // namespace

PinnedMemory::PinnedMemory(Device device)
    : of_(device),
      reclaimer_(Reclaimer::Global().Register("pinned memory of " + DeviceName(device),
                                              [this](ReclaimDepth depth) -> int64_t {
                                                return depth == ReclaimDepth::kSpare ? 0 : Trim();
                                              })) {
  MemoryTracker::Global().Add(Host(), MemoryKind::kUnreferenced, 0);  // so that there is an entry
}

MemoryTraits PinnedMemory::traits() const {
  MemoryTraits traits = HostProvider().traits();
  traits.alignment = kAlignment;
  traits.large_granularity = 0;
  return traits;
}

std::byte* PinnedMemory::Reserve(size_t bytes) noexcept { return HostProvider().Reserve(bytes); }

void PinnedMemory::Unreserve(std::byte* base, size_t bytes) noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto it = committed_.lower_bound(base);
    while (it != committed_.end() && it->first < base + bytes) {
      cudaHostUnregister(it->first);
      it = committed_.erase(it);
    }
  }
  HostProvider().Unreserve(base, bytes);
}

bool PinnedMemory::Commit(std::byte* at, size_t bytes, bool) noexcept {
  ForgetRefusal();
  if (!HostProvider().Commit(at, bytes, false)) return false;
  std::map<std::byte*, size_t>::node_type
      place;  // before it is locked: there may be no memory to know it by
  try {
    std::map<std::byte*, size_t> alone;
    alone[at] = bytes;
    place = alone.extract(at);
  } catch (const std::bad_alloc&) {
    HostProvider().Decommit(at, bytes);
    return false;
  }
  const cudaError_t error = cudaHostRegister(at, bytes, cudaHostRegisterPortable);
  if (error != cudaSuccess) {
    NoteRefusal(of_, error, "cudaHostRegister");
    HostProvider().Decommit(at, bytes);
    return false;
  }
  std::lock_guard<std::mutex> lock(mutex_);
  committed_.insert(std::move(place));
  return true;
}

bool PinnedMemory::Decommit(std::byte* at, size_t bytes) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  // All commits of the part must lie in it whole.
  std::byte* end = at;
  for (auto it = committed_.find(at);
       it != committed_.end() && it->first == end && end < at + bytes; ++it) {
    end += it->second;
  }
  if (end != at + bytes) return false;
  for (auto it = committed_.find(at); it != committed_.end() && it->first < at + bytes;) {
    cudaHostUnregister(it->first);
    it = committed_.erase(it);
  }
  return HostProvider().Decommit(at, bytes);
}

std::byte* PinnedMemory::Allocate(size_t bytes, size_t alignment) noexcept {
  if (alignment > kSmallest || bytes > SIZE_MAX / 4)
    return nullptr;  // pages are aligned no further
  const size_t size = SizeClass(bytes);
  std::byte* kept = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto it = kept_.find(size);
    if (it != kept_.end() && !it->second.empty()) {
      kept = it->second.back();
      it->second.pop_back();
      kept_bytes_ -= size;
    }
  }
  if (kept != nullptr) {
    CountKept(-static_cast<int64_t>(size));
    return kept;
  }
  ForgetRefusal();
  void* data = nullptr;
  cudaError_t error = cudaHostAlloc(&data, size, cudaHostAllocPortable);
  if (error != cudaSuccess) {
    NoteRefusal(of_, error, "cudaHostAlloc");
    Trim();
    error = cudaHostAlloc(&data, size, cudaHostAllocPortable);
    if (error != cudaSuccess) {
      NoteRefusal(of_, error, "cudaHostAlloc");
      return nullptr;
    }
    ForgetRefusal();
  }
  return static_cast<std::byte*>(data);
}

void PinnedMemory::Release(std::byte* data, size_t bytes) noexcept {
  const size_t size = SizeClass(bytes);
  bool keep = false;
  try {
    std::lock_guard<std::mutex> lock(mutex_);
    if (kept_bytes_ + size <= kKeptBytes) {
      kept_[size].push_back(data);
      kept_bytes_ += size;
      keep = true;
    }
  } catch (const std::bad_alloc&) {
    // Without memory to remember it by it goes.
  }
  if (!keep) {
    cudaFreeHost(data);
    return;
  }
  CountKept(static_cast<int64_t>(size));
}

size_t PinnedMemory::kept_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return kept_bytes_;
}

int64_t PinnedMemory::Trim() noexcept {
  std::map<size_t, std::vector<std::byte*>> kept;
  int64_t bytes = 0;
  {
    std::unique_lock<std::mutex> lock(mutex_,
                                      std::try_to_lock);  // the Reclaimer's callbacks never wait
    if (!lock.owns_lock()) return 0;
    kept.swap(kept_);
    bytes = static_cast<int64_t>(std::exchange(kept_bytes_, 0));
  }
  CountKept(-bytes);
  for (const auto& [size, blocks] : kept) {
    for (std::byte* data : blocks) cudaFreeHost(data);
  }
  return bytes;
}

void PinnedMemory::CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void PinnedMemory::CopyToHost(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void PinnedMemory::CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) {
  if (bytes > 0) std::memcpy(to, from, bytes);
}
void PinnedMemory::Fill(std::byte* to, std::byte value, size_t bytes) {
  if (bytes > 0) std::memset(to, static_cast<int>(value), bytes);
}

}  // namespace tidepool::cuda
