// Fewer owners and names of a recording: pages list owners, and some programs have one for each of their streams or requests.
#ifndef TIDEPOOL_MEMORY_PROFILE_MERGED_OWNERS_H_
#define TIDEPOOL_MEMORY_PROFILE_MERGED_OWNERS_H_

#include <cstddef>

#include "tidepool/memory/profile/profile_data.h"

namespace tidepool {

// At most `limit` owners stay what they are, those that had most bytes for longest; the others become one, whose name tells
// how many they were, as does a note. Sums over all owners stay what they were.
void MergeOwners(ProfileData& data, size_t limit);

// Strings that nothing names go, and what names others is told their new numbers.
void DropUnusedStrings(ProfileData& data);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_MERGED_OWNERS_H_
