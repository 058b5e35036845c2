// What a workspace owns of its device's memory, reported to the ledger as one sum of parts.
#ifndef TIDEPOOL_MEMORY_WORKSPACE_OWNED_BYTES_H_
#define TIDEPOOL_MEMORY_WORKSPACE_OWNED_BYTES_H_

#include <cstddef>
#include <cstdint>

#include "tidepool/memory/accounting/memory_tracker.h"

namespace tidepool {

class OwnedBytes {
 public:
  // One part's bytes, which it sets whenever they change.
  class Part {
   public:
    explicit Part(OwnedBytes& whole) : whole_(whole) {}
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;
    void Set(size_t bytes) noexcept {
      const auto now = static_cast<int64_t>(bytes);
      if (now == bytes_) return;
      MemoryTracker::Global().AddOwned(&whole_.account_, now - bytes_);
      whole_.bytes_ += now - bytes_;
      bytes_ = now;
    }

   private:
    OwnedBytes& whole_;
    int64_t bytes_ = 0;
  };

  // `account` must be registered while there are parts with bytes.
  explicit OwnedBytes(MemoryAccount& account) : account_(account) {}
  OwnedBytes(const OwnedBytes&) = delete;
  OwnedBytes& operator=(const OwnedBytes&) = delete;

  int64_t bytes() const { return bytes_; }

 private:
  MemoryAccount& account_;
  int64_t bytes_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_WORKSPACE_OWNED_BYTES_H_
