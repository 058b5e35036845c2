#include "tidepool/memory/provider/device_provider.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/host_provider.h"
#include "tidepool/memory/provider/provider_calls.h"

namespace tidepool {
namespace internal {
// What has addresses and no memory is in no device's reach; null while nobody takes addresses only (addresses_only.h).
constinit std::atomic<DeviceProvider* (*)(const std::byte*) noexcept> addresses_at{nullptr};
}  // namespace internal
namespace {

constexpr size_t kStagingBytes = size_t{1} << 20;

// Zero-initialised before any registrar runs.
constinit std::atomic<DeviceProviderFactory> factories[kMaxDeviceTypes] = {};
constinit std::atomic<DeviceProvider*> providers[kMaxDeviceTypes][kMaxDevicesPerType] = {};
// The factory has said that there is no such device.
constinit std::atomic<bool> absent[kMaxDeviceTypes][kMaxDevicesPerType] = {};
constinit std::mutex making;

// A device whose factory this thread runs, with `making` held. Factories look other devices up.
class MakingScope {
 public:
  explicit MakingScope(Device device) : device_(device), outer_(innermost) { innermost = this; }
  ~MakingScope() { innermost = outer_; }
  MakingScope(const MakingScope&) = delete;
  MakingScope& operator=(const MakingScope&) = delete;

  static std::unique_lock<std::mutex> Lock() {
    return innermost != nullptr ? std::unique_lock<std::mutex>() : std::unique_lock(making);
  }
  static bool IsUnderWay(Device device) {
    const MakingScope* found = innermost;
    while (found != nullptr && found->device_ != device) found = found->outer_;
    if (found == nullptr) return false;
    for (MakingScope* scope = innermost; scope != found; scope = scope->outer_)
      scope->met_one_ = true;
    return true;
  }
  // Whether what it looked up, or was looked up for that, is being made for an outer one: what it lacked may come.
  bool met_one_under_way() const { return met_one_; }

 private:
  static constinit thread_local MakingScope* innermost;
  const Device device_;
  MakingScope* const outer_;
  bool met_one_ = false;
};
constinit thread_local MakingScope* MakingScope::innermost = nullptr;

// Sizes that are rounded up to others do not leave the address space.
constexpr size_t kMostTraitBytes = SIZE_MAX / 4;

// What is kept by device (ledger, queues, losses) would be another one's.
void CheckDeviceOf(Device device, const DeviceProvider& provider) {
  const Device found = provider.device();
  if (found == device) return;
  ThrowInvalidArgument(absl::StrCat("memory provider of ", DeviceName(device), ": found one of ",
                                    DeviceName(found), " (\"", ProviderName(provider),
                                    "\"), expected one whose device() is ", DeviceName(device)));
}

// Whoever divides by them or rounds up to them relies on it.
void CheckTraits(Device device, const MemoryTraits& traits) {
  const auto refuse = [&](const char* field, size_t found, const std::string& expected) {
    ThrowInvalidArgument(absl::StrCat("traits of the memory provider of ", DeviceName(device),
                                      ": found ", field, " ", found, ", expected ", expected));
  };
  if (!std::has_single_bit(traits.alignment) || traits.alignment > kMaxAlignment) {
    refuse("alignment", traits.alignment, absl::StrCat("a power of two up to ", kMaxAlignment));
  }
  if (!std::has_single_bit(traits.granularity) || traits.granularity > kMostTraitBytes) {
    refuse("granularity", traits.granularity,
           absl::StrCat("a power of two up to ", kMostTraitBytes));
  }
  const size_t large = traits.large_granularity;
  if (large != 0 &&
      (!std::has_single_bit(large) || large < traits.granularity || large > kMostTraitBytes)) {
    refuse("large_granularity", large,
           absl::StrCat("0 or a power of two from ", traits.granularity, " to ", kMostTraitBytes));
  }
  if (traits.reserve_bytes > kMostTraitBytes) {
    refuse("reserve_bytes", traits.reserve_bytes, absl::StrCat("at most ", kMostTraitBytes));
  }
}

}  // namespace

constinit std::atomic<bool> devices_in_use{false};

DeviceProviderRegistrar::DeviceProviderRegistrar(DeviceType type, DeviceProviderFactory factory) {
  const auto refuse = [](const std::string& what) {
    std::fprintf(stderr, "tidepool: %s\n", what.c_str());
    std::abort();
  };
  if (type.number() >= DeviceType::count()) {
    refuse(absl::StrCat("a memory provider is for device type ", type.number(), ", expected 1 to ",
                        DeviceType::count() - 1));
  }
  if (factory == nullptr)
    refuse(absl::StrCat("found null as the factory of ", DeviceTypeName(type), " devices"));
  DeviceProviderFactory known = nullptr;
  if (type != DeviceType::kHost &&
      factories[type.number()].compare_exchange_strong(known, factory, std::memory_order_acq_rel)) {
    return;
  }
  refuse(absl::StrCat("a second memory provider for ", DeviceTypeName(type), " devices is linked"));
}

DeviceProvider* FindDeviceProvider(Device device) {
  const int type = device.type.number();
  if (device.index >= kMaxDevicesPerType) return nullptr;
  std::atomic<DeviceProvider*>& known = providers[type][device.index];
  if (DeviceProvider* provider = known.load(std::memory_order_acquire)) return provider;
  if (device == Host()) return &HostProvider();
  const DeviceProviderFactory factory = factories[type].load(std::memory_order_acquire);
  if (factory == nullptr) return nullptr;
  std::atomic<bool>& is_absent = absent[type][device.index];
  if (is_absent.load(std::memory_order_relaxed)) return nullptr;
  const std::unique_lock<std::mutex> lock = MakingScope::Lock();
  if (DeviceProvider* provider = known.load(std::memory_order_relaxed)) return provider;
  if (is_absent.load(std::memory_order_relaxed) || MakingScope::IsUnderWay(device)) return nullptr;
  const MakingScope scope(device);
  DeviceProvider* const provider = factory(device.index);
  if (provider != nullptr) {
    CheckDeviceOf(device, *provider);
    CheckTraits(device, provider->traits());
    devices_in_use.store(true, std::memory_order_relaxed);
  }
  known.store(provider, std::memory_order_release);
  is_absent.store(provider == nullptr && !scope.met_one_under_way(), std::memory_order_relaxed);
  return provider;
}

void LookForDevicesAgain() noexcept {
  const std::unique_lock<std::mutex> lock = MakingScope::Lock();
  for (auto& of_type : absent) {
    for (std::atomic<bool>& is_absent : of_type) is_absent.store(false, std::memory_order_relaxed);
  }
}

DeviceProvider& GetDeviceProvider(Device device, std::string_view asked_by) {
  if (DeviceProvider* provider = FindDeviceProvider(device)) return *provider;
  const std::string who(asked_by);
  CheckDevice(who.c_str(), device);
  const std::string type = DeviceTypeName(device.type);
  const bool linked = factories[device.type.number()].load(std::memory_order_acquire) != nullptr;
  if (linked) ThrowNotFound(absl::StrCat(who, ": there is no device ", DeviceName(device)));
  ThrowUnimplemented(absl::StrCat(who, ": no memory provider is linked for ", DeviceName(device),
                                  "; add the target of the ", type,
                                  " backend that registers one (tidepool/memory/provider/"
                                  "device_provider.h) to deps"));
}

void DeviceProvider::ThrowIfLost(const std::string& who) { CheckNotLost(device(), who); }

void DeviceProvider::OpenQueue(int, void*) {
  ThrowUnimplemented(absl::StrCat("DeviceQueue: ", ProviderName(*this), " has one queue"));
}

DeviceProvider* SwapDeviceProviderForTesting(Device device, DeviceProvider* provider) {
  CheckDevice("SwapDeviceProviderForTesting", device);
  DeviceProvider* const before = FindDeviceProvider(device);
  providers[device.type.number()][device.index].store(provider, std::memory_order_release);
  return before;
}

void CopyBytes(Device to_device, std::byte* to, Device from_device, const std::byte* from,
               size_t bytes) {
  CheckDevice("CopyBytes", to_device);
  CheckDevice("CopyBytes", from_device);
  if (bytes == 0) return;
  CheckNotLost(to_device, "copy");
  CheckNotLost(from_device, "copy");
  if (const auto addresses_at = internal::addresses_at.load(std::memory_order_acquire);
      addresses_at != nullptr) [[unlikely]] {
    DeviceProvider* const source = from_device == Host() ? nullptr : addresses_at(from);
    const bool is_nowhere = to_device != Host() && addresses_at(to) != nullptr;
    if (source != nullptr && to_device == Host()) return source->CopyToHost(to, from, bytes);
    if (source != nullptr || is_nowhere) return;
  }
  if (to_device == from_device) {
    DeviceProvider& device = GetDeviceProvider(to_device, "CopyBytes");
    return AskProvider("copy", to_device, [&] { device.CopyOnDevice(to, from, bytes); });
  }
  const auto fetch = [&](DeviceProvider& source, std::byte* to_host, const std::byte* at,
                         size_t piece) {
    AskProvider("copy", from_device, [&] { source.CopyToHost(to_host, at, piece); });
    CheckSources(from_device, "copy");
  };
  const auto send = [&](DeviceProvider& target, std::byte* at, const std::byte* from_host,
                        size_t piece) {
    AskProvider("copy", to_device, [&] { target.CopyFromHost(at, from_host, piece); });
  };
  if (to_device == Host())
    return fetch(GetDeviceProvider(from_device, "CopyBytes"), to, from, bytes);
  if (from_device == Host())
    return send(GetDeviceProvider(to_device, "CopyBytes"), to, from, bytes);
  DeviceProvider& target = GetDeviceProvider(to_device, "CopyBytes");
  DeviceProvider& source = GetDeviceProvider(from_device, "CopyBytes");
  // Page-locked, where one of them has such memory and grants it.
  const size_t most = std::min(bytes, kStagingBytes);
  DeviceProvider* const pinned =
      source.PinnedHost() != nullptr ? source.PinnedHost() : target.PinnedHost();
  DeviceProvider& memory = pinned != nullptr ? *pinned : HostProvider();
  const auto release = [&](std::byte* data) { memory.Release(data, most); };
  const std::unique_ptr<std::byte[], decltype(release)> staging(AllocateAligned(memory, most, 64),
                                                                release);
  if (staging == nullptr) throw std::bad_alloc();
  for (size_t done = 0; done < bytes; done += kStagingBytes) {
    const size_t piece = std::min(bytes - done, kStagingBytes);
    fetch(source, staging.get(), from + done, piece);
    send(target, to + done, staging.get(), piece);
  }
}

}  // namespace tidepool
