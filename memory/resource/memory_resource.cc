#include "tidepool/memory/resource/memory_resource.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_events.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/provider/pages.h"

namespace tidepool {
namespace {

const char* WhyOf(Refusal refusal) {
  switch (refusal) {
    case Refusal::kNone:
      break;
    case Refusal::kExhausted:
      return "there are no more";
    case Refusal::kOverLimit:
      return "a limit stands in the way";
    case Refusal::kImpossible:
      return "no such block can exist";
  }
  return "nothing was refused";
}

}  // namespace

std::unique_ptr<Pages> MemoryResource::ReservePages(size_t) { return nullptr; }

void MemoryResource::ThrowRefused(const Allocation& refused, size_t bytes, size_t alignment) const {
  ThrowOutOfMemory(
      {device(), nullptr, static_cast<int64_t>(bytes), "a block"}, WhyOf(refused.refusal),
      absl::StrCat(Describe(), " refused ", bytes, " bytes aligned to ", alignment, ": ",
                   WhyOf(refused.refusal), "; ", refused.reclaimed_bytes, " bytes were reclaimed"),
      MemoryTracker::Global().Snapshot().ToString());
}

Allocation AllocateOrThrow(MemoryResource& resource, size_t bytes, size_t alignment) {
  const Allocation block = resource.Allocate(bytes, alignment);
  if (!block) block.refused_by->ThrowRefused(block, bytes, alignment);
  return block;
}

}  // namespace tidepool
