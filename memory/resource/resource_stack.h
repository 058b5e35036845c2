// Owns a composition: what was added last is asked, and ends first.
//
//   ResourceStack spills;
//   MemoryResource& pages = spills.Add<PagesResource>(PagesOptions{.owner = &owner}, provider);
//   spills.Add<Pool>(pages, size_t{1} << 20, 64);
//
// Threads: as what was added last; adding, one at a time.
#ifndef TIDEPOOL_MEMORY_RESOURCE_RESOURCE_STACK_H_
#define TIDEPOOL_MEMORY_RESOURCE_RESOURCE_STACK_H_

#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tidepool/memory/resource/memory_resource.h"

namespace tidepool {

class ResourceStack final : public MemoryResource {
 public:
  ResourceStack() = default;
  ~ResourceStack() override {
    while (!layers_.empty()) layers_.pop_back();
  }

  // At least one, before anything else is called.
  template <typename Resource, typename... Arguments>
  Resource& Add(Arguments&&... arguments) {
    auto layer = std::make_unique<Resource>(std::forward<Arguments>(arguments)...);
    Resource& added = *layer;
    layers_.push_back(std::move(layer));
    return added;
  }

  Allocation Allocate(size_t bytes, size_t alignment) override {
    return top().Allocate(bytes, alignment);
  }
  void Release(void* token, size_t bytes, size_t alignment) noexcept override {
    top().Release(token, bytes, alignment);
  }
  Device device() const override { return top().device(); }
  std::string Describe() const override { return top().Describe(); }
  size_t FootprintBytes(size_t bytes, size_t alignment) const override {
    return top().FootprintBytes(bytes, alignment);
  }
  size_t owned_bytes() const override { return top().owned_bytes(); }
  size_t Trim() noexcept override { return top().Trim(); }
  size_t TrimIdle(int uses) noexcept override { return top().TrimIdle(uses); }

 private:
  MemoryResource& top() const { return *layers_.back(); }

  std::vector<std::unique_ptr<MemoryResource>> layers_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_RESOURCE_RESOURCE_STACK_H_
