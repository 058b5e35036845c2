#include "tidepool/memory/provider/addresses_only.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <new>
#include <string>
#include <string_view>

#include "tidepool/memory/provider/provider_calls.h"

namespace tidepool {
namespace internal {
thread_local constinit bool takes_addresses_only = false;
// For copies; null until somebody takes addresses only (device_provider.cc).
extern constinit std::atomic<DeviceProvider* (*)(const std::byte*) noexcept> addresses_at;
}  // namespace internal
namespace {

constexpr size_t kPageBytes =
    4096;  // of the smallest pages there are: ends of mappings are rounded up to the system's

// What there is, in a list without a lock, which a child of fork() would find taken. Places in it are used again.
struct Range {
  std::atomic<const std::byte*> begin{nullptr};  // null: a place that is free
  std::atomic<const std::byte*> end{nullptr};
  std::atomic<DeviceProvider*> provider{nullptr};
  Range* next = nullptr;
};
constinit std::atomic<Range*> ranges{nullptr};
constinit const std::byte taken{};  // in the place of a range that is being written

void AddRange(const std::byte* begin, size_t bytes, DeviceProvider& provider) {
  internal::addresses_at.store(&AddressesAt, std::memory_order_release);
  Range* range = ranges.load(std::memory_order_acquire);
  for (; range != nullptr; range = range->next) {
    const std::byte* free = nullptr;
    if (range->begin.compare_exchange_strong(free, &taken, std::memory_order_acq_rel)) break;
  }
  const bool is_new = range == nullptr;
  if (is_new) range = new Range;
  // Whoever reads one of these finds `taken`, or what comes behind it, as the beginning that is looked at last.
  range->end.store(begin + bytes, std::memory_order_release);
  range->provider.store(&provider, std::memory_order_release);
  range->begin.store(begin, std::memory_order_release);
  if (!is_new) return;
  range->next = ranges.load(std::memory_order_acquire);
  while (!ranges.compare_exchange_weak(range->next, range, std::memory_order_acq_rel)) {
  }
}

void RemoveRange(const std::byte* begin) noexcept {
  for (Range* range = ranges.load(std::memory_order_acquire); range != nullptr;
       range = range->next) {
    if (range->begin.load(std::memory_order_relaxed) == begin)
      return range->begin.store(nullptr, std::memory_order_release);
  }
}

// Ranges of the process's addresses without access, which cost the system a few words. In the place of page-locked memory of the host, where
// arrays are the host's, it may read and write there: of that the system has none but what is touched.
class Addresses final : public DeviceProvider {
 public:
  explicit Addresses(DeviceProvider& of)
      : of_(of), traits_(of.traits()), is_host_(of.device() == Host()) {
    traits_.host_readable = is_host_;
  }

  std::string name() const override { return "addresses of " + ProviderName(of_); }
  Device device() const override { return of_.device(); }
  MemoryTraits traits() const override { return traits_; }

  std::byte* Reserve(size_t bytes) noexcept override {
    return Map(bytes, std::max({kMaxAlignment, traits_.granularity, traits_.large_granularity}));
  }
  void Unreserve(std::byte* base, size_t bytes) noexcept override { Unmap(base, bytes); }
  bool Commit(std::byte*, size_t, bool) noexcept override { return true; }
  bool Decommit(std::byte*, size_t) noexcept override { return true; }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    return Map(std::max<size_t>(bytes, 1), alignment);
  }
  void Release(std::byte* data, size_t bytes) noexcept override {
    Unmap(data, std::max<size_t>(bytes, 1));
  }

  // Of a device there are no bytes.
  void CopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes) override {
    CopyOnDevice(to, from_host, bytes);
  }
  void CopyToHost(std::byte* to_host, const std::byte* from, size_t bytes) override {
    is_host_ ? CopyOnDevice(to_host, from, bytes) : void(std::memset(to_host, 0, bytes));
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    if (is_host_ && bytes > 0) std::memcpy(to, from, bytes);
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override {
    if (is_host_ && bytes > 0) std::memset(to, std::to_integer<int>(value), bytes);
  }

  void ThrowIfLost(const std::string& who) override { of_.ThrowIfLost(who); }

  bool is_of(const DeviceProvider& provider) const { return &of_ == &provider; }
  Addresses* next = nullptr;

 private:
  static void Unmap(std::byte* base, size_t bytes) noexcept {
    RemoveRange(base);  // before they may be another's
    munmap(base, bytes);
  }
  std::byte* Map(size_t bytes, size_t alignment) noexcept {
    alignment = std::max(alignment, kPageBytes);
    if (bytes > std::numeric_limits<size_t>::max() / 2 - alignment) return nullptr;
    void* const mapping =
        mmap(nullptr, bytes + alignment, is_host_ ? PROT_READ | PROT_WRITE : PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    // Room to align the base goes back.
    auto* const begin = static_cast<std::byte*>(mapping);
    const size_t before = -reinterpret_cast<uintptr_t>(begin) & (alignment - 1);
    const size_t end = (before + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (before > 0) munmap(begin, before);
    if (end < bytes + alignment) munmap(begin + end, bytes + alignment - end);
    try {
      if (!is_host_) AddRange(begin + before, bytes, *this);
    } catch (const std::bad_alloc&) {
      munmap(begin + before, bytes);
      return nullptr;
    }
    return begin + before;
  }

  DeviceProvider& of_;
  MemoryTraits traits_;
  const bool is_host_;
};

}  // namespace

DeviceProvider* AddressesAt(const std::byte* at) noexcept {
  for (Range* range = ranges.load(std::memory_order_acquire); range != nullptr;
       range = range->next) {
    const std::byte* const begin = range->begin.load(std::memory_order_acquire);
    if (begin == nullptr || begin == &taken) continue;
    if (at < begin || at >= range->end.load(std::memory_order_acquire)) continue;
    DeviceProvider* const provider = range->provider.load(std::memory_order_acquire);
    // Else the end is another range's, and memory in between would be taken for addresses.
    if (range->begin.load(std::memory_order_relaxed) == begin) return provider;
  }
  return nullptr;
}

DeviceProvider& ProviderAt(const std::byte* at, Device device, std::string_view who) {
  DeviceProvider* const addresses = AddressesAt(at);
  return addresses != nullptr ? *addresses : GetDeviceProvider(device, who);
}

DeviceProvider& MemoryOrAddresses(DeviceProvider& provider) {
  if (!internal::takes_addresses_only) return provider;
  // Page-locked memory of the host, which is committed when it is had, is another one.
  if (&provider == FindDeviceProvider(Host())) return provider;
  // A list without a lock, which a child of fork() would find taken. Two for one provider do no harm.
  static constinit std::atomic<Addresses*> all{nullptr};
  Addresses* const first = all.load(std::memory_order_acquire);
  for (Addresses* at = first; at != nullptr; at = at->next) {
    if (at->is_of(provider)) return *at;
  }
  auto* const made = new Addresses(provider);
  made->next = first;
  while (!all.compare_exchange_weak(made->next, made, std::memory_order_acq_rel)) {
  }
  return *made;
}

}  // namespace tidepool
