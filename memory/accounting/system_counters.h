// What the operating system says this process did: the independent witness beside the ledger.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_SYSTEM_COUNTERS_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_SYSTEM_COUNTERS_H_

#include <cstdint>
#include <string>

namespace tidepool {

// Minor and major page faults of the process so far. About 300 ns.
int64_t PageFaults();

// Physical memory the process has now, shared pages included. A file read; 0 where there is no /proc.
int64_t ResidentBytes();

// Maps the code and data of the program and its libraries, and some of the calling thread's stack,
// before they are first used: what PageFaults() counts afterwards is memory that was taken. Where
// the kernel cannot (before Linux 5.14) nothing happens.
void PrefaultProgram();

// Counts every system call for memory (mmap, munmap, mremap, mprotect, madvise, brk) of the calling
// thread and the threads it starts from now on, whoever makes it: ours, malloc's, a library's. The
// kernel reports each to a watching thread (seccomp user notification) that lets it pass, which
// costs it some microseconds. Cannot be undone in this process; meant for tools and tests.
// Returns false and says why in `reason` where the kernel refuses. Idempotent.
bool StartCountingMemorySystemCalls(std::string* reason);
// -1 when counting is not on.
int64_t MemorySystemCalls();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_SYSTEM_COUNTERS_H_
