// The places of a file: which of its pages are in use.
//
// The file has no name from the start. Places are whole pages; they are free ranges of the file
// (workspace/free_ranges.h), near its beginning first, and the disk has given its blocks before one is handed
// out. Threads: any.
#ifndef TIDEPOOL_MEMORY_SPILL_SPILL_SPACE_H_
#define TIDEPOOL_MEMORY_SPILL_SPILL_SPACE_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>

#include "absl/types/span.h"
#include "tidepool/memory/provider/fork_handlers.h"
#include "tidepool/memory/spill/spill_file.h"
#include "tidepool/memory/workspace/free_ranges.h"

namespace tidepool::internal {

// What a block takes in the file.
inline size_t WholePages(size_t bytes) {
  return (bytes + SpillFile::kPageBytes - 1) / SpillFile::kPageBytes * SpillFile::kPageBytes;
}

class SpillSpace {
 public:
  // Throws as SpillFile().
  SpillSpace(const std::string& folder, int64_t capacity_bytes, bool direct);
  ~SpillSpace();
  SpillSpace(const SpillSpace&) = delete;
  SpillSpace& operator=(const SpillSpace&) = delete;

  // Whether this is the process that made it. A child of fork() has neither the engine's thread nor a say in what places
  // are taken; locks may be those of threads that it has not.
  bool IsHere() const noexcept { return forks_ == ForksBehind(); }
  // Throws kFailedPrecondition where it is not.
  void CheckHere() const;

  int descriptor() const { return descriptor_; }
  const std::string& name() const { return name_; }
  bool is_direct() const { return direct_; }
  // It was refused by the file system after all.
  void EndDirect() noexcept;

  // Offsets and ranges for blocks whose stored bytes are given. Throws kResourceExhausted and std::bad_alloc, nothing
  // changed.
  void Take(absl::Span<SpilledBlock> blocks);
  // Those of them that have a place. In a child nothing: the places are the parent's.
  void Give(absl::Span<const SpilledBlock> blocks) noexcept;
  int64_t Trim();

  int64_t capacity_bytes() const { return capacity_; }
  int64_t used_bytes() const;
  int64_t file_bytes() const;

 private:
  void Allocate(int64_t end, size_t wanted);

  const uint64_t forks_ = ForksBehind();
  std::string name_;
  const int64_t capacity_;  // 0: the disk's
  int descriptor_ = -1;
  bool direct_ = false;
  bool can_allocate_ = true;

  mutable std::mutex mutex_;
  // Guarded by mutex_:
  FreeRanges ranges_{SpillFile::kPageBytes};
  int64_t used_ = 0;
  int64_t allocated_ = 0;  // up to here the disk has given blocks
};

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_SPILL_SPILL_SPACE_H_
