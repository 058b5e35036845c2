// Addresses in the place of a device's memory, for programs that run dry (KernelsOffScope of ndarray/kernel_scopes.h) to find out
// what they will need there: a workspace counts, places and learns by them as by memory, and the device has nothing taken from it.
//
//   const AddressesOnlyScope scope;
//   Workspace workspace("dry run", config, device);   // and its pool's chunks: addresses, for as long as it is there
//
// What the workspace hands out is on the ledger and in budgets as memory is (OwnerBesideBudgets keeps it out of these). Kernels have no
// access there. What the host copies from there are zeros, and what it copies there is nowhere afterwards, but for what it writes by
// a HostView, which a mirror has (memory/mirroring). The host's own memory is none until it is touched, so workspaces of the host are
// as ever.
//
// Threads: a scope is of the thread that made it; they end in the reverse order. Cost of what is taken: a system call each.
#ifndef TIDEPOOL_MEMORY_PROVIDER_ADDRESSES_ONLY_H_
#define TIDEPOOL_MEMORY_PROVIDER_ADDRESSES_ONLY_H_

#include <cstddef>
#include <string_view>
#include <utility>

#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

namespace internal {
extern thread_local constinit bool takes_addresses_only;
}  // namespace internal

// Workspaces of devices that the thread makes while one lives take addresses and no memory.
class [[nodiscard]] AddressesOnlyScope {
 public:
  AddressesOnlyScope() : before_(std::exchange(internal::takes_addresses_only, true)) {}
  ~AddressesOnlyScope() { internal::takes_addresses_only = before_; }
  AddressesOnlyScope(const AddressesOnlyScope&) = delete;
  AddressesOnlyScope& operator=(const AddressesOnlyScope&) = delete;

 private:
  const bool before_;
};

// Within a scope the provider of addresses in the place of `provider`, with its device and traits; else, and for ordinary memory of
// the host, `provider` itself. Throws std::bad_alloc. What it returns is never destroyed.
DeviceProvider& MemoryOrAddresses(DeviceProvider& provider);

// Whose addresses these are, where they are no memory; else null. Any thread. Cost: a load where nobody takes addresses only, else a look
// at each range there is.
DeviceProvider* AddressesAt(const std::byte* at) noexcept;
// That one, or GetDeviceProvider(device, who).
DeviceProvider& ProviderAt(const std::byte* at, Device device, std::string_view who);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_ADDRESSES_ONLY_H_
