// SpillFile: a file as a tier below memory. Bytes that are only waiting go there and come back.
//
//   SpillFile file({.folder = "/scratch", .capacity_bytes = int64_t{64} << 30});
//   SpilledBytes kept = file.Write(data, bytes);          // the memory may go now
//   ... later ...
//   file.Read(kept, data);                                // the same bytes, or an Error
//
//   SpillTransfer writes = file.BeginWrite(data, bytes);  // goes on beside the caller
//   SpilledBytes kept = writes.Wait();
//
// Several blocks are under way at once (file_queue.h), past the page cache where the file system can
// (O_DIRECT), so that spilling does not push out what others have there. Bytes pass through page-aligned
// memory of block_bytes for each transfer, on the ledger as the owner's, so any address and length will do.
// A checksum (XXH3) of each block is kept in memory and compared before a byte of it comes back.
//
// The file has no name: it is gone with the process, however that ends. Its blocks are allocated before
// they are written, so a full disk is an error of the write that needs more, and of nothing else: of BeginWrite(), or of
// Wait() where blocks are packed, as nobody knows before how large they are. It never
// survives a restart: what is to do that is a checkpoint (nn/training).
//
// Errors name file, offset and size: kResourceExhausted (disk full or capacity_bytes: nothing of it was
// stays, and the caller has the bytes still), kDataLoss (a block came back damaged or short), kInternal (the
// device failed), kDeadlineExceeded (no answer within time_limit). The file works on after each; what
// failed to be read may be read again. A read that failed has written any part of `data`, or nothing.
//
// Threads: any, each its own SpilledBytes and SpillTransfer. One thread of the file's own copies, checks and
// hands in. Cost: of a write or read, what the device takes; one copy; of each block, a few microseconds.
// fork(): the file stays the parent's, whose thread and places it has. In a child transfers, waits for them and Trim() are
// kFailedPrecondition; what is destroyed there frees nothing in the file.
#ifndef TIDEPOOL_MEMORY_SPILL_SPILL_FILE_H_
#define TIDEPOOL_MEMORY_SPILL_SPILL_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "tidepool/memory/accounting/memory_owner.h"
#include "tidepool/memory/spill/file_queue.h"
#include "tidepool/memory/spill/spill_counters.h"

namespace tidepool {

// Whether blocks are packed (LZ4) on their way: what is in the file, and moved, is less then; the thread has more to do.
enum class SpillCompression {
  kNone,
  kLz4,  // each block that gets a page smaller by it
  kAuto,  // where a sample of the block, and how fast the device is seen to be, say that time is gained by it
};

const char* SpillCompressionName(SpillCompression compression);  // "none", "lz4", "auto"
// Throws kInvalidArgument, "`what`: ...", with the names there are.
SpillCompression ParseSpillCompression(absl::string_view what, absl::string_view name);

// How a file is made; what is out of range is kInvalidArgument.
struct SpillFileOptions {
  // Where; it must exist. Empty: $TIDEPOOL_SPILL_FOLDER, else $TMPDIR, else /var/tmp.
  std::string folder;
  // At most so much in the file at once, in whole pages of 4096 bytes. 0: what the file system gives.
  int64_t capacity_bytes = 0;
  size_t block_bytes = size_t{4} << 20;  // of a transfer: a multiple of 4096, at most 1 GiB
  int in_flight = 4;                     // blocks at once, 1 to 64
  bool direct = true;                    // past the page cache, where the file system can
  SpillCompression compression = SpillCompression::kNone;
  // For one block, from when it was handed in. Infinite: it is waited for as long as it takes.
  absl::Duration time_limit = absl::InfiniteDuration();
  MemoryOwner* owner = nullptr;  // of the memory that blocks pass through; null: the process
  // What moves blocks; null: NewFileQueue().
  std::function<std::unique_ptr<FileQueue>(int descriptor, int depth)> queue;
};

class SpillFile;
namespace internal {
class SpillSpace;
class SpillEngine;
struct SpillRequest;
struct SpilledBlock {
  static constexpr uint32_t kNoPlace = UINT32_MAX;

  bool is_packed() const { return stored < bytes; }

  size_t bytes = 0;
  size_t stored = 0;  // in the file
  int64_t offset = 0;
  uint64_t checksum = 0;      // of what is stored
  uint32_t range = kNoPlace;  // of the space
};
}  // namespace internal

// Bytes in a file; their place is free again when this goes, also where the file has ended before.
class SpilledBytes {
 public:
  SpilledBytes() = default;
  SpilledBytes(SpilledBytes&& other) noexcept = default;
  SpilledBytes& operator=(SpilledBytes&& other) noexcept;  // the place it had is free
  ~SpilledBytes() { Reset(); }

  size_t bytes() const { return bytes_; }  // as written
  // There is something, of 0 bytes maybe. What was moved from has nothing.
  bool has_value() const { return space_ != nullptr; }

  // The place is free again; nothing is left.
  void Reset() noexcept;

 private:
  friend class SpillFile;
  friend class SpillTransfer;
  friend class internal::SpillEngine;

  std::shared_ptr<internal::SpillSpace> space_;
  std::vector<internal::SpilledBlock> blocks_;
  size_t bytes_ = 0;
};

// A write or read under way. The memory must stay, and what is written unchanged, until Wait() has
// returned or thrown, or this is gone: then nobody touches it any more. What is dropped before it is done is not
// waited for; of a write nothing stays. It keeps the file open.
class SpillTransfer {
 public:
  SpillTransfer() = default;
  SpillTransfer(SpillTransfer&&) noexcept = default;
  SpillTransfer& operator=(SpillTransfer&& other) noexcept;  // what it had is dropped
  ~SpillTransfer() { Abandon(); }

  bool is_done() const;  // Wait() will not wait; true where there is nothing
  // Once. Returns what was written, nothing of a read. Throws what became of it otherwise.
  SpilledBytes Wait();

 private:
  friend class SpillFile;
  SpillTransfer(std::shared_ptr<internal::SpillEngine> engine,
                std::shared_ptr<internal::SpillRequest> request)
      : engine_(std::move(engine)), request_(std::move(request)) {}
  void Abandon() noexcept;

  std::shared_ptr<internal::SpillEngine> engine_;
  std::shared_ptr<internal::SpillRequest> request_;
};

// Numbers of one moment.
struct SpillFileStats {
  int64_t capacity_bytes = 0;      // 0: no limit but the disk's
  int64_t used_bytes = 0;          // in SpilledBytes, whole pages, as they lie in the file
  int64_t file_bytes = 0;          // allocated on the disk
  SpillWayCounters written, read;  // ever
  int64_t failures = 0;            // transfers that ended with an error
  int64_t unfinished = 0;   // transfers begun that have not ended, those that were given up too
  double busy_seconds = 0;  // with any block under way
  bool direct = false;      // past the page cache
  std::string queue;        // "io_uring"
};

class SpillFile {
 public:
  static constexpr size_t kPageBytes = 4096;  // of which places in the file are multiples
  static constexpr int kMostInFlight = 64;    // blocks at once

  // Throws kInvalidArgument for options out of range, kNotFound and kPermissionDenied for a folder,
  // OutOfMemoryError where the memory for blocks is refused.
  explicit SpillFile(SpillFileOptions options = {});
  // Where transfers are left the file stays open until they are gone; else this waits for what is under way.
  ~SpillFile();
  SpillFile(const SpillFile&) = delete;
  SpillFile& operator=(const SpillFile&) = delete;

  // Waits until all of it is written. Throws as above.
  SpilledBytes Write(const void* data, size_t bytes) { return BeginWrite(data, bytes).Wait(); }
  // `data` has room for kept.bytes(). Throws kInvalidArgument where `kept` is not of this file.
  void Read(const SpilledBytes& kept, void* data) { BeginRead(kept, data).Wait(); }

  // Goes on beside the caller; the bytes are read until the transfer is done.
  SpillTransfer BeginWrite(const void* data, size_t bytes);
  // `kept` may be read by many at once; it must stay until then.
  SpillTransfer BeginRead(const SpilledBytes& kept, void* data);

  // Gives the disk back what lies above all that is in use. Returns bytes.
  int64_t Trim();

  // Of one moment. Any thread.
  SpillFileStats stats() const;
  // "/scratch (no name)", for messages.
  const std::string& name() const { return name_; }

 private:
  std::string name_;
  std::shared_ptr<internal::SpillSpace> space_;
  std::shared_ptr<internal::SpillEngine> engine_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_SPILL_SPILL_FILE_H_
