#include "tidepool/backends/cuda/emulation/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tidepool/backends/cuda/emulation/emulated_cuda.h"

namespace tidepool::cuda_emulation {
namespace {

constexpr size_t kPage = 4096;
constexpr size_t kBlockAlignment = 256;

constexpr size_t RoundUp(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void ProtectOrDie(char* at, size_t bytes, int protection) {
  if (mprotect(at, bytes, protection) == 0) return;
  std::perror("tidepool CUDA emulation: mprotect");
  std::abort();
}

}  // namespace

DeviceMemory::DeviceMemory() {
  std::fill_n(capacity_, kMaxDevices, size_t{1} << 30);
  for (int device = 0; device < kMaxDevices; ++device) pools_[device].device = device;
}

int DeviceMemory::CreatePool(int device) {
  if (pool_count_ == kMaxPools) return -1;
  pools_[pool_count_].device = device;
  return pool_count_++;
}

size_t DeviceMemory::kept(int device) const {
  size_t bytes = 0;
  for (const Pool& pool : pools_) bytes += pool.device == device ? pool.kept : 0;
  return bytes;
}

char* DeviceMemory::Reserve(size_t bytes, size_t alignment) {
  alignment = std::max(alignment, kPage);
  bytes = RoundUp(bytes, kPage);
  const size_t whole = bytes + alignment + kPage;
  void* const mapping =
      mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) return nullptr;
  // The page behind it stays without access and is given back with it.
  char* const begin = static_cast<char*>(mapping);
  char* const base =
      reinterpret_cast<char*>(RoundUp(reinterpret_cast<uintptr_t>(begin), alignment));
  if (base > begin) munmap(begin, base - begin);
  char* const end = base + bytes + kPage;
  if (end < begin + whole) munmap(end, begin + whole - end);
  ranges_[base] = Range{bytes};
  return base;
}

bool DeviceMemory::Unreserve(char* base, size_t bytes) {
  const auto it = ranges_.find(base);
  if (it == ranges_.end() || it->second.bytes != RoundUp(bytes, kPage)) return false;
  const auto piece = pieces_.lower_bound(base);
  if (piece != pieces_.end() && piece->first < base + bytes) return false;
  munmap(base, it->second.bytes + kPage);
  ranges_.erase(it);
  return true;
}

uint64_t DeviceMemory::Create(int device, size_t bytes) {
  const size_t taken = used_[device] + kept(device);
  if (bytes > capacity_[device] - std::min(capacity_[device], taken)) return 0;
  used_[device] += bytes;
  handles_[next_handle_] = Handle{device, bytes};
  return next_handle_++;
}

void DeviceMemory::MayEnd(uint64_t handle) {
  const auto it = handles_.find(handle);
  if (it->second.mapped || !it->second.released) return;
  used_[it->second.device] -= it->second.bytes;
  handles_.erase(it);
}

bool DeviceMemory::ReleaseHandle(uint64_t handle) {
  const auto it = handles_.find(handle);
  if (it == handles_.end() || it->second.released) return false;
  it->second.released = true;
  MayEnd(handle);
  return true;
}

bool DeviceMemory::Map(char* at, size_t bytes, uint64_t handle) {
  const auto it = handles_.find(handle);
  if (it == handles_.end() || it->second.mapped || it->second.bytes != bytes) return false;
  auto range = ranges_.upper_bound(at);
  if (range == ranges_.begin()) return false;
  --range;
  if (static_cast<size_t>(at - range->first) + bytes > range->second.bytes) return false;
  auto next = pieces_.lower_bound(at);
  if (next != pieces_.end() && next->first < at + bytes) return false;
  if (next != pieces_.begin() && std::prev(next)->first + std::prev(next)->second.bytes > at) {
    return false;
  }
  it->second.mapped = true;
  pieces_[at] = Piece{bytes, handle};
  return true;
}

bool DeviceMemory::SetAccess(char* at, size_t bytes, int device) {
  for (auto it = pieces_.lower_bound(at); bytes > 0; ++it) {
    if (it == pieces_.end() || it->first != at || it->second.bytes > bytes) return false;
    it->second.peers |= 1u << device;
    if (!it->second.accessible && handles_.at(it->second.handle).device == device) {
      it->second.accessible = true;
      ProtectOrDie(at, it->second.bytes, PROT_READ | PROT_WRITE);
      std::memset(at, 0xff, it->second.bytes);
      if (open_ == 0) ProtectOrDie(at, it->second.bytes, PROT_NONE);
    }
    at += it->second.bytes;
    bytes -= it->second.bytes;
  }
  return true;
}

bool DeviceMemory::Unmap(char* at, size_t bytes) {
  // Whole pieces only, and all of them: nothing changes otherwise.
  char* end = at;
  for (auto it = pieces_.find(at); it != pieces_.end() && it->first == end && end < at + bytes;
       ++it) {
    end += it->second.bytes;
  }
  if (end != at + bytes) return false;
  while (bytes > 0) {
    const auto it = pieces_.find(at);
    const Piece piece = it->second;
    pieces_.erase(it);
    ProtectOrDie(at, piece.bytes, PROT_NONE);
    madvise(at, piece.bytes, MADV_DONTNEED);
    handles_[piece.handle].mapped = false;
    MayEnd(piece.handle);
    at += piece.bytes;
    bytes -= piece.bytes;
  }
  return true;
}

char* DeviceMemory::Allocate(int device, size_t bytes, int of_pool) {
  const size_t rounded = RoundUp(std::max<size_t>(bytes, 1), kBlockAlignment);
  const size_t whole = RoundUp(rounded, kPage);
  size_t none = 0;
  size_t& pool_kept = of_pool >= 0 ? pools_[of_pool].kept : none;
  const size_t kept = std::min(whole, pool_kept);
  pool_kept -= kept;
  const uint64_t handle = Create(device, whole);
  char* const base = handle != 0 ? Reserve(whole, kPage) : nullptr;
  if (base == nullptr) {
    if (handle != 0) ReleaseHandle(handle);
    pool_kept += kept;
    return nullptr;
  }
  Map(base, whole, handle);
  SetAccess(base, whole, device);
  ReleaseHandle(handle);
  char* const data = base + whole - rounded;
  ranges_[base].block = data;
  if (of_pool >= 0) {
    ranges_[base].pool = of_pool;
    pools_[of_pool].used += whole;
  }
  blocks_[data] = base;
  return data;
}

bool DeviceMemory::Free(char* data) {
  const auto it = blocks_.find(data);
  if (it == blocks_.end()) return false;
  char* const base = it->second;
  const size_t bytes = ranges_[base].bytes;
  if (const int pool = ranges_[base].pool; pool >= 0) {
    pools_[pool].used -= bytes;
    pools_[pool].kept += bytes;
  }
  blocks_.erase(it);
  Unmap(base, bytes);
  Unreserve(base, bytes);
  return true;
}

char* DeviceMemory::AllocateHost(size_t bytes) {
  void* const data = mmap(nullptr, RoundUp(std::max<size_t>(bytes, 1), kPage),
                          PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) return nullptr;
  host_[static_cast<char*>(data)] = bytes;
  pinned_ += bytes;
  return static_cast<char*>(data);
}

bool DeviceMemory::FreeHost(char* data) {
  const auto it = host_.find(data);
  if (it == host_.end()) return false;
  munmap(data, RoundUp(std::max<size_t>(it->second, 1), kPage));
  pinned_ -= it->second;
  host_.erase(it);
  return true;
}

bool DeviceMemory::Register(char* data, size_t bytes) {
  if (bytes == 0 || !registered_.emplace(data, bytes).second) return false;
  pinned_ += bytes;
  return true;
}

bool DeviceMemory::Unregister(char* data) {
  const auto it = registered_.find(data);
  if (it == registered_.end()) return false;
  pinned_ -= it->second;
  registered_.erase(it);
  return true;
}

bool DeviceMemory::IsDevice(const void* at, size_t bytes, int* device) const {
  char* place = static_cast<char*>(const_cast<void*>(at));
  auto it = pieces_.upper_bound(place);
  if (it == pieces_.begin()) return false;
  --it;
  if (place >= it->first + it->second.bytes) return false;
  if (device != nullptr) *device = handles_.at(it->second.handle).device;
  for (char* end = place + bytes;;) {
    if (!it->second.accessible) return false;
    char* const piece_end = it->first + it->second.bytes;
    if (end <= piece_end) return true;
    ++it;
    if (it == pieces_.end() || it->first != piece_end) return false;
  }
}

bool DeviceMemory::IsReachable(const void* at, size_t bytes, int device) const {
  char* const place = static_cast<char*>(const_cast<void*>(at));
  for (auto it = std::prev(pieces_.upper_bound(place));
       it != pieces_.end() && it->first < place + bytes; ++it) {
    const auto range = std::prev(ranges_.upper_bound(it->first));
    const uint32_t pool = range->second.pool >= 0 ? pools_[range->second.pool].peers : 0;
    if (((it->second.peers | pool) >> device & 1) == 0) return false;
  }
  return true;
}

bool DeviceMemory::TouchesDevice(const void* at, size_t bytes) const {
  char* const place = static_cast<char*>(const_cast<void*>(at));
  auto it = ranges_.lower_bound(place + std::max<size_t>(bytes, 1));
  if (it == ranges_.begin()) return false;
  --it;
  return it->first + it->second.bytes > place;
}

bool DeviceMemory::IsPinned(const void* at, size_t bytes) const {
  char* const place = static_cast<char*>(const_cast<void*>(at));
  for (const auto* memory : {&host_, &registered_}) {
    auto it = memory->upper_bound(place);
    if (it == memory->begin()) continue;
    --it;
    if (place + bytes <= it->first + it->second) return true;
  }
  return false;
}

void DeviceMemory::Protect(char* at, size_t bytes, bool open) {
  ProtectOrDie(at, bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

void DeviceMemory::Open() {
  if (open_++ > 0) return;
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    char* const begin = it->first;
    char* end = begin;
    for (; it != pieces_.end() && it->first == end && it->second.accessible; ++it) {
      end += it->second.bytes;
    }
    if (end > begin) {
      Protect(begin, end - begin, true);
    } else {
      ++it;
    }
  }
}

void DeviceMemory::Close() {
  if (--open_ > 0) return;
  for (auto it = pieces_.begin(); it != pieces_.end();) {
    char* const begin = it->first;
    char* end = begin;
    for (; it != pieces_.end() && it->first == end && it->second.accessible; ++it) {
      end += it->second.bytes;
    }
    if (end > begin) {
      Protect(begin, end - begin, false);
    } else {
      ++it;
    }
  }
}

}  // namespace tidepool::cuda_emulation
