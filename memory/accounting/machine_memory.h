// How much memory there is, for limits that are a share of it.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MACHINE_MEMORY_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MACHINE_MEMORY_H_

#include <cstdint>

namespace tidepool {

// Bytes of memory of the machine, or of the process's control group (a container's limit) where
// that is less. Read once. Where the system does not say, INT64_MAX. Threads: any.
int64_t MachineMemoryBytes();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MACHINE_MEMORY_H_
