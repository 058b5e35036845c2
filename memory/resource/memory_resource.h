// MemoryResource: where blocks of memory come from. One behaviour a class, composed by wrapping.
//
//   ProviderBlocks blocks(HostProvider());            // takes each from the device
//   LimitResource limited(blocks, size_t{64} << 20);  // at most 64 MiB of them at once
//   CountResource counted(limited);                   // how many, how large, how many refused
//   Pool pool(counted, 1 << 20, 64);                  // keeps what comes back, cuts it up
//   const Allocation block = pool.Allocate(1000, 64);
//   if (block) pool.Release(block.token, 1000, 64);
//
// docs/resources.md has all of them in a table.
//
// Lack of memory is an answer here, not an exception: whoever asks knows what to do then, and
// AllocateOrThrow() is for those who do not. A wrapper that is refused by what it wraps has changed
// nothing. Nothing touches the bytes unless its header says so, so every device is served.
//
// Ownership: a wrapper refers to what it wraps, which must outlive it. A resource may end before
// blocks had from it are released only if its header says so. Threads: said by each class; wrappers
// without a word of their own are as what they wrap.
#ifndef TIDEPOOL_MEMORY_RESOURCE_MEMORY_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_MEMORY_RESOURCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tidepool/memory/device.h"

namespace tidepool {

class MemoryResource;
class Pages;  // provider/pages.h

enum class Refusal : uint8_t {
  kNone,
  kExhausted,   // there is no more; something may come back
  kOverLimit,   // there may be more, but a limit or a budget stands in the way
  kImpossible,  // such a size or alignment cannot be had: it is of no use to make room
};

struct Allocation {
  std::byte* data = nullptr;  // on the resource's device
  void* token = nullptr;      // names the block to its resource, when it is released; not null
  // Of a refused one:
  Refusal refusal = Refusal::kNone;
  const MemoryResource* refused_by = nullptr;  // the innermost that refused; says why in words
  int64_t missing_bytes = 0;                   // would have to go, at least
  int64_t reclaimed_bytes = 0;                 // went, and it was not enough

  explicit operator bool() const { return token != nullptr; }

  static Allocation Refused(Refusal why, const MemoryResource* by, size_t missing) {
    const auto bytes = static_cast<int64_t>(missing < SIZE_MAX / 4 ? missing : SIZE_MAX / 4);
    return {nullptr, nullptr, why, by, bytes, 0};
  }
};

class MemoryResource {
 public:
  // No request beyond it can be served by anybody.
  static constexpr size_t kMostBytes = size_t{1} << 46;

  virtual ~MemoryResource() = default;

  // A block of at least `bytes`, 0 included, with kReadableTailBytes (device_provider.h) behind it
  // unless the resource says otherwise. `alignment`: a power of two; what the device needs is seen
  // to. Throws std::bad_alloc where its own books cannot grow, Error where the device fails; never
  // for lack of memory. Nothing is changed in these cases, but that a wrapper whose books cannot grow has
  // given back to what it wraps the block that it had from there: a Pool below may keep a chunk more than
  // before, until it is trimmed.
  virtual Allocation Allocate(size_t bytes, size_t alignment) = 0;
  // The token of a block that was granted, with the same `bytes` and `alignment`.
  virtual void Release(void* token, size_t bytes, size_t alignment) noexcept = 0;

  virtual Device device() const = 0;
  // "at most 67108864 bytes of blocks of host": from the outermost inwards, for messages.
  virtual std::string Describe() const = 0;

  // What a block takes from the system in the end as far as that is known: at least `bytes`; where
  // it is more, whole pages, readable tail included. SIZE_MAX where there can be no such block.
  virtual size_t FootprintBytes(size_t bytes, size_t alignment) const {
    static_cast<void>(alignment);
    return bytes;
  }

  // Addresses for `bytes` and their readable tail, aligned for any block, whose memory comes and goes in
  // parts: all of them are a hole at first. They are not among the resource's blocks, and must not outlive it.
  // Null: refused, or the resource has no such. Throws as Allocate().
  virtual std::unique_ptr<Pages> ReservePages(size_t bytes);

  // What the resource has taken and is on no ledger yet, live blocks and kept ones: its holder
  // accounts for it. 0 for those that keep nothing back or charge the ledger themselves.
  virtual size_t owned_bytes() const { return 0; }
  // Give back kept memory without live blocks: all of it, or where none was alive since the last
  // `uses` calls of TrimIdle. Return bytes.
  virtual size_t Trim() noexcept { return 0; }
  virtual size_t TrimIdle(int uses) noexcept {
    static_cast<void>(uses);
    return 0;
  }

  // Why it refused `refused`, thrown as OutOfMemoryError with the ledger. On `refused.refused_by`.
  [[noreturn]] virtual void ThrowRefused(const Allocation& refused, size_t bytes,
                                         size_t alignment) const;

 protected:
  MemoryResource() = default;
  MemoryResource(const MemoryResource&) = delete;
  MemoryResource& operator=(const MemoryResource&) = delete;
};

// For those who cannot go on without. Throws OutOfMemoryError: who refused what and why.
Allocation AllocateOrThrow(MemoryResource& resource, size_t bytes, size_t alignment);

// What all wrappers share: what is not theirs is answered by what they wrap.
class ResourceWrapper : public MemoryResource {
 public:
  Device device() const override { return upstream_.device(); }
  size_t FootprintBytes(size_t bytes, size_t alignment) const override {
    return upstream_.FootprintBytes(bytes, alignment);
  }
  size_t owned_bytes() const override { return upstream_.owned_bytes(); }
  size_t Trim() noexcept override { return upstream_.Trim(); }
  size_t TrimIdle(int uses) noexcept override { return upstream_.TrimIdle(uses); }
  MemoryResource& upstream() const { return upstream_; }

 protected:
  explicit ResourceWrapper(MemoryResource& upstream) : upstream_(upstream) {}

 private:
  MemoryResource& upstream_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_MEMORY_RESOURCE_H_
