#include "tidepool/memory/workspace/spill_source.h"

#include <algorithm>

#include "tidepool/memory/provider/guard_pages.h"
#include "tidepool/memory/resource/heap.h"
#include "tidepool/memory/resource/pool.h"

namespace tidepool {
namespace {

// Blocks of chunks that are kept between cycles. They are given back after some cycles that did not
// spill; who spills again soon after that keeps them longer.
class PoolSpills final : public SpillSource {
 public:
  PoolSpills(const WorkspaceConfig& config, size_t alignment, DeviceProvider& provider,
             MemoryOwner& memory_owner, OwnedBytes& owned)
      : pool_(config.temp_block_size, alignment, OptionsOf(config, memory_owner), provider),
        owned_(owned) {}

  SpillBlock Allocate(size_t, size_t rounded) override {
    Pool::Block* const block = pool_.Allocate(rounded);
    spilled_ = true;
    owned_.Set(pool_.owned_bytes());
    return {block->data, block};
  }
  void Release(SpillBlock block, size_t, size_t) noexcept override {
    pool_.Release(static_cast<Pool::Block*>(block.token));
  }
  bool keeps_any() const override { return pool_.owned_bytes() > 0; }
  void Trim() noexcept override {
    pool_.Trim();
    owned_.Set(pool_.owned_bytes());
  }
  void EndCycle() noexcept override {
    if (spilled_) {
      if (idle_cycles_ >= kept_cycles_ && idle_cycles_ <= 4 * kept_cycles_) {
        kept_cycles_ = std::min(kMostCycles, 2 * kept_cycles_);
      }
      spilled_ = false;
      idle_cycles_ = 0;
      return;
    }
    idle_cycles_ = std::min(idle_cycles_ + 1, 4 * kMostCycles + 1);
    if (idle_cycles_ >= kept_cycles_ && pool_.owned_bytes() > 0) Trim();
  }

 private:
  static constexpr int kMostCycles = 96;

  static PagesOptions OptionsOf(const WorkspaceConfig& config, MemoryOwner& owner) {
    PagesOptions options;
    options.large_pages = config.huge_pages;
    options.prefault = false;  // spills are rare and of unknown use
    options.owner = &owner;
    return options;
  }

  Pool pool_;
  OwnedBytes::Part owned_;
  bool spilled_ = false;  // in this cycle
  int idle_cycles_ = 0;
  int kept_cycles_ = 3;
};

class GuardSpills final : public SpillSource {
 public:
  GuardSpills(size_t alignment, MemoryOwner& memory_owner, OwnedBytes& owned)
      : guard_(size_t{4} << 30, &memory_owner), alignment_(alignment), owned_(owned) {}

  SpillBlock Allocate(size_t bytes, size_t) override {
    std::byte* const data = guard_.Allocate(bytes, alignment_);
    owned_.Set(guard_.owned_bytes());
    return {data, data};
  }
  void Release(SpillBlock block, size_t bytes, size_t) noexcept override {
    guard_.Release(block.data, bytes);
    owned_.Set(guard_.owned_bytes());
  }

 private:
  GuardPages guard_;
  const size_t alignment_;
  OwnedBytes::Part owned_;
};

class HeapSpills final : public SpillSource {
 public:
  HeapSpills(size_t alignment, DeviceProvider& provider, MemoryOwner& owner)
      : alignment_(alignment), provider_(provider), owner_(owner) {}

  SpillBlock Allocate(size_t, size_t rounded) override {
    void* const data =
        HeapAllocate(rounded, alignment_, MemoryKind::kUnreferenced, provider_, &owner_);
    return {static_cast<std::byte*>(data), data};
  }
  void Release(SpillBlock block, size_t, size_t rounded) noexcept override {
    HeapRelease(block.data, rounded, MemoryKind::kUnreferenced, provider_, &owner_);
  }

 private:
  const size_t alignment_;
  DeviceProvider& provider_;
  MemoryOwner& owner_;
};

}  // namespace

std::unique_ptr<SpillSource> MakeSpillSource(const WorkspaceConfig& config, size_t alignment,
                                             DeviceProvider& provider, MemoryOwner& owner,
                                             OwnedBytes& owned) {
  if (config.debug_mode == DebugMode::kGuard) {
    return std::make_unique<GuardSpills>(alignment, owner, owned);
  }
  if (config.policy_allocation == AllocationPolicy::kAlways) {
    return std::make_unique<HeapSpills>(alignment, provider, owner);
  }
  return std::make_unique<PoolSpills>(config, alignment, provider, owner, owned);
}

}  // namespace tidepool
