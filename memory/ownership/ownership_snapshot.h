// What the tree of owners holds: as a value, as text, and what grew between two moments.
//
// A snapshot goes through the tree node by node; nodes that come and go meanwhile are in it or not.
// Threads: any. Cost: a lock and a copy per node, and per array where arrays are asked for.
#ifndef TIDEPOOL_MEMORY_OWNERSHIP_OWNERSHIP_SNAPSHOT_H_
#define TIDEPOOL_MEMORY_OWNERSHIP_OWNERSHIP_SNAPSHOT_H_

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

#include "tidepool/memory/ownership/ownership.h"

namespace tidepool {

struct OwnedArray {
  uint64_t buffer_id;
  int64_t bytes;
  bool borrowed;     // lent to the node: it belongs to another, or to its handles
  std::string what;  // "f32 [2, 3] made at Main", of what was made while MemoryTracing was on
};

struct OwnerStats {
  std::string path;  // names from below the root: "model/predictor"
  std::string name;
  uint64_t id;  // of the node
  int depth;    // 0: the node the snapshot was asked of
  Device device;
  std::string place;  // "current", "heap", "workspace <id>", "workspace <id> (destroyed)"
  int64_t arrays;     // alive and attached to the node itself
  int64_t bytes;
  int64_t peak_bytes;  // the most its own arrays have had at once
  int64_t subtree_arrays;
  int64_t subtree_bytes;  // its own and its descendants'
  int64_t loans;          // borrowed
  int64_t resources;
  bool capped;
  double age_seconds;             // to some milliseconds
  int64_t budget_bytes;           // -1: none
  std::vector<OwnedArray> owned;  // if asked for; borrowed ones at the end
};

// Parents before children, the oldest child first.
using OwnershipSnapshot = std::vector<OwnerStats>;

OwnershipSnapshot SnapshotOf(const Ownership& owner, bool list_arrays = false);
OwnershipSnapshot SnapshotOf(OwnerRef owner, bool list_arrays = false);  // empty when it is closed

// What a path had more of in `after` than in `before`; nodes of one path are taken together, so that
// a manager made anew each time is compared with its predecessor. Negative for what shrank; paths
// without a difference are left out.
struct OwnershipGrowth {
  std::string path;
  int64_t nodes;
  int64_t arrays;
  int64_t bytes;
  int64_t loans;
};
std::vector<OwnershipGrowth> Diff(const OwnershipSnapshot& before, const OwnershipSnapshot& after);
std::string ToString(const std::vector<OwnershipGrowth>& growth);  // a line each; empty for none

// The subtree, a line per node, two spaces deeper per level:
//   model  host, current; 2 arrays, 3.2 MiB (peak 3.2 MiB), capped, 12.4 s
void DebugDump(const Ownership& owner, std::ostream& out, bool list_arrays = false);
std::string DumpText(const OwnershipSnapshot& snapshot);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_OWNERSHIP_OWNERSHIP_SNAPSHOT_H_
