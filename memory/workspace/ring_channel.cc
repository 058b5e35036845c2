#include "tidepool/memory/workspace/ring_channel.h"

#include "tidepool/memory/workspace/ring_core.h"
#include "tidepool/memory/workspace/thread_state.h"

namespace tidepool::internal {

std::vector<uint64_t>& RingReaders::OfThisThread() {
  const void* me = CurrentThreadToken();
  std::lock_guard<std::mutex> lock(mutex_);
  for (Reader& reader : readers_) {
    if (reader.thread == me) return reader.generations;
  }
  readers_.push_back({me, {}});
  return readers_.back().generations;
}

void RingReaders::ComesBack() {
  std::vector<uint64_t>& generations = OfThisThread();
  if (!generations.empty()) core_->MarkKept(&generations);
  generations.reserve(generations.size() + 1);  // so that Takes() cannot fail
}

void RingReaders::Takes(uint64_t generation) { OfThisThread().push_back(generation); }

}  // namespace tidepool::internal
