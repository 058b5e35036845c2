// The policies of a workspace: what each value does and what it costs.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_POLICIES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_POLICIES_H_

#include <cstdint>

namespace tidepool {

enum class AllocationPolicy : uint8_t {
  kStrict,        // exactly the initial, learned or planned size
  kOverallocate,  // plus WorkspaceConfig::overallocation_limit
  kAlways,        // every request gets a fresh block that dies with the cycle; slow, finds bugs
};

// What becomes of the pages' size from what cycles asked for.
enum class LearningPolicy : uint8_t {
  kNone,       // initial_size only
  kFirstLoop,  // the first non-empty cycle sets the size
  kOverTime,   // the largest of several cycles sets the size
  kOptimized,  // as kFirstLoop, and lifetimes become a plan: peak of the live set, not the sum
  kTraining,  // as kOptimized, with a plan for each kind of cycle that comes again; outliers are forgotten
};

// On the host all three are the same.
enum class MirroringPolicy : uint8_t {
  kEnabled,   // device memory; a host copy is made at the first host access
  kDisabled,  // device memory only: a host copy is an error that says so
  kHostOnly,  // host memory, page-locked where the device's provider has such
};

// What becomes of a request that does not fit.
enum class SpillPolicy : uint8_t {
  kFail,  // a request that does not fit throws; nothing changed. Where lifetimes are learned it fits if the
  // pages have room beside what is alive, whatever a plan keeps that for; else behind the last one.
  // Not in DebugMode::kSpillEverything and kGuard, which serve every request elsewhere
  kReallocate,  // served outside now; the workspace grows before the next cycle, if it learns
  kExternal,    // served outside; no growth
};

// When the pages are free again.
enum class ResetPolicy : uint8_t {
  kBlockLeft,           // starts over at each cycle
  kEndOfBufferReached,  // ring of leased slots: RingWorkspace
};

// What opening a slot does when all slots of a ring are taken.
enum class RingFullPolicy : uint8_t {
  kWait,   // waits until one is released
  kSpill,  // opens a temporary slot outside the ring, gone when it is released
};

// Where the pages are.
enum class LocationPolicy : uint8_t {
  kRam,   // memory of the workspace's device
  kMmap,  // a shared mapping of WorkspaceConfig::temp_file_path; contents survive reopening
};

// What a program runs with; networks are made with one. Off has two names: kNone is the program's choice,
// for good; DebugMode::kBypassEverything is the switch of somebody who looks for a mistake and wants to
// leave the rest of the configuration as it is. They do the same.
enum class WorkspaceMode : uint8_t {
  kEnabled,  // as the other policies say
  kSingle,  // one bump workspace for everything in an iteration: no plans, so kFirstLoop or kOverTime
  kSeparate,  // one per purpose, working memory reset per layer: of networks; refused by workspaces
  kNone,      // off: plain heap
};

// Takes effect whatever is to be learned or spilled.
enum class DebugMode : uint8_t {
  kDisabled,
  kSpillEverything,   // every request is served outside the pages; the size is never learned
  kBypassEverything,  // the workspace is transparent: arrays are plain heap arrays
  kGuard,             // each request on pages of its own, filled with NaNs, a guard page behind it;
                      // touching it after its release or its cycle faults; findings throw
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_POLICIES_H_
