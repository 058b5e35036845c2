#include "tidepool/memory/provider/addresses_only.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "tidepool/memory/provider/provider_calls.h"

namespace tidepool {
namespace internal {
thread_local constinit bool takes_addresses_only = false;
}  // namespace internal
namespace {

constexpr size_t kPageBytes =
    4096;  // of the smallest pages there are: ends of mappings are rounded up to the system's

// Ranges of the process's addresses without access, which cost the system a few words.
class Addresses final : public DeviceProvider {
 public:
  explicit Addresses(DeviceProvider& of) : of_(of), traits_(of.traits()) {
    traits_.host_readable = false;
  }

  std::string name() const override { return "addresses of " + ProviderName(of_); }
  Device device() const override { return of_.device(); }
  MemoryTraits traits() const override { return traits_; }

  std::byte* Reserve(size_t bytes) noexcept override {
    return Map(bytes, std::max({kMaxAlignment, traits_.granularity, traits_.large_granularity}));
  }
  void Unreserve(std::byte* base, size_t bytes) noexcept override { munmap(base, bytes); }
  bool Commit(std::byte*, size_t, bool) noexcept override { return true; }
  bool Decommit(std::byte*, size_t) noexcept override { return true; }
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    return Map(std::max<size_t>(bytes, 1), alignment);
  }
  void Release(std::byte* data, size_t bytes) noexcept override {
    munmap(data, std::max<size_t>(bytes, 1));
  }

  // There are no bytes.
  void CopyFromHost(std::byte*, const std::byte*, size_t) override {}
  void CopyToHost(std::byte*, const std::byte*, size_t) override {}
  void CopyOnDevice(std::byte*, const std::byte*, size_t) override {}
  void Fill(std::byte*, std::byte, size_t) override {}

  void ThrowIfLost(const std::string& who) override { of_.ThrowIfLost(who); }

  bool is_of(const DeviceProvider& provider) const { return &of_ == &provider; }
  Addresses* next = nullptr;

 private:
  static std::byte* Map(size_t bytes, size_t alignment) noexcept {
    alignment = std::max(alignment, kPageBytes);
    if (bytes > std::numeric_limits<size_t>::max() / 2 - alignment) return nullptr;
    void* const mapping = mmap(nullptr, bytes + alignment, PROT_NONE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    // Room to align the base goes back.
    auto* const begin = static_cast<std::byte*>(mapping);
    const size_t before = -reinterpret_cast<uintptr_t>(begin) & (alignment - 1);
    const size_t end = (before + bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    if (before > 0) munmap(begin, before);
    if (end < bytes + alignment) munmap(begin + end, bytes + alignment - end);
    return begin + before;
  }

  DeviceProvider& of_;
  MemoryTraits traits_;
};

}  // namespace

DeviceProvider& MemoryOrAddresses(DeviceProvider& provider) {
  if (!internal::takes_addresses_only) return provider;
  // Page-locked memory of the host is a device's.
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
