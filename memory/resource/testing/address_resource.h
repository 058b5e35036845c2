// Addresses without memory behind them, in whole pages: for what keeps its books outside of the
// memory, so that tests of hundreds of GiB take moments. Touching the blocks faults.
//
// Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_RESOURCE_TESTING_ADDRESS_RESOURCE_H_
#define TIDEPOOL_MEMORY_RESOURCE_TESTING_ADDRESS_RESOURCE_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class AddressResource final : public MemoryResource {
 public:
  static constexpr size_t kPageBytes = 4096;

  // At most so much at once.
  void set_capacity(size_t bytes) { capacity_ = bytes; }
  size_t taken_bytes() const { return taken_; }
  size_t requests() const { return requests_; }  // ever
  size_t live_blocks() const { return blocks_.size(); }

  Allocation Allocate(size_t bytes, size_t alignment) override {
    ++requests_;
    const size_t footprint = FootprintBytes(bytes, alignment);
    if (footprint > capacity_) return Allocation::Refused(Refusal::kImpossible, this, bytes);
    if (footprint > capacity_ - taken_) {
      return Allocation::Refused(Refusal::kExhausted, this, footprint - (capacity_ - taken_));
    }
    next_ += kMaxAlignment;  // no two blocks are neighbours
    next_ = (next_ + alignment - 1) & ~(uintptr_t{alignment} - 1);
    auto* const data = reinterpret_cast<std::byte*>(next_);
    next_ += (footprint + kMaxAlignment - 1) & ~(kMaxAlignment - 1);
    taken_ += footprint;
    blocks_[data] = footprint;
    return {data, data};
  }
  void Release(void* token, size_t, size_t) noexcept override {
    const auto found = blocks_.find(token);
    taken_ -= found->second;
    blocks_.erase(found);
  }
  // Not the host's, whose addresses AddressSanitizer watches.
  Device device() const override { return {DeviceType::Named("simulated"), 1}; }
  std::string Describe() const override { return "addresses"; }
  size_t FootprintBytes(size_t bytes, size_t) const override {
    if (bytes > kMostBytes) return SIZE_MAX;
    return (bytes + kReadableTailBytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  }

 private:
  size_t capacity_ = SIZE_MAX / 2;
  size_t taken_ = 0;
  size_t requests_ = 0;
  uintptr_t next_ = uintptr_t{1} << 45;
  std::map<void*, size_t> blocks_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_TESTING_ADDRESS_RESOURCE_H_
