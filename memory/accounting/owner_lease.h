// Nodes of the ledger for what comes and goes under names of its own: workspaces and pools.
//
//   OwnerLease owner(MemoryOwner::Current(), "workspace 4711");
//   tracker.Add(Host(), MemoryKind::kAllocated, bytes, &*owner);
//
// A node is there for as long as it is leased, and for ever once somebody has asked for it by name
// (MemoryOwner::Child, Tagged). After its last lease it is gone: of those the last kGoneOwnersNamed keep
// their names and numbers. Older ones are merged into one beside them, kGoneOwnersName, which says how many
// it stands for (MemoryOwner::merged): what budgets granted is added up there, a peak is the highest that
// one of them had. So a service that names workspaces by request has as many nodes as workspaces are there,
// and kGoneOwnersNamed more. One with a limit of its own stays.
//
// Whoever leases a node has taken off it what he added before the lease ends. Threads: any. Cost: a lock and a
// lookup; of the last lease of a node the ledger's lock as well.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_OWNER_LEASE_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_OWNER_LEASE_H_

#include <string>

#include "tidepool/memory/accounting/memory_owner.h"

namespace tidepool {

inline constexpr int kGoneOwnersNamed = 64;  // of the process
inline constexpr char kGoneOwnersName[] = "workspaces that are gone";

class OwnerLease {
 public:
  // The node of that name below `parent`, or below its owner where it is a tag. Throws std::bad_alloc.
  OwnerLease(MemoryOwner& parent, const std::string& name);
  // One more of a node that is there: it stays for as long, for whoever will charge it again.
  explicit OwnerLease(MemoryOwner& node) noexcept;
  OwnerLease(const OwnerLease& other) noexcept;
  OwnerLease& operator=(const OwnerLease&) = delete;
  ~OwnerLease();

  // The node.
  MemoryOwner& operator*() const { return *owner_; }
  MemoryOwner* operator->() const { return owner_; }

 private:
  MemoryOwner* const owner_;
};

// No node goes as long as one of these is there, for whoever keeps pointers to nodes that he was told of or
// found (MemoryOwner::All). Threads: any. Cost: a lock.
class MemoryOwnersHold {
 public:
  MemoryOwnersHold();
  ~MemoryOwnersHold();
  MemoryOwnersHold(const MemoryOwnersHold&) = delete;
  MemoryOwnersHold& operator=(const MemoryOwnersHold&) = delete;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_OWNER_LEASE_H_
