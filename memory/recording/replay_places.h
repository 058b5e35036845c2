// Where replayed requests go: one class an allocator, one object a thread.
#ifndef TIDEPOOL_MEMORY_RECORDING_REPLAY_PLACES_H_
#define TIDEPOOL_MEMORY_RECORDING_REPLAY_PLACES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tidepool/memory/device.h"
#include "tidepool/memory/recording/replay.h"

namespace tidepool::internal {

// Of one thread. What it has allocated any other's may release.
class ReplayThread {
 public:
  virtual ~ReplayThread() = default;
  // Null: refused. `data`: where its bytes are.
  virtual void* Allocate(const ReplayScript::Block& block, void** data) = 0;
  virtual void Release(void* block, const ReplayScript::Block& as) = 0;
  virtual void BeginCycle(const ReplayScript::Cycle&) {}
  virtual void EndCycle() {}
};

// Of one replay; outlives its threads.
class ReplayPlace {
 public:
  virtual ~ReplayPlace() = default;
  virtual std::unique_ptr<ReplayThread> ForThread() = 0;
  virtual bool writes_bytes() const { return true; }  // the host may
  // From here on the time of planning is measured, at two looks at the clock for each begin and end of a cycle. Before its
  // threads.
  virtual void WatchPlanning() {}
  // Of workspaces, when its threads have ended.
  virtual void AddCounts(ReplayRun&) const {}
  virtual double planning_seconds() const { return 0; }
};

// Null with `absent` where this machine has none of that name, or not for that device. Throws kInvalidArgument for a name
// that nobody has.
std::unique_ptr<ReplayPlace> MakeReplayPlace(const std::string& name, const ReplayScript& script,
                                             Device device, std::string* absent);

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_RECORDING_REPLAY_PLACES_H_
