// With MemoryTracing on: what each owned array is and where it was made, by the buffer's number.
#ifndef TIDEPOOL_MEMORY_OWNERSHIP_OWNER_TRACES_H_
#define TIDEPOOL_MEMORY_OWNERSHIP_OWNER_TRACES_H_

#include <cstdint>
#include <string>

#include "tidepool/memory/buffer.h"
#include "tidepool/memory/ownership/owner_node.h"

namespace tidepool::internal {

// `what`: "f32 [2, 3]". Captures the call stack. The caller has a handle.
void TraceOwned(Buffer& buffer, std::string what) noexcept;
void ForgetOwned(uint64_t buffer_id) noexcept;
std::string DescribeOwned(uint64_t buffer_id);  // "f32 [2, 3] made at Main"; empty when not traced

// What is open at a root's end: empty when nothing is.
std::string DescribeOpen(OwnerNode& root);

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_OWNERSHIP_OWNER_TRACES_H_
