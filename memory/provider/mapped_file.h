// MappedFile: the pages of a workspace as a shared mapping of a file.
//
// What is written stays in the file when the mapping, or the process, ends. Its blocks are allocated
// when it is mapped, so that a full disk is an error here and not a signal at some later write. It
// is locked (flock) while mapped: two mappings of one file would overwrite each other.
//
// The file may hold what the machine's memory cannot; pages come and go as they are used. Surviving
// a power failure takes what the file system promises for written-back data, no more.
//
// Threads: one at a time.
#ifndef TIDEPOOL_MEMORY_PROVIDER_MAPPED_FILE_H_
#define TIDEPOOL_MEMORY_PROVIDER_MAPPED_FILE_H_

#include <cstddef>
#include <string>

namespace tidepool {

class MappedFile {
 public:
  // `path`: made when missing (mode 0600; its directory must exist), extended with zeros when it is
  // shorter than `least_bytes`. A longer one is mapped as a whole, or up to `most_bytes` (0: no
  // limit). Empty: a file without a name in $TMPDIR or /tmp. The length is rounded up to
  // `alignment`, a power of two. `who` leads the messages.
  //
  // Throws, each naming the file: kNotFound (no such directory), kPermissionDenied, kInvalidArgument
  // (a directory or no regular file; nothing to map), kFailedPrecondition (mapped elsewhere),
  // kResourceExhausted (disk full). The file is as it was then; one made here is removed.
  MappedFile(const std::string& who, const std::string& path, size_t least_bytes, size_t most_bytes,
             size_t alignment);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::byte* base() const { return base_; }
  size_t bytes() const { return bytes_; }                // usable, a multiple of the alignment
  size_t mapped_bytes() const { return mapped_bytes_; }  // whole pages, readable tail included
  const std::string& path() const { return path_; }

  // Throws kDataLoss when somebody made the file shorter since: touching what is gone would end the
  // process. One system call.
  void CheckLength(const std::string& who) const;

 private:
  std::string path_;  // or what a nameless file is called in messages
  int descriptor_ = -1;
  std::byte* mapping_ = nullptr;
  size_t reserved_bytes_ = 0;
  std::byte* base_ = nullptr;
  size_t bytes_ = 0;
  size_t mapped_bytes_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_MAPPED_FILE_H_
