// MemoryProfile: what a program's memory does, as a page to look at.
//
//   MemoryProfile profile;
//   ... work ...
//   profile.WriteHtml("memory.html");         // one file: opens in any browser, without a network
//   profile.WriteChromeTrace("memory.json");  // for https://ui.perfetto.dev and chrome://tracing
//
// The page shows memory over time by kind, owner or tag, device by device; the requests of each cycle of a
// workspace as rectangles of time by address, with the least any placement could take and what this one took;
// cycles compared; what leaked, missed its plan or lay outside; every array with its operator, shape, owner, call
// stack and lifetime, found by search. docs/memory_viewer.md is the guide.
//
// The curves are the ledger's (memory_tracker.h): what it held at the start is in them, marked so. The times of a
// request are those at which it was made, and for its end that of the request before which it was released. Bytes of
// containers (memory/pmr) within a cycle that also makes arrays count as pages that nobody uses.
//
// One recording at a time in a process: another one is kFailedPrecondition. Cycles that are open when it begins or
// ends are in the totals by what the ledger says between cycles. While it runs MemoryTracing is on, whose state is
// in the ledger as of kind workspace: 144 bytes for each request of a cycle. Names of functions in call stacks are
// those that the program's symbol table has.
//
// Threads: records all; the object is one thread's. fork(): a child records nothing. Cost while it runs: 85,000
// instructions for each request of a cycle and 50,000 for each array on the heap, nearly all for call stacks (ten to
// twenty microseconds), 100 bytes for each that is kept (cycles that are alike are kept once); afterwards and before:
// one load for each heap array, nothing on the way of a planned request.
#ifndef TIDEPOOL_MEMORY_PROFILE_MEMORY_PROFILE_H_
#define TIDEPOOL_MEMORY_PROFILE_MEMORY_PROFILE_H_

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "tidepool/memory/accounting/owner_lease.h"
#include "tidepool/memory/profile/profile_data.h"

namespace tidepool {

// What is recorded, and how much of it at most.
struct MemoryProfileOptions {
  std::string title = "Memory";  // of the page
  // Arrays, requests of cycles that differ, and changes of the ledger; at least 1.
  size_t max_records = size_t{1} << 20;
  bool sites = true;  // call stacks: half of what recording takes
};

class MemoryProfile {
 public:
  // Records from here on.
  explicit MemoryProfile(MemoryProfileOptions options = {});
  ~MemoryProfile();
  MemoryProfile(const MemoryProfile&) = delete;
  MemoryProfile& operator=(const MemoryProfile&) = delete;

  // Idempotent; what follows does so first.
  void Stop();

  // What was recorded; lives as long as this.
  const ProfileData& data();
  // At most 5 MB, whatever was recorded. The whole file or, on an error (AtomicFile's), nothing.
  void WriteHtml(const std::string& path);
  // At most 100 MB.
  void WriteChromeTrace(const std::string& path);

 private:
  const MemoryProfileOptions options_;
  std::optional<MemoryOwnersHold> owners_{std::in_place};  // until their names are in `data_`
  bool running_ = true;
  ProfileData data_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_MEMORY_PROFILE_H_
