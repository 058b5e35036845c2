// For sources that align to a certain power of two only: who wants more gets a block that begins
// inside of a larger one.
//
// Threads: as what it wraps. Cost: up to the alignment in bytes.
#ifndef TIDEPOOL_MEMORY_RESOURCE_ALIGN_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_ALIGN_RESOURCE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class AlignResource final : public ResourceWrapper {
 public:
  // `most`: the largest alignment that what it wraps is asked for; a power of two.
  AlignResource(MemoryResource& upstream, size_t most) : ResourceWrapper(upstream), most_(most) {}

  Allocation Allocate(size_t bytes, size_t alignment) override {
    if (bytes > kMostBytes || alignment > kMostBytes || !std::has_single_bit(alignment)) {
      return Allocation::Refused(Refusal::kImpossible, this, bytes);
    }
    if (alignment <= most_) return upstream().Allocate(bytes, alignment);
    Allocation block = upstream().Allocate(Enlarged(bytes, alignment), most_);
    if (block) block.data += -reinterpret_cast<uintptr_t>(block.data) & (alignment - 1);
    return block;
  }
  void Release(void* token, size_t bytes, size_t alignment) noexcept override {
    if (alignment <= most_) return upstream().Release(token, bytes, alignment);
    upstream().Release(token, Enlarged(bytes, alignment), most_);
  }
  size_t FootprintBytes(size_t bytes, size_t alignment) const override {
    if (bytes > kMostBytes || alignment > kMostBytes) return SIZE_MAX;
    if (alignment <= most_) return upstream().FootprintBytes(bytes, alignment);
    return upstream().FootprintBytes(Enlarged(bytes, alignment), most_);
  }
  std::string Describe() const override { return "aligned " + upstream().Describe(); }

 private:
  size_t Enlarged(size_t bytes, size_t alignment) const { return bytes + alignment - most_; }

  const size_t most_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_ALIGN_RESOURCE_H_
