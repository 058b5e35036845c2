#include "tidepool/memory/profile/profile_data.h"

#include <algorithm>

#include "tidepool/memory/accounting/memory_kind.h"

namespace tidepool {

std::vector<std::string> MemoryKindNames() {
  std::vector<std::string> names;
  for (int kind = 0; kind < kMemoryKinds; ++kind)
    names.push_back(MemoryKindName(static_cast<MemoryKind>(kind)));
  return names;
}

void MeasureCycleKind(ProfileCycleKind& kind) {
  kind.bound = kind.peak = kind.requested = 0;
  kind.misses = kind.outside = kind.leaked = 0;
  const size_t count = kind.requests.size();
  std::vector<int64_t> gone(count + 1), gone_outside(count + 1);  // by after how many requests
  int64_t top = 0, live = 0, outside = 0, most_outside = 0;
  for (size_t i = 0; i < count; ++i) {
    const ProfileArray& request = kind.requests[i];
    const bool is_outside = (request.flags & ProfileArray::kOutside) != 0;
    live -= gone[i];
    outside -= gone_outside[i];
    live += request.taken;
    const size_t until = std::min<size_t>(kind.released_after[i], count);
    gone[until] += request.taken;
    if (is_outside) {
      outside += request.taken;
      gone_outside[until] += request.taken;
      ++kind.outside;
    } else {
      top = std::max(top, request.offset + request.taken);
    }
    kind.bound = std::max(kind.bound, live);
    most_outside = std::max(most_outside, outside);
    kind.requested += request.taken;
    if ((request.flags & ProfileArray::kMissed) != 0) ++kind.misses;
    if ((request.flags & ProfileArray::kLeaked) != 0) ++kind.leaked;
  }
  kind.peak = top + most_outside;
}

std::vector<std::vector<int64_t>> BytesAtEnd(const ProfileData& data) {
  // Cycles leave nothing behind: what they took of pages that nobody uses is free again.
  std::vector<std::vector<int64_t>> bytes(data.devices.size(),
                                          std::vector<int64_t>(data.kinds.size()));
  for (const ProfileStep& step : data.steps) bytes[step.device][step.kind] += step.bytes;
  return bytes;
}

}  // namespace tidepool
