// How the threads of a block share work; plain C++.
#ifndef TIDEPOOL_BACKENDS_CUDA_COMMON_SLOTS_H_
#define TIDEPOOL_BACKENDS_CUDA_COMMON_SLOTS_H_

namespace tidepool::cuda {

inline constexpr int kBlockThreads = 256;

// A block of kBlockThreads threads is split into slots of `lanes` threads (a power of two) that work
// on one thing. Neighbouring threads are lanes of one slot ("along"), which suits lines whose elements
// lie side by side, or slots of one lane, which suits lines that lie side by side.
struct Slots {
  int lanes = 1;
  bool along = true;

  int count() const { return kBlockThreads / lanes; }
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_COMMON_SLOTS_H_
