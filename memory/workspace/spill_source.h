// What serves the requests of a workspace that its pages do not: kept blocks, guard pages or the heap.
//
// One interface, so that a workspace does not know which. The bookkeeping of blocks lies outside of
// their memory, which may be any device's. Threads: the workspace's.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_SPILL_SOURCE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_SPILL_SOURCE_H_

#include <cstddef>
#include <memory>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/memory/workspace/owned_bytes.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

struct SpillBlock {
  std::byte* data = nullptr;
  void* token = nullptr;  // the source's; never null
};

class SpillSource {
 public:
  virtual ~SpillSource() = default;
  // `bytes` as asked for; `rounded` up to the alignment is what is given. Throws OutOfMemoryError,
  // nothing changed.
  virtual SpillBlock Allocate(size_t bytes, size_t rounded) = 0;
  // The same sizes as given to Allocate.
  virtual void Release(SpillBlock block, size_t bytes, size_t rounded) noexcept = 0;
  // Whether Trim() might give anything back.
  virtual bool keeps_any() const { return false; }
  // Gives back what is kept and not in use.
  virtual void Trim() noexcept {}
  // A cycle has ended. Gives back what the last cycles did not use, by a rule of its own.
  virtual void EndCycle() noexcept {}
};

// As the configuration has it: guard pages in guard mode, the heap under kAlways, else a pool. What a
// source keeps is a part of `owned`.
std::unique_ptr<SpillSource> MakeSpillSource(const WorkspaceConfig& config, size_t alignment,
                                             DeviceProvider& provider, MemoryOwner& owner,
                                             OwnedBytes& owned);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_SPILL_SOURCE_H_
