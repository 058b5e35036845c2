// General allocators to compare with, for benchmarks.
//
// tcmalloc, mimalloc and jemalloc are taken from the system's libraries when they are installed
// (libtcmalloc-minimal4, libmimalloc2.0, libjemalloc2); who is absent is printed.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_ALLOCATORS_H_
#define TIDEPOOL_MEMORY_WORKSPACE_ALLOCATORS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tidepool {

struct Allocator {
  std::string name;
  void* (*allocate)(size_t);
  void (*release)(void*);
};

// May start the program again with other settings of the loader. Who is absent is printed.
std::vector<Allocator> FindAllocators();

// A cycle as steps: request `number` of `bytes`, or its release (bytes 0).
struct Step {
  uint32_t number;
  size_t bytes;
};

inline void WritePages(void* data, size_t bytes) {
  for (size_t at = 0; at < bytes; at += 4096) static_cast<volatile char*>(data)[at] = 1;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_ALLOCATORS_H_
