// What fork() does to the process-wide state of memory/: its locks are taken before and given back
// after, in parent and child, so that a child finds all of it whole, whatever other threads were
// doing.
//
// Whoever has such a lock registers how it is taken. Levels are in the order in which the locks are
// taken: who holds one may wait for later ones only.
//
// Threads: any. Cost: none but at fork().
#ifndef TIDEPOOL_MEMORY_PROVIDER_FORK_HANDLERS_H_
#define TIDEPOOL_MEMORY_PROVIDER_FORK_HANDLERS_H_

namespace tidepool {

enum class ForkLevel {
  kReclaimer,
  kWorkspaceCensus,
  kRingCensus,
  kPoolCensus,
  kMirrorCounts,
  kOutsideBlocks,
  kLedger,
  kOwnerTree,
  kWorkspaceNames,
  kHostBlocks,
  kSmallBlocks,
  kMemoryEvents
};
inline constexpr int kForkLevels = 12;

struct ForkHandlers {
  void (*before)();     // takes the locks
  void (*in_parent)();  // gives them back
  void (*in_child)();   // likewise, where no other thread exists
};

// `handlers` must stay. One for each level; later calls for the same level do nothing.
void HandleFork(ForkLevel level, const ForkHandlers* handlers);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_FORK_HANDLERS_H_
