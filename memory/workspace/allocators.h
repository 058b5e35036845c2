// General allocators to compare with, for benchmarks.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_ALLOCATORS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_ALLOCATORS_H_

#include <cstddef>
#include <string>
#include <vector>

namespace tidepool {

struct Allocator {
  std::string name;
  void* (*allocate)(size_t bytes);
  void (*release)(void* block);
  void (*end_cycle)() = [] {};  // of the calling thread; all of its blocks were released
  void* (*allocate_aligned)(size_t alignment,
                            size_t bytes) = nullptr;  // to powers of two; null: there is none
};

// glibc's malloc, and tcmalloc, mimalloc and jemalloc from the system's libraries when they are installed
// (libtcmalloc-minimal4, libmimalloc2.0, libjemalloc2); who is absent is printed. May start the program
// again with other settings of the loader.
std::vector<Allocator> FindAllocators();
// jemalloc needs more of what the loader keeps for threads: starts the program again with that, unless GLIBC_TUNABLES is
// set. First in main().
void RestartWithStaticTls();
// The same as FindAllocators() without a word and without starting the program again: `absent` gets a line for each that is not here,
// "jemalloc: why".
std::vector<Allocator> FindAllocators(std::vector<std::string>* absent);

// The standard library's resources, one of each for every thread, above glibc's malloc; a block is 16 bytes longer,
// for its size. pmr_pool: std::pmr::unsynchronized_pool_resource. pmr_monotonic: std::pmr::monotonic_buffer_resource, which
// releases nothing before its cycle's end.
std::vector<Allocator> StandardResources();

// In the test that runs each benchmark once: what is not timed may be cut short.
bool RunsOnce();

inline void WritePages(void* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(data)[at] = 1;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_ALLOCATORS_H_
