// Counts the allocations of the binary that links this, for tests that promise none.
#ifndef TIDEPOOL_MEMORY_TESTING_ALLOCATION_COUNTER_H_
#define TIDEPOOL_MEMORY_TESTING_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace tidepool {

// Calls of operator new so far, in all threads; those with an alignment are not counted.
int64_t AllocationCount();

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_ALLOCATION_COUNTER_H_
