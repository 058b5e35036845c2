#include "tidepool/memory/spill/host_block.h"

#include <atomic>
#include <memory>
#include <string>

#include "tidepool/memory/accounting/memory_kind.h"
#include "tidepool/memory/accounting/memory_listener.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/heap.h"

namespace tidepool {
namespace {

constinit std::atomic<uint64_t> always_alive{1};

// The provider that the block is of is what `import_context` says; nothing is called for it.
class HostBlockOwner final : public BufferOwner {
  void Release(Buffer* buffer) noexcept override {
    if (buffer->closed.load(std::memory_order_relaxed) == Buffer::kNotClosed) Close(buffer);
    delete buffer;
  }
  void Close(Buffer* buffer) noexcept override {
    MemoryListener::Each([&](MemoryListener& listener) { listener.Gone(*buffer); });
    HeapRelease(buffer->data, buffer->bytes, buffer->kind,
                *static_cast<DeviceProvider*>(buffer->outside.import_context),
                buffer->outside.charged_to);
  }
  std::string DescribeStale(uint64_t) const override { return ""; }
};

constinit HostBlockOwner host_block_owner;

}  // namespace

Buffer* NewHostBlockFor(Device device, size_t bytes) {
  DeviceProvider* const pinned = GetDeviceProvider(device, "spill tier").PinnedHost();
  DeviceProvider& memory = pinned != nullptr ? *pinned : GetDeviceProvider(Host(), "spill tier");
  std::unique_ptr<Buffer> buffer(new Buffer);
  buffer->outside = {&MemoryOwner::Current(), nullptr, &memory};
  buffer->data = static_cast<std::byte*>(HeapAllocate(bytes, kHeapAlignment, MemoryKind::kAllocated,
                                                      memory, buffer->outside.charged_to));
  buffer->stamp_cell = &always_alive;
  buffer->stamp.store(1, std::memory_order_relaxed);
  buffer->bytes = bytes;
  buffer->id = NextBufferId();
  buffer->device = Host();
  buffer->kind = MemoryKind::kAllocated;
  buffer->owner = &host_block_owner;
  MemoryListener::Each([&](MemoryListener& listener) { listener.Made(*buffer); });
  return buffer.release();
}

}  // namespace tidepool
