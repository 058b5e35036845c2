// Every change of what is on the ledger, in order: steps, and the requests of all cycles.
#ifndef TIDEPOOL_MEMORY_PROFILE_PROFILE_CHANGES_H_
#define TIDEPOOL_MEMORY_PROFILE_PROFILE_CHANGES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tidepool/memory/profile/profile_data.h"

namespace tidepool {

struct ProfileChange {
  int64_t time;
  int64_t bytes;
  uint32_t device;
  uint8_t kind;
};

// Each cycle request by request, at the times of the first of its kind stretched to its own; or, `by_peaks`, as what was
// alive at most for as long as it ran. What a request takes, the pages that nobody uses have less.
std::vector<ProfileChange> ChangesOf(const ProfileData& data, bool by_peaks = false);

// How many there are of them.
size_t NumChanges(const ProfileData& data, bool by_peaks = false);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_PROFILE_CHANGES_H_
