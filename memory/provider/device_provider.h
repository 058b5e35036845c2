// DeviceProvider: how memory of a device is had, given back, copied and filled.
//
// The host's is built in. A backend plugs in that of its device by linking a target that is
// alwayslink and holds
//
//   const DeviceProviderRegistrar registrar(DeviceType::Named("mine"), &MakeMyProvider);
//
// The factory is called once per device, at its first use, never before main(). A library that is
// opened later may hold one too; its devices are there from then on. What memory/ does
// on top of it (growing pages, pools of blocks, workspaces, mirrors) keeps its books outside of the
// memory, so none of it needs to touch the bytes.
//
// Two ways to have memory. Address ranges are reserved once and committed piece by piece from the
// front, so that pages can grow without moving. Blocks are single allocations.
// Refusals are results (null, false): callers know what to do then, or throw with the ledger. After one
// they ask ThrowIfLost, so that a device that does nothing any more is not taken for one without memory.
//
// A device may work while the host goes on. Its kernels run in the order they are queued, on one of its
// compute queues (device_queue.h), of which number 0 is always there; copies with host memory may run on
// queues of their own beside them, and each waits for what it is told to: a QueuePoint is a place in that
// work that has passed when all before it is done. The functions without a point are ordered after every
// kernel and copy queued so far, in any queue, and done when they return. Memory that is given back
// (Decommit, Unreserve, Release) may still be used by what is queued: the provider waits for that, not for
// the whole device. A provider of several queues may take and give back blocks in the order of one
// instead: of QueueHere(device()), after which everything that uses the block there is queued, and which
// the others that have used it have been waited for by, unless it takes note of those (NoteUsers). One that
// keeps blocks with their points is kept_blocks.h.
//
// What a function throws that is neither an Error nor std::bad_alloc reaches callers as kInternal with the device and what it
// said; memory that is not aligned as it should is given back and refused with kInternal (provider_calls.h).
//
// Functions are called in the middle of requests, under locks of Tidepool, with the thread's current workspace as it is: they
// make no arrays, open no workspaces and queues, and wait for nobody who does. A thread that is cancelled (pthread_cancel)
// unwinds through those that copy, open queues and wait; through others, whose callers may not throw, the program ends, as
// everywhere in C++: they are to hold cancellation off.
//
// Threads: any, all functions. Cost: a system or driver call each; never on a planned request.
#ifndef TIDEPOOL_MEMORY_PROVIDER_DEVICE_PROVIDER_H_
#define TIDEPOOL_MEMORY_PROVIDER_DEVICE_PROVIDER_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tidepool/memory/device.h"

namespace tidepool {

// Bytes that are always readable behind committed pages and blocks: vector kernels read past the
// end.
inline constexpr size_t kReadableTailBytes = 64;

// Ranges begin at a multiple of it, so no array may ask for more.
inline constexpr size_t kMaxAlignment = size_t{2} << 20;

// Checked when a provider is made, and the same from then on: one whose traits cannot be is refused with kInvalidArgument.
struct MemoryTraits {
  size_t alignment =
      16;  // what the device needs at least of every array; a power of two up to kMaxAlignment
  size_t granularity = 4096;  // commits are multiples of it; a power of two
  size_t large_granularity =
      0;  // of commits that may use large pages: a power of two; 0: no such pages
  size_t reserve_bytes = 0;    // address space a growing range should have
  bool host_readable = false;  // the host may read and write at the addresses
};

// Compute queues of one device.
inline constexpr int kMostQueues = 16;

// A place in a device's work, which passes once. A number of the provider's, good for ever.
struct QueuePoint {
  uint64_t value = 0;  // 0: has passed
};

class DeviceProvider {
 public:
  virtual std::string name() const = 0;     // "host", "simulated:0", "pinned memory of cuda:1"
  virtual Device device() const = 0;        // whose bytes these are in the ledger
  virtual MemoryTraits traits() const = 0;  // the same in every call

  // Addresses without memory, aligned to kMaxAlignment and both granularities. Null when refused.
  virtual std::byte* Reserve(size_t bytes) noexcept = 0;
  // The whole range as reserved, committed parts and all.
  virtual void Unreserve(std::byte* base, size_t bytes) noexcept = 0;
  // Memory of unknown contents behind a part of a reserved range. `at` and `bytes` are multiples of
  // the granularity; `large_pages`: where they fit. False when refused; nothing changed then.
  virtual bool Commit(std::byte* at, size_t bytes, bool large_pages) noexcept = 0;
  // False when refused: the memory is still there then.
  virtual bool Decommit(std::byte* at, size_t bytes) noexcept = 0;
  // Makes first use of committed memory cost nothing later, where that can be done.
  virtual void Prefault(std::byte*, size_t) noexcept {}

  // A single block with a readable tail. `alignment`: a power of two, at least that of traits().
  // Null when refused.
  virtual std::byte* Allocate(size_t bytes, size_t alignment) noexcept = 0;

  // A block of Allocate, with the same `bytes`.
  virtual void Release(std::byte* data, size_t bytes) noexcept = 0;
  // The same for several, where that is cheaper together.
  struct Block {
    std::byte* data;  // of Allocate
    size_t bytes;     // as asked for there
  };
  // `blocks` lives as long as the call.
  virtual void ReleaseMany(const Block* blocks, int count) noexcept {
    for (int i = 0; i < count; ++i) Release(blocks[i].data, blocks[i].bytes);
  }

  // Done when they return. Ranges do not overlap; with 0 bytes the pointers may be anything. Throw
  // kInternal when the device fails.
  virtual void CopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes) = 0;
  virtual void CopyToHost(std::byte* to_host, const std::byte* from, size_t bytes) = 0;
  virtual void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void Fill(std::byte* to, std::byte value, size_t bytes) = 0;

  // Copies that begin when `after` has passed and may be under way when these return; the bytes of
  // both sides are the device's until the point returned has passed. Overlap with kernels takes host
  // memory of PinnedHost(). Throw kInternal when the device refuses; nothing is queued then.
  virtual QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from_host, size_t bytes,
                                       QueuePoint after) {
    WaitFor(after);
    CopyFromHost(to, from_host, bytes);
    return {};
  }
  // The other way.
  virtual QueuePoint QueueCopyToHost(std::byte* to_host, const std::byte* from, size_t bytes,
                                     QueuePoint after) {
    WaitFor(after);
    CopyToHost(to_host, from, bytes);
    return {};
  }
  // One more compute queue, with a number from 1 on that none has; `native`, if not null, is the caller's own
  // to be used for it (a cudaStream_t). Throws kUnimplemented where there is one queue only, kInternal when
  // the device refuses. DeviceQueue calls these, one at a time for a device.
  virtual void OpenQueue(int queue, void* native);
  // What is queued in it is still done, and points of it stay good.
  virtual void CloseQueue(int /*queue*/) noexcept {}

  // What the device's own interface calls that queue; null where there is none.
  virtual void* NativeQueue(int /*queue*/) { return nullptr; }
  // What is queued there is kept for replays, which come after all that their queue has to: it needs no
  // order of its own (ndarray/capture).
  virtual bool IsCapturing(int /*queue*/) const { return false; }

  // Behind the kernels queued so far in that compute queue, by any thread.
  virtual QueuePoint ComputePoint(int /*queue*/) { return {}; }
  // Kernels queued there from here on begin when `point` has passed; the host does not wait. It may throw anything, such as
  // std::bad_alloc where the provider's own lists have no memory. Nothing is ordered then: whoever called has the host wait for
  // the point (ComputeAfterOrWait, provider_calls.h), or does not queue what needs it.
  virtual void ComputeAfter(int /*queue*/, QueuePoint) {}
  // Behind what earlier owners of a block's memory may still do with it; the block is one of Allocate, not
  // used yet. Work of the queue that it was allocated in comes after that in any case.
  virtual QueuePoint EarlierUses(const std::byte* /*data*/, size_t /*bytes*/) { return {}; }

  // Whether it has, without waiting.
  virtual bool HasPassed(QueuePoint) { return true; }
  // Throws kInternal when the work before it failed. Whatever it throws, that work is over then, and uses nothing any more.
  virtual void WaitFor(QueuePoint) {}

  // After a refusal: throws DeviceLostError when the reason is that the device is lost (device_loss.h), which a
  // provider finds out here and tells LoseDevice. As it is, of what has been told.
  virtual void ThrowIfLost(const std::string& who);

  // Before Release of a block which those compute queues have used (a bit each), and no other. False: the provider
  // takes blocks back in the order of the thread's queue alone, which the caller orders behind them.
  virtual bool NoteUsers(const std::byte* /*data*/, uint32_t /*queues*/) noexcept { return false; }

  // Host memory this device copies from and to fastest (page-locked); null: it has none of its own
  // and ordinary host memory serves.
  virtual DeviceProvider* PinnedHost() { return nullptr; }

 protected:
  ~DeviceProvider() = default;
};

// Null: there is no such device, and it is not asked again before LookForDevicesAgain(). Called once
// per device, but again at the next use after it threw or returned what is refused with kInvalidArgument: a provider of
// another device, or whose traits cannot be; the result is never destroyed. One factory runs at a
// time. It may look other devices up, of any type, in its own thread (to share a context with them): these are
// made in it. For the device that it makes, and for one whose factory looked that one up, it gets null; what returns null itself
// after the latter is asked again.
using DeviceProviderFactory = DeviceProvider* (*)(uint8_t index);

// Makes devices of a type known: a static variable of a target that is alwayslink.
class DeviceProviderRegistrar {
 public:
  // A second factory of one type, one for the host or for a type that nobody has named, and null end the program.
  DeviceProviderRegistrar(DeviceType type, DeviceProviderFactory factory);
};

// A provider of a device other than the host has been found.
extern std::atomic<bool> devices_in_use;

// Null when no provider of that device is linked or there is no such device. One load once known,
// two where there is none.
DeviceProvider* FindDeviceProvider(Device device);
// Factories are asked again for devices that were not there: one may have come since. Any thread.
void LookForDevicesAgain() noexcept;
// Throws kUnimplemented or kNotFound saying what `who` lacks and what to link; kInvalidArgument for
// a device that there cannot be (memory/device_check.h).
DeviceProvider& GetDeviceProvider(Device device, std::string_view who);

// Puts `provider` in the place of that of `device` and returns the earlier one. For tests, while
// nothing else looks one up; memory had from the one must be accepted by the other.
DeviceProvider* SwapDeviceProviderForTesting(Device device, DeviceProvider* provider);

// Between any two devices, also of different types (then through host memory, in pieces).
void CopyBytes(Device to_device, std::byte* to, Device from_device, const std::byte* from,
               size_t bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_DEVICE_PROVIDER_H_
