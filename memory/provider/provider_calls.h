// What is asked of a device's provider (device_provider.h), which may be anybody's: whatever it
// throws leaves Tidepool as an Error, and memory that does not lie as it was asked for is given
// back and refused before anything uses it.
//
// Threads: any. Cost: of what is well none but a comparison for each block or range.
#ifndef TIDEPOOL_MEMORY_PROVIDER_PROVIDER_CALLS_H_
#define TIDEPOOL_MEMORY_PROVIDER_PROVIDER_CALLS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

// Its name() for messages, or that of its device where name() throws: an error that tells of
// something else stays.
std::string ProviderName(const DeviceProvider& provider);

// Within a handler: what() of the exception at hand, with its type where that says more.
std::string DescribeException();

// Within a handler: passes Errors, std::bad_alloc (of the C++ heap) and the unwinding of a thread
// that is cancelled on, and throws kInternal in place of all else: "<call>: <where> threw <what>".
[[noreturn]] void RethrowAsError(std::string_view call, std::string_view where);
[[noreturn]] void RethrowAsError(std::string_view call, Device device);

// Returns ask(), which asks the provider of `device` for something on behalf of `call`.
template <typename Ask>
decltype(auto) AskProvider(const char* call, Device device, const Ask& ask) {
  try {
    return ask();
  } catch (...) {
    RethrowAsError(call, device);
  }
}

// Kernels queued in that compute queue from here on begin behind the point: on the device, or where
// that refuses, with whatever exception, because the host waits for the point. Throws
// DeviceLostError of a device that is lost, and kInternal where the wait failed as well.
void ComputeAfterOrWait(DeviceProvider& provider, int queue, QueuePoint point);

namespace internal {
[[noreturn]] void RefuseBlock(DeviceProvider& provider, std::byte* data, size_t bytes,
                              size_t alignment);
[[noreturn]] void RefuseRange(DeviceProvider& provider, std::byte* base, size_t bytes,
                              size_t alignment);
}  // namespace internal

// Allocate() of the provider, aligned to its own traits as well. Null when refused; throws
// kInternal for one that does not lie at a multiple of the alignment, which has been given back.
inline std::byte* AllocateAligned(DeviceProvider& provider, size_t bytes, size_t alignment) {
  alignment = std::max(alignment, provider.traits().alignment);
  std::byte* const data = provider.Allocate(bytes, alignment);
  if ((reinterpret_cast<uintptr_t>(data) & (alignment - 1)) != 0) [[unlikely]] {
    internal::RefuseBlock(provider, data, bytes, alignment);
  }
  return data;
}
// Reserve() in the same way.
inline std::byte* ReserveAligned(DeviceProvider& provider, size_t bytes) {
  const MemoryTraits traits = provider.traits();
  const size_t alignment = std::max({kMaxAlignment, traits.granularity, traits.large_granularity});
  std::byte* const base = provider.Reserve(bytes);
  if ((reinterpret_cast<uintptr_t>(base) & (alignment - 1)) != 0) [[unlikely]] {
    internal::RefuseRange(provider, base, bytes, alignment);
  }
  return base;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_PROVIDER_CALLS_H_
