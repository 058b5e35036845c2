// Single blocks outside of workspaces, counted in the ledger. The place of arrays that live in no
// workspace, and the baseline that workspaces are measured against. On the host: malloc.
//
// Every block has kReadableTailBytes readable bytes behind it. Threads: any.
#ifndef TIDEPOOL_MEMORY_RESOURCE_HEAP_H_
#define TIDEPOOL_MEMORY_RESOURCE_HEAP_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/charged_resource.h"
#include "tidepool/memory/resource/memory_resource.h"
#include "tidepool/memory/resource/provider_blocks.h"
#include "tidepool/memory/resource/reclaiming_resource.h"

namespace tidepool {

// `alignment`: a power of two; raised to what the device needs. `owner`: who it is charged to;
// null: the process. Throws OutOfMemoryError with the ledger when a budget or the provider refuses,
// after asking the Reclaimer.
void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, DeviceProvider& provider,
                   MemoryOwner* owner = nullptr);
// The same arguments as given to HeapAllocate.
void HeapRelease(void* data, size_t bytes, MemoryKind kind, DeviceProvider& provider,
                 MemoryOwner* owner = nullptr) noexcept;

// The heap as a resource, for one kind and owner: single blocks of a device, charged to the owner,
// and the Reclaimer is asked before a refusal. Threads: any.
class HeapResource final : public MemoryResource {
 public:
  // `owner` null: the process.
  HeapResource(DeviceProvider& provider, MemoryKind kind, MemoryOwner* owner = nullptr)
      : provider_(provider),
        kind_(kind),
        owner_(owner),
        blocks_(provider),
        charged_(blocks_, kind, owner, "a heap array"),
        reclaiming_(charged_) {}

  Allocation Allocate(size_t bytes, size_t alignment) override {
    return reclaiming_.AllocateAfter(charged_.AllocateFrom(blocks_, bytes, alignment), bytes,
                                     alignment);
  }
  // As Allocate(), where the provider has just refused such a block.
  Allocation AllocateAfterRefusal(size_t bytes, size_t alignment) {
    return reclaiming_.AllocateAfter(Allocation::Refused(Refusal::kExhausted, &blocks_, bytes),
                                     bytes, alignment);
  }
  void Release(void* token, size_t bytes, size_t) noexcept override {
    HeapRelease(token, bytes, kind_, provider_, owner_);
  }
  Device device() const override { return blocks_.device(); }
  std::string Describe() const override { return reclaiming_.Describe(); }

 private:
  DeviceProvider& provider_;
  const MemoryKind kind_;
  MemoryOwner* const owner_;
  ProviderBlocks blocks_;
  ChargedResource charged_;
  ReclaimingResource reclaiming_;
};

// On a device, the host unless said otherwise. Throws kUnimplemented when its provider is not
// linked.
void* HeapAllocate(size_t bytes, size_t alignment, MemoryKind kind, Device device = Host(),
                   MemoryOwner* owner = nullptr);
void HeapRelease(void* data, size_t bytes, MemoryKind kind, Device device = Host(),
                 MemoryOwner* owner = nullptr) noexcept;

// Many releases: the provider is asked once for 64 of them, with one entry in the ledger, as long
// as they are of the same kind, device and owner.
class HeapReleases {
 public:
  HeapReleases() = default;
  ~HeapReleases() { Flush(); }
  HeapReleases(const HeapReleases&) = delete;
  HeapReleases& operator=(const HeapReleases&) = delete;

  void Release(void* data, size_t bytes, MemoryKind kind, Device device,
               MemoryOwner* owner) noexcept {
    if (data == nullptr) return;
    if (count_ == kAtOnce || kind != kind_ || owner != owner_ || device != device_) {
      Flush();
      device_ = device;
      kind_ = kind;
      owner_ = owner;
    }
    blocks_[count_++] = {static_cast<std::byte*>(data), bytes};
    bytes_ += static_cast<int64_t>(bytes);
  }
  void Flush() noexcept;

 private:
  static constexpr int kAtOnce = 64;
  int count_ = 0;
  Device device_;
  MemoryKind kind_ = MemoryKind::kAllocated;
  MemoryOwner* owner_ = nullptr;
  int64_t bytes_ = 0;
  DeviceProvider::Block blocks_[kAtOnce];
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_HEAP_H_
