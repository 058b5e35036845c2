#include "tidepool/backends/onednn/convolution_cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool::onednn {
namespace {

// An entry of a shape that oneDNN cannot do holds its record only.
constexpr int64_t kRecordBytes = 256;

int64_t BytesOf(const std::shared_ptr<const Convolution>& convolution) {
  return kRecordBytes + (convolution != nullptr ? convolution->held_bytes() : 0);
}

}  // namespace

size_t ConvolutionCache::Hash::operator()(const ConvolutionShape& shape) const {
  static_assert(sizeof(shape) % sizeof(uint64_t) == 0);
  uint64_t words[sizeof(shape) / sizeof(uint64_t)];
  std::memcpy(words, &shape, sizeof(shape));
  uint64_t hash = 0;
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;  // Fibonacci hashing
    hash ^= hash >> 32;
  }
  return hash;
}

ConvolutionCache& ConvolutionCache::Global() {
  static ConvolutionCache* const cache = [] {
    auto* made = new ConvolutionCache;
    static const Reclaimer::Registration registration = Reclaimer::Global().Register(
        "onednn", [made](ReclaimDepth depth) { return made->Reclaim(depth); });
    return made;
  }();
  return *cache;
}

void ConvolutionCache::Charge(int64_t bytes) {
  static MemoryOwner& owner = MemoryOwner::Process().Child("onednn");
  MemoryTracker::Global().Add(Host(), MemoryKind::kExternal, bytes, &owner);
  held_bytes_ += bytes;
}

ConvolutionCache::Map::iterator ConvolutionCache::Erase(Map::iterator it) {
  Charge(-BytesOf(it->second.convolution));
  return entries_.erase(it);
}

std::shared_ptr<const Convolution> ConvolutionCache::Find(const ConvolutionShape& shape) {
  std::lock_guard<std::mutex> lock(mutex_);
  ++clock_;
  if (const auto it = entries_.find(shape); it != entries_.end()) {
    it->second.last_use = clock_;
    return it->second.convolution;
  }
  std::shared_ptr<const Convolution> made = Convolution::Make(shape);
  if (entries_.size() >= kMaxShapes) {
    Erase(std::min_element(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
      return a.second.last_use < b.second.last_use;
    }));
  }
  entries_.emplace(shape, Entry{made, clock_});
  Charge(BytesOf(made));
  return made;
}

int64_t ConvolutionCache::Reclaim(ReclaimDepth depth) {
  // It may run inside an allocation of any thread: never waits. No thread asks us for memory while it
  // holds the lock.
  std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || depth == ReclaimDepth::kSpare) return 0;
  const int64_t before = held_bytes_;
  const uint64_t used_after = depth == ReclaimDepth::kPeriodic ? last_periodic_ : clock_;
  if (depth == ReclaimDepth::kPeriodic) last_periodic_ = clock_;
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool idle = it->second.convolution.use_count() <= 1 && it->second.last_use <= used_after;
    it = idle ? Erase(it) : std::next(it);
  }
  return before - held_bytes_;
}

size_t ConvolutionCache::size() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return entries_.size();
}

int64_t ConvolutionCache::held_bytes() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return held_bytes_;
}

}  // namespace tidepool::onednn
