// Recordings made up for tests of pages and traces: what a training run's looks like, of any size.
#ifndef TIDEPOOL_MEMORY_PROFILE_TESTING_SAMPLE_RECORDINGS_H_
#define TIDEPOOL_MEMORY_PROFILE_TESTING_SAMPLE_RECORDINGS_H_

#include <cstdint>

#include "tidepool/memory/profile/profile_data.h"

namespace tidepool {

// Parameters and a data set at the start; a first step outside of the pages, `steps` of one plan, one that misses its
// plan, leaks an array and has names with HTML in them; validation steps between; arrays on the heap.
ProfileData TrainingRecording(int steps);

// `arrays` on the heap, none like the other, with as many changes of the ledger, and cycles of ever different requests.
ProfileData UnevenRecording(int arrays, int cycles, uint64_t seed);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROFILE_TESTING_SAMPLE_RECORDINGS_H_
