// The owner of what takes addresses and no memory: steps that are run dry, with their kernels off, so that a workspace learns them.
//
//   const MemoryOwnerScope owner(OwnerBesideBudgets());
//
// What is charged to it, or below it, is on the ledger as everything is, and in no budget: neither the process's nor the device's
// refuses it, and it takes room from nobody. It is for whoever gives all of it back before anything is written there.
//
// Threads: any. Cost: a lookup the first time.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_UNBUDGETED_OWNER_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_UNBUDGETED_OWNER_H_

#include "tidepool/memory/accounting/memory_owner.h"

namespace tidepool {

// "dry runs", below the process.
MemoryOwner& OwnerBesideBudgets();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_UNBUDGETED_OWNER_H_
