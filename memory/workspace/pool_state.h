// What the workspaces of a pool share, as they see it (workspace_pool.h).
//
// Ownership: shared by the pool and its workspaces, so that the last one to go frees it. Threads: any.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_POOL_STATE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_POOL_STATE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/workspace/cycle_queues.h"
#include "tidepool/memory/workspace/pool_memory.h"
#include "tidepool/memory/workspace/shared_learner.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

// Who has the workspaces, leased and idle ones.
class PoolKeeper {
 public:
  // Of one that stays leased. At the end of the last of them, still inside the workspace's gate.
  virtual void CyclesEnded(uint64_t count) noexcept = 0;

 protected:
  ~PoolKeeper() = default;
};

struct PoolState {
  PoolState(std::string its_id, const WorkspaceConfig& its_config, size_t its_alignment,
            DeviceProvider& provider, const OwnerLease& its_owner)
      : owner(its_owner),
        id(std::move(its_id)),
        config(its_config),
        alignment(its_alignment),
        memory(id, config, alignment, provider, *owner),
        left(provider.device()),
        learner(id, config, alignment, *owner) {}

  const OwnerLease owner;
  const std::string id;
  const WorkspaceConfig config;
  const size_t alignment;
  PoolMemory memory;
  LeftInQueues left;  // of `memory`
  SharedLearner learner;
  std::weak_ptr<PoolKeeper> keeper;  // as it was before the first workspace was made
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_POOL_STATE_H_
