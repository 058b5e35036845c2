// How much of a budget is taken, in three steps, so that a service can shed load before requests fail.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LEVEL_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LEVEL_H_

#include <cstdint>
#include <limits>

namespace tidepool {

// A level is reached at the share of the limit that is said here and left 5 % of the limit below it, so
// that what goes to and fro around one is not told each time. Without a limit: kNormal.
enum class MemoryLevel : uint8_t {
  kNormal,
  kHigh,      // 80 % of the limit are taken
  kCritical,  // 95 %
};

constexpr const char* MemoryLevelName(MemoryLevel level) {
  return level == MemoryLevel::kNormal ? "normal"
         : level == MemoryLevel::kHigh ? "high"
                                       : "critical";
}

// Of a budget that was at `before`.
constexpr MemoryLevel MemoryLevelAfter(MemoryLevel before, int64_t taken_bytes,
                                       int64_t limit_bytes) {
  if (limit_bytes == std::numeric_limits<int64_t>::max()) return MemoryLevel::kNormal;
  const auto at_least = [&](MemoryLevel level, int64_t twentieths) {
    if (before >= level) --twentieths;
    // In parts, as the whole times twenty is more than a number holds; a share of a byte takes the byte.
    const int64_t bytes = limit_bytes / 20 * twentieths + (limit_bytes % 20 * twentieths + 19) / 20;
    return taken_bytes >= bytes;
  };
  if (at_least(MemoryLevel::kCritical, 19)) return MemoryLevel::kCritical;
  return at_least(MemoryLevel::kHigh, 16) ? MemoryLevel::kHigh : MemoryLevel::kNormal;
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_LEVEL_H_
