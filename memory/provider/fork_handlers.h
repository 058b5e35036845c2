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

#include <cstdint>

namespace tidepool {

enum class ForkLevel {
  kReclaimer,
  kOwners,  // of arrays (memory/ownership)
  kHolds,
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
  kSinks,
  kMemoryEvents
};
inline constexpr int kForkLevels = 15;

struct ForkHandlers {
  void (*before)();     // takes the locks
  void (*in_parent)();  // gives them back
  void (*in_child)();   // likewise, where no other thread exists
};

// `handlers` must stay. One for each level; later calls for the same level do nothing.
//
// To be called before there are threads, from a static initialiser of whoever has the lock: what
// another thread was about to register, or to make, at a fork would never be there in the child.
void HandleFork(ForkLevel level, const ForkHandlers* handlers);
// Whether it has been.
bool IsForkHandled(ForkLevel level) noexcept;

// Calls what ToldBeforeFork() was given, of all who fork at that moment too: a thread that others wait for before they fork, and
// that forks itself, says so before it waits for any lock. First of all in every handler of layers above that the system may
// call before those here. Idempotent within a fork.
void TellBeforeFork() noexcept;
// Once; `tell` takes no lock that is held over a wait.
void ToldBeforeFork(void (*tell)() noexcept) noexcept;

// How many forks lie between the process that was started and this one. Whoever finds another number
// than an object was made under may have a lock of it that belongs to a thread that is not here. A load.
uint64_t ForksBehind() noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_FORK_HANDLERS_H_
