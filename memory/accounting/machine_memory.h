// How much memory there is, for limits that are a share of it.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MACHINE_MEMORY_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MACHINE_MEMORY_H_

#include <cstdint>

namespace tidepool {

// Bytes of memory of the machine, or of the process's control group (a container's limit) where
// that is less. Read once. Where the system does not say, INT64_MAX. Threads: any.
int64_t MachineMemoryBytes();

// And of its swap, which a control group's limit may not be about: no more can be had. Likewise.
int64_t MachineMemoryAndSwapBytes();

// Of them what could be taken now without others being put out: free, or of files and read again. In a control
// group that has a limit at most what is left of that. Where the system does not say, INT64_MAX. Cost: some files
// of the system are read, tens of microseconds. Threads: any.
int64_t AvailableMemoryBytes();

// What this process has in memory, and the most it ever had. 0 where the system does not say. Likewise.
struct ResidentMemory {
  int64_t bytes = 0, most_bytes = 0;
};
ResidentMemory ResidentMemoryOfProcess();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MACHINE_MEMORY_H_
