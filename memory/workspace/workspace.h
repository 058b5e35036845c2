// Workspace: memory that is learned in one cycle and only reused in the following ones.
//
//   Workspace workspace("step");         // learns, and grows; workspace_config.h has other policies
//   for (...) {
//     WorkspaceScope scope(workspace);   // one cycle: what is allocated on this thread lives here
//     ...
//   }                                    // all of it is gone; the pages are kept
//
// A cycle begins when a closed workspace is entered and ends when that scope ends. Requests are
// placed by the plan (kOptimized, kTraining; what it does not foresee in free ranges of the pages) or one
// behind the other; what does not fit is served by the spill policy from kept blocks. A plan is never
// trusted: each request is compared with what was learned, and the earlier tenants of its range must be
// gone.
//
// Ownership: the workspace owns its pages; arrays share nothing with it but a stamp, so an array
// that outlives its cycle, or the workspace, is detected, never read.
// Threads: open on one thread at a time; another thread that enters it meanwhile gets an error.
// Arrays may be released on any thread. Distinct workspaces are independent. The accessors and stats()
// may be called from any thread, to watch a workspace at work: another thread than the one that has it
// open sees numbers that are somewhat behind, and not all of one moment. PlannedRequests() needs a
// closed workspace or the thread that has it open.
// The Reclaimer takes a closed workspace's pages at most; the next cycle takes them again, and its
// scope throws OutOfMemoryError when they cannot be had. A thread that enters while the Reclaimer is
// at work waits asleep, for one step of at most 256 MiB, and so does Trim() and what else needs a
// closed workspace; within a callback of the Reclaimer or of memory events, which may be in the
// middle of that work, they throw kFailedPrecondition instead.
// Cost: enter and leave tens of nanoseconds; a planned request a few.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/planning/placement_problem.h"
#include "tidepool/memory/workspace/workspace_config.h"

namespace tidepool {

class WorkspaceCore;
struct PoolState;

// Since the workspace was made, and of this moment.
struct WorkspaceStats {
  uint64_t cycles = 0;              // ended
  uint64_t plans = 0;               // made so far
  size_t plans_kept = 0;            // now; more than one under kTraining
  uint64_t plans_improved = 0;      // by the search on the background thread
  uint64_t cycles_not_planned = 0;  // though no plan serves them, because plans did not pay
  uint64_t plans_given_up = 0;  // because they were far larger than what was alive in their cycles
  uint64_t plan_switches =
      0;  // times a cycle changed its plan, because it was another than was expected
  size_t size_bytes = 0;          // learned, planned or initial
  size_t planned_peak_bytes = 0;  // of the plan in use; 0 without one
  size_t live_lower_bound_bytes =
      0;                        // most bytes alive at once in the cycle the plan was made from
  size_t requested_bytes = 0;   // sum of the requests of that cycle: what no reuse would need
  size_t planned_requests = 0;  // per cycle
  uint64_t hits = 0;            // requests served from the pages, by plan or not
  uint64_t misses = 0;          // requests a plan existed for but could not be followed
  uint64_t spills = 0;          // requests served outside the pages, learning cycles included
  uint64_t spilled_bytes = 0;   // of these requests
  uint64_t leaked_arrays = 0;   // alive when their cycle ended
  uint64_t leaked_blocks = 0;   // of containers (memory/pmr), likewise
  size_t block_bytes = 0;       // kept for such blocks, beside the pages
  uint64_t failed_cycles = 0;   // left by an exception; they teach what memory was refused to
  uint64_t findings = 0;        // of the cycle detector (cycle_detector.h)
  uint64_t host_fallbacks = 0;  // operators meant for the device that ran on the host
  uint64_t mirror_copies_to_host = 0;    // of arrays on a device, and their bytes
  uint64_t mirror_bytes_to_host = 0;     // likewise
  uint64_t mirror_copies_to_device = 0;  // likewise
  uint64_t mirror_bytes_to_device = 0;   // likewise
  uint64_t relocations = 0;  // growths beyond the reserved addresses, which moved the pages
};

// What LoadPlans() took.
struct PlansLoaded {
  size_t plans = 0;     // that the workspace has from the file
  std::string ignored;  // why the file, or what was left of it, was not used; empty: all of it was
};

class Workspace {
 public:
  // Throws kInvalidArgument when the configuration is illegal on that device, kUnimplemented when no
  // memory provider of it is linked, OutOfMemoryError when initial_size cannot be had, and what
  // MappedFile throws.
  explicit Workspace(std::string id, WorkspaceConfig config = {}, Device device = Host());
  // Destroying an open workspace is a mistake that is reported on stderr; memory stays valid until
  // its scopes end. In a callback it may be in the middle of a Trim() or of the Reclaimer's: it
  // ends after that.
  ~Workspace();
  Workspace(const Workspace&) = delete;
  Workspace& operator=(const Workspace&) = delete;

  // As it was made, and what there is of it now.
  const std::string& id() const;
  const WorkspaceConfig& config() const;
  Device device() const;
  bool is_open() const;             // on any thread
  uint64_t generation() const;      // cycles begun
  uint64_t cycles() const;          // cycles ended
  size_t size() const;              // bytes its pages offer to requests
  size_t offset() const;            // bytes of the pages handed out in this cycle
  size_t bytes_this_cycle() const;  // requested, rounded to the alignment
  size_t bytes_last_cycle() const;  // likewise, of the cycle that ended last
  size_t peak_cycle_bytes() const;  // largest total of any cycle since Trim() or Destroy()
  size_t spilled_bytes() const;     // in this cycle
  size_t spilled_count() const;     // requests, in this cycle
  WorkspaceStats stats() const;     // all of it

  // Learns now from the cycles seen so far. The workspace must be closed.
  void Initialize();
  // Gives pages and kept blocks back and forgets what was learned; every old array is stale. The
  // workspace must be closed. It learns afresh afterwards; an initial_size is reserved again, and a
  // file mapped again, by the next cycle, whose scope throws when that cannot be had.
  void Destroy();
  // Gives back what the next cycle does not need. The workspace must be closed.
  void Trim();
  // Waits for the background search for better plans (WorkspaceConfig::plan_search_seconds) and takes
  // what it found; without this call a cycle takes it when it is there. The workspace must be closed.
  void FinishPlanSearch();

  // Plans in a file, so that a job that starts again need not learn (plan_file.h). Both need a
  // closed workspace that learns lifetimes (kFailedPrecondition). Saving is all or nothing, errors
  // as AtomicFile's. Loading never trusts the file: one that is missing, damaged, of another
  // version or alignment is ignored, and so are plans that are too large for max_size, a budget,
  // half of the host's memory (MostBelievedPlanBytes) or for what is kept, with the reason in the
  // result; plans that are loaded are followed as far as cycles do as they say. They take no pages
  // before a cycle begins as one of them does; where pages are refused then, the cycle learns as if
  // there had been no file.
  void SavePlans(const std::string& path) const;
  PlansLoaded LoadPlans(const std::string& path);

  // The cycle as the plan last used has it: requests in order, lifetimes counted in requests (a
  // placement problem for `tidepool plan`). Empty without a plan. kFailedPrecondition while another thread has
  // the workspace open.
  std::vector<LifetimeBuffer> PlannedRequests() const;
  // Why cycles have no plan, as text: a line for each kind of cycle whose plan was given up and is not
  // back, however often that was (its requests, the bytes that a plan of all its lifetimes needs, those
  // alive at once, the cycle since when; the 16 oldest, then how many more), and one where planning
  // waits because cycles never come again. Empty: neither is so. The workspace must be closed.
  std::string PlanReport() const;

  // For the runtime:
  WorkspaceCore* core() const { return core_; }

  // One of a WorkspacePool's, without pages of its own.
  static std::unique_ptr<Workspace> OfPool(const std::string& id, const WorkspaceConfig& config,
                                           Device device, std::shared_ptr<PoolState> pool);

 private:
  explicit Workspace(WorkspaceCore* core);  // throws std::bad_alloc; the core is the caller's then

  WorkspaceCore* core_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_WORKSPACE_H_
