// What a byte is for. Every byte the runtime knows of is counted under exactly one kind.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_KIND_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_KIND_H_

#include <cstdint>

namespace tidepool {

enum class MemoryKind : uint8_t {
  kAllocated,         // used by live arrays and operator scratch, on the heap or in a workspace
  kExternal,          // used here, owned elsewhere: packed weights, imported and mapped buffers
  kUnreferenced,      // owned by a workspace or cache, used by no array: what Trim may give back
  kWorkspace,         // the runtime's own state: records, plans, handles
  kGradientStandard,  // gradients of parameters
  kGradientExternal,  // gradients handed in from outside
  kGradientDeferred,  // gradients accumulated and not yet applied
};
inline constexpr int kMemoryKinds = 7;  // how many there are

// More than any machine has: who counts so many bytes at a time is mistaken, and is refused.
inline constexpr int64_t kMostCountedBytes = int64_t{1} << 48;
// What may be claimed of one device, and reserved of all, at once: the same memory may be imported many
// times. Few enough that the sum over all devices is a number.
inline constexpr int64_t kMostCountedBytesInAll = int64_t{1} << 57;

// False for a number that was cast and is no kind.
constexpr bool IsMemoryKind(MemoryKind kind) { return static_cast<int>(kind) < kMemoryKinds; }

// As reports have it; "unknown" of what is no kind.
constexpr const char* MemoryKindName(MemoryKind kind) {
  constexpr const char* kNames[kMemoryKinds] = {
      "allocated",         "external",          "unreferenced",     "workspace",
      "gradient standard", "gradient external", "gradient deferred"};
  return IsMemoryKind(kind) ? kNames[static_cast<int>(kind)] : "unknown";
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_KIND_H_
