// Plans of a workspace as bytes: what Workspace::SavePlans writes and LoadPlans reads.
//
//   offset  bytes  (little-endian)
//   0       16     "tidepool plans\n\0"
//   16      4      version, 1
//   20      4      number of plans, the last used one first
//   24      8      alignment of offsets and sizes
//   then for each plan: 4 bytes n, the number of requests; 4 bytes the number of pins; n times
//           8 size, 8 offset, 4 the request before which it was released; 4 for each pin: a request
//   end     8      FNV-1a checksum of all bytes before
//
// Threads: pure functions.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_PLAN_FILE_H_
#define TIDEPOOL_MEMORY_WORKSPACE_PLAN_FILE_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/plan_set.h"

namespace tidepool {

inline constexpr uint32_t kPlanFileVersion = 1;  // files of others are ignored

// The bytes of a file of these plans, in their order.
std::string FormatPlans(absl::Span<const std::shared_ptr<LearnedCycle>> cycles, size_t alignment);

struct ParsedPlans {
  std::vector<PlacedRequests> cycles;  // a plan each, in the file's order
  std::string ignored;  // what is wrong with the bytes, found and expected; then `cycles` is empty
};

// Every offset is checked: what is returned are placements without overlap. Throws std::bad_alloc.
ParsedPlans ParsePlans(absl::string_view bytes, size_t alignment);

// The same of a file. What is wrong with it, or with reading it, is in `ignored`, with its name.
ParsedPlans ReadPlans(const std::string& path, size_t alignment);

// More than this share of the memory there is (machine_memory.h) no plan of a file is believed to
// need.
inline constexpr int64_t kBelievedShareOfMemory = 2;  // a half

// The most bytes that a plan of a file may need: on the host that share of its memory, and
// everywhere the least of the budgets that `owner` on that device takes its memory from.
size_t MostBelievedPlanBytes(const MemoryOwner& owner, Device device);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_PLAN_FILE_H_
