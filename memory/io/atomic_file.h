// A file that appears whole or not at all.
//
//   AtomicFile file("model.safetensors");
//   file.Append(header);
//   file.Append(data);
//   file.Commit();       // until here, model.safetensors is untouched
//
// Bytes go to a new file "<path>.tidepool-<number>.tmp" in the same folder (O_EXCL, so nobody's
// file is overwritten). Commit() makes them durable and renames; the rename is atomic, so readers
// see the old file or the new one, also after a crash. Without Commit() the destructor removes the
// temporary file. A process that is killed leaves its .tmp file behind, and the next AtomicFile of
// that path removes it: whoever writes one holds a lock (flock) on it, which ends with the process,
// so one that can be locked is nobody's. Where the file system has no locks it stays.
//
// A symbolic link at `path` is replaced, not followed. An existing file's permission bits are kept.
//
// Errors: from errno with path and operation (kNotFound: no such folder; kPermissionDenied;
// kFailedPrecondition: path is a directory; kResourceExhausted: no space left on the device). What
// only the rename would find is found by the constructor, as far as the system tells: a name that
// is too long, a file that is a mount point, immutable, or another user's in a folder like /tmp.
// After a failed Append() the file can no longer be committed. Threads: one thread per AtomicFile.
// Cost: some fifteen system calls to create one; Append() is one, unbuffered; Commit() waits for
// the disk twice.
#ifndef TIDEPOOL_MEMORY_IO_ATOMIC_FILE_H_
#define TIDEPOOL_MEMORY_IO_ATOMIC_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace tidepool {

class AtomicFile {
 public:
  // Creates the temporary file. `path` stays as it is.
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  // Writes them behind what was appended before.
  void Append(absl::Span<const std::byte> bytes);
  void Append(const std::string& bytes);

  // fsync, rename, fsync of the folder. Once only; nothing can be appended afterwards.
  void Commit();

  // As it was given.
  const std::string& path() const { return path_; }
  // Where the bytes are before Commit().
  const std::string& temporary_path() const { return temporary_path_; }
  // Bytes appended so far.
  uint64_t size() const { return size_; }

  // Whether Commit() has returned: the file is at path().
  bool is_committed() const { return state_ == State::kCommitted; }

 private:
  friend class DiskReservation;
  enum class State { kOpen, kFailed, kCommitted };

  void RequireOpen(const char* operation) const;
  // Creates and locks a temporary file.
  void OpenTemporary();
  // Closes and removes the temporary file.
  void Discard() noexcept;
  // Discard(), then throws.
  [[noreturn]] void Fail(int error_number, const std::string& what);

  std::string path_;
  std::string temporary_path_;
  int descriptor_ = -1;
  uint64_t size_ = 0;
  State state_ = State::kOpen;
};

// Room on the disk, kept from others for a file that is written later. A file without a name holds
// it, so that it is free again when this is destroyed and when the process ends in any way.
class DiskReservation {
 public:
  DiskReservation() = default;
  // In the folder of `path`. Throws as AtomicFile, and from errno naming path and bytes where there
  // is no such room, also under a quota or a limit on the size of files. Where the file system
  // cannot reserve, what it says is free is compared, and nothing is kept.
  DiskReservation(const std::string& path, uint64_t bytes);
  ~DiskReservation() { Release(); }
  DiskReservation(DiskReservation&& other) noexcept;
  DiskReservation& operator=(DiskReservation&& other) noexcept;

  // The room is free again, for the file that is to take it.
  void Release() noexcept;

 private:
  int descriptor_ = -1;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_ATOMIC_FILE_H_
