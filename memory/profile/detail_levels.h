// As much of a recording as fits: the largest arrays by bytes and lifetime, in each window of time, exactly, and
// the rest merged, so that totals and peaks stay what they were.
#ifndef TIDEPOOL_MEMORY_PROFILE_DETAIL_LEVELS_H_
#define TIDEPOOL_MEMORY_PROFILE_DETAIL_LEVELS_H_

#include <cstddef>

#include "tidepool/memory/profile/profile_data.h"

namespace tidepool {

struct DetailLimits {
  size_t arrays = 60000;    // outside of cycles
  size_t requests = 60000;  // of all kinds of cycles together
  size_t steps = 120000;
  size_t cycles = 20000;
  size_t owners = 1000;
  size_t string_bytes = 1 << 20;
};

// What is within its limit stays as it is; `notes` tells of what does not. Cost: a few sorts.
//
// Steps beyond it: in each of equal spans of time what all owners had when their device had most, and what they had
// in the end. Cycles beyond it: those of one kind that follow each other count as one with their number; in each span
// the one that took most stands for those between. Requests beyond it: of kinds that are not among the largest those
// that are merged show as one array for each owner and sixteenth of the cycle, with the most they took together then; where
// they are few, for longer parts and of all owners.
ProfileData Reduced(const ProfileData& data, const DetailLimits& limits);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_DETAIL_LEVELS_H_
