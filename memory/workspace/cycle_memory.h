// CycleMemory: memory of a workspace that is served as blocks without records: the nodes of
// containers (memory/pmr). The workspace tells it when cycles end and when memory is wanted back;
// it counts what it has as the workspace's.
//
// Threads: calls come from whoever is inside the workspace's gate.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_CYCLE_MEMORY_H_
#define TIDEPOOL_MEMORY_WORKSPACE_CYCLE_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace tidepool {

class CycleMemory {
 public:
  // Blocks that are still out when their cycle ends, and how large they are.
  struct Left {
    int64_t blocks = 0;
    int64_t bytes = 0;
  };

  // A cycle ends, with blocks or without; what it had in use is so no more. Blocks that are left
  // stay as they are until they come back.
  virtual Left EndCycle() noexcept = 0;
  // Within a cycle, on its thread: what is kept without blocks, and what other threads have released,
  // counts as in use no more.
  virtual void GiveUnused() noexcept = 0;
  // In a cycle too, as what limits leave is wanted for something else: that goes back to the system. Returns how many bytes went.
  virtual size_t GiveBackUnused() noexcept = 0;
  // Everybody is asked for memory, by the thread that has the cycle open. Whether that is for a block of this, which then
  // lacks memory rather than keeps it.
  virtual bool AsksForItself() noexcept = 0;
  // Another cycle has ended, with blocks or without: what nobody has used for some goes.
  virtual void Age() noexcept = 0;
  // What is kept without blocks goes.
  virtual void Trim() noexcept = 0;
  // The workspace is gone, and is not asked for anything from here on.
  virtual void Abandon() noexcept = 0;

 protected:
  ~CycleMemory() = default;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_CYCLE_MEMORY_H_
