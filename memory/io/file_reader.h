// Reading files with errors that say which file, which byte and what was expected.
//
//   FileReader file("weights.bin");
//   file.ReadExactly(buffer, "header");   // throws kDataLoss when the file ends too early
//
// Threads: one thread per reader where nothing else is said. Cost: one system call per read, no buffering.
#ifndef TIDEPOOL_MEMORY_IO_FILE_READER_H_
#define TIDEPOOL_MEMORY_IO_FILE_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"

namespace tidepool {

// `text` on one line: control characters and quotes as escapes, UTF-8 kept. For file names and
// other text of foreign origin inside messages.
std::string OneLine(const std::string& text);

// What a reader opens.
enum class Opens : uint8_t {
  kFiles,  // regular files: nothing that could wait for somebody, end nowhere or do more than read
  kPipesToo,  // also pipes, whose opening waits for a writer, and devices
};

// A file open for reading; closed by the destructor.
class FileReader {
 public:
  // Throws kNotFound, kPermissionDenied, ... from errno, kFailedPrecondition for a directory,
  // kInvalidArgument for what `opens` leaves out; each message starts with "open <path>".
  explicit FileReader(const std::string& path, Opens opens = Opens::kFiles);
  ~FileReader();
  FileReader(const FileReader&) = delete;
  FileReader& operator=(const FileReader&) = delete;

  // The path on one line, as messages show it.
  const std::string& name() const { return name_; }
  // False for pipes and devices, whose size() is 0 and means nothing.
  bool is_regular() const { return is_regular_; }
  // Size in bytes when the file was opened.
  uint64_t size() const { return size_; }
  // Bytes read so far.
  uint64_t offset() const { return offset_; }

  // Reads up to buffer.size() bytes; fewer only at the end of the file. Throws from errno.
  size_t Read(absl::Span<std::byte> buffer);
  // Reads buffer.size() bytes or throws kDataLoss that names `what`, the offset and both lengths.
  void ReadExactly(absl::Span<std::byte> buffer, const char* what);
  // The same from byte `at`, of files; offset() stays. Several threads may.
  void ReadExactlyAt(uint64_t at, absl::Span<std::byte> buffer, const char* what) const;

 private:
  std::string name_;
  int descriptor_ = -1;
  bool is_regular_ = false;
  uint64_t size_ = 0;
  uint64_t offset_ = 0;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_IO_FILE_READER_H_
