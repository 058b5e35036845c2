#include "tidepool/memory/testing/explorer/unwatched_memory.h"

#include <algorithm>
#include <cstring>

namespace tidepool::explorer::internal {

void UnwatchedMemory::Find(const Lifetimes& lifetimes) {
  const auto before = [](const Range& a, const Range& b) { return a.begin < b.begin; };
  std::sort(made_.begin(), made_.end(), before);
  watched_.clear();
  lifetimes.ForEachAlive([this](const void* object, size_t bytes) {
    const char* begin = static_cast<const char*>(object);
    watched_.push_back({begin, begin + bytes});
  });
  std::sort(watched_.begin(), watched_.end(), before);
  unwatched_.clear();
  size_t next = 0;
  for (const Range& made : made_) {
    const char* begin = made.begin;
    while (next < watched_.size() && watched_[next].begin < made.begin) ++next;
    for (; next < watched_.size() && watched_[next].begin < made.end; ++next) {
      if (watched_[next].begin > begin) unwatched_.push_back({begin, watched_[next].begin});
      begin = std::max(begin, watched_[next].end);
    }
    if (begin < made.end) unwatched_.push_back({begin, made.end});
  }
  known_ = lifetimes.changes();
}

uint64_t UnwatchedMemory::Hash(const Lifetimes& lifetimes) {
  if (known_ != lifetimes.changes()) Find(lifetimes);
  uint64_t hash = 0;
  for (const Range& range : unwatched_) {
    for (const char* at = range.begin; at < range.end; at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, at, std::min<size_t>(sizeof(word), range.end - at));
      hash = (hash ^ word) * 0x9e3779b97f4a7c15u;
      hash ^= hash >> 29;
    }
  }
  return hash;
}

}  // namespace tidepool::explorer::internal
