// Where arrays are made: owner, tag and call stack of each request, for reports of leaks.
//
// Off by default, when it costs nothing. On, each request of a workspace costs about a microsecond;
// cycles that begin while it is on are traced. Link with -rdynamic for names of all functions in the
// call stack; without it those that are not exported are offsets for addr2line.
// Threads: any.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACING_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACING_H_

#include <atomic>
#include <cstdint>
#include <string>

#include "tidepool/memory/accounting/memory_owner.h"

namespace tidepool {

class MemoryTracing {
 public:
  // Requests of cycles that begin from here on are traced, or not; of the whole process.
  static void Enable();
  static void Disable() {
    watches_.fetch_and(static_cast<uint8_t>(~kTraces), std::memory_order_relaxed);
  }
  // Whether they are now.
  static bool enabled() { return (watches() & kTraces) != 0; }

  // ---- for the runtime: what a cycle that begins now tells of each of its requests. A cycle of which
  // anything is told serves none of them by the short way, where nothing looks at this.
  enum Watch : uint8_t { kTraces = 1, kRecords = 2 };

  // Bits of Watch.
  static uint8_t watches() { return watches_.load(std::memory_order_relaxed); }
  // By memory/recording.
  static void SetRecords(bool records) {
    if (records) {
      watches_.fetch_or(kRecords, std::memory_order_relaxed);
    } else {
      watches_.fetch_and(static_cast<uint8_t>(~kRecords), std::memory_order_relaxed);
    }
  }

 private:
  static std::atomic<uint8_t> watches_;
};

// One request's origin. Capturing takes no memory; describing does.
class AllocationTrace {
 public:
  void Capture() noexcept;    // the calling thread's owner and stack; over what was there
  std::string Owner() const;  // "network #layer conv2"
  std::string Site() const;   // "Relu < Forward < main", innermost first

 private:
  static constexpr int kFrames = 16;
  const MemoryOwner* owner_ = nullptr;
  int depth_ = 0;
  void* frames_[kFrames];
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_TRACING_H_
