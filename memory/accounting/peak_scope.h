// The most bytes held at once between two points of a program.
//
//   PeakScope peak;
//   trainer.Step(make_batch);
//   peak.peak_in_use_bytes();                        // in arrays, at most, since the scope began
//   peak.peak_bytes(MemoryKind::kGradientStandard);
//
// Scopes nest and overlap as they like: each sees everything from its own beginning to its end, and
// neither other scopes nor MemoryTracker::ResetPeaks() disturb it. Exact while one workspace works
// between two changes of the ledger; where several work at once, an upper bound (memory_tracker.h).
//
// Threads: sees all threads' memory; may be read from any. Cost: a lock to begin, read and end.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_PEAK_SCOPE_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_PEAK_SCOPE_H_

#include <array>
#include <cstdint>
#include <mutex>

#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

class PeakScope final : private LedgerObserver {
 public:
  // Of a whole device, or of one owner and what is below it. Throws kInvalidArgument, as peak_bytes(kind),
  // for a device or kind that there cannot be.
  explicit PeakScope(Device device = Host(), MemoryOwner* owner = nullptr,
                     MemoryTracker& tracker = MemoryTracker::Global());
  ~PeakScope() { End(); }
  PeakScope(const PeakScope&) = delete;
  PeakScope& operator=(const PeakScope&) = delete;

  // Keeps what was reached so far; later memory is not seen.
  void End();

  struct Bytes {
    std::array<int64_t, kMemoryKinds> kinds;
    int64_t total = 0;
    int64_t in_use = 0;  // total without kUnreferenced
  };
  Bytes start() const;
  Bytes peak();

  int64_t peak_bytes() { return peak().total; }
  int64_t peak_bytes(MemoryKind kind);
  int64_t peak_in_use_bytes() { return peak().in_use; }

 private:
  void Observe(const LedgerReading& reading) noexcept override;

  MemoryTracker& tracker_;
  mutable std::mutex mutex_;
  // Guarded by mutex_:
  bool started_ = false;
  bool ended_ = false;
  Bytes start_, peak_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_PEAK_SCOPE_H_
