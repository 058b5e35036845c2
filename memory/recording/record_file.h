// The file of a record while it is written, within a program that knows nothing of it: programs close
// descriptors that they did not open, put their own files in their place, and set limits.
//
// Takes no memory and throws nothing. Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_RECORDING_RECORD_FILE_H_
#define TIDEPOOL_MEMORY_RECORDING_RECORD_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>

namespace tidepool::record {

// Held at a high descriptor, so that the program's own are those it has without a record. Before each
// use the descriptor is compared with the file; one that is not the file's any more is the program's
// and is not touched.
class RecordFile {
 public:
  constexpr RecordFile() = default;

  // Makes the file or empties it, and locks it. `path` stays as long as the file is open. 0 or an
  // errno: EWOULDBLOCK where another process has it locked, ENOTSUP where it is no regular file.
  int Open(const char* path) noexcept;
  bool is_open() const noexcept { return descriptor_ >= 0; }

  // Appends; 0 or an errno, and then what is there may end within `bytes`. A file whose descriptor the
  // program has closed is opened again by its path, if it is still the same file, of the length that
  // was written: else EBADF. EFBIG where the process may not have files so large (RLIMIT_FSIZE):
  // SIGXFSZ is not raised. Three system calls.
  int Write(const char* data, size_t bytes) noexcept;
  // Without a file: nothing.
  void Close() noexcept;

 private:
  bool IsOwn(int descriptor, int64_t* size) const noexcept;
  bool OpenAgain() noexcept;

  int descriptor_ = -1;
  int process_ = 0;  // that opened it
  const char* path_ = nullptr;
  dev_t device_ = 0;
  ino_t inode_ = 0;
  int64_t written_ = 0;
};

}  // namespace tidepool::record

#endif  // TIDEPOOL_MEMORY_RECORDING_RECORD_FILE_H_
