#include "tidepool/memory/mapped_vector.h"

#include <sys/mman.h>

namespace tidepool::internal {

void* MapBlock(size_t bytes) {
  void* const block =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) throw std::bad_alloc();
  return block;
}

void UnmapBlock(void* block, size_t bytes) noexcept { munmap(block, bytes); }

}  // namespace tidepool::internal
