#include "tidepool/memory/pmr/block_chunk.h"

#include <cstdio>
#include <cstdlib>

namespace tidepool::internal {

void ReportWrongRelease(const void* block, size_t bytes, const char* found) noexcept {
  std::fprintf(stderr, "tidepool: %zu bytes are released at %p: %s\n", bytes, block, found);
  std::abort();
}

}  // namespace tidepool::internal
