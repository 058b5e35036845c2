#include "tidepool/memory/io/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {

std::string OneLine(const std::string& text) { return absl::Utf8SafeCHexEscape(text); }

FileReader::FileReader(const std::string& path, Opens opens) : name_(OneLine(path)) {
  // A pipe is open at once then, whether or not somebody writes to it. Means nothing for files.
  const int at_once = opens == Opens::kFiles ? O_NONBLOCK : 0;
  // What stands before it would be another file.
  if (path.find('\0') != std::string::npos)
    ThrowInvalidArgument(absl::StrCat("open ", name_, ": the path has a NUL, expected none"));
  do {
    descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC | at_once);
  } while (descriptor_ < 0 && errno == EINTR);
  if (descriptor_ < 0) ThrowErrno(errno, absl::StrCat("open ", name_));
  struct stat status;
  int error = fstat(descriptor_, &status) != 0 ? errno : S_ISDIR(status.st_mode) ? EISDIR : 0;
  if (error != 0) {
    close(descriptor_);
    ThrowErrno(error, absl::StrCat("open ", name_));
  }
  is_regular_ = S_ISREG(status.st_mode);
  if (!is_regular_ && opens == Opens::kFiles) {
    close(descriptor_);
    ThrowInvalidArgument(
        absl::StrCat("open ", name_, ": found a pipe or device, expected a regular file"));
  }
  if (is_regular_) size_ = static_cast<uint64_t>(status.st_size);
}

FileReader::~FileReader() { close(descriptor_); }

size_t FileReader::Read(absl::Span<std::byte> buffer) {
  size_t done = 0;
  while (done < buffer.size()) {
    // Linux moves at most 2^31 - 4096 bytes per call.
    const size_t chunk = std::min<size_t>(buffer.size() - done, size_t{1} << 30);
    const ssize_t got = read(descriptor_, buffer.data() + done, chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ThrowErrno(errno, absl::StrCat("read ", name_, " at byte ", offset_));
    if (got == 0) break;
    done += static_cast<size_t>(got);
    offset_ += static_cast<uint64_t>(got);
  }
  return done;
}

void FileReader::ReadExactlyAt(uint64_t at, absl::Span<std::byte> buffer, const char* what) const {
  size_t done = 0;
  while (done < buffer.size()) {
    const size_t chunk = std::min<size_t>(buffer.size() - done, size_t{1} << 30);
    const ssize_t got =
        pread(descriptor_, buffer.data() + done, chunk, static_cast<off_t>(at + done));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ThrowErrno(errno, absl::StrCat("read ", name_, " at byte ", at + done));
    if (got == 0) {
      ThrowDataLoss(absl::StrCat(name_, ": byte ", at, ": ", what, ": found ", done,
                                 " bytes before the end of the file, expected ", buffer.size()));
    }
    done += static_cast<size_t>(got);
  }
}

void FileReader::ReadExactly(absl::Span<std::byte> buffer, const char* what) {
  const uint64_t start = offset_;
  const size_t got = Read(buffer);
  if (got != buffer.size()) {
    ThrowDataLoss(absl::StrCat(name_, ": byte ", start, ": ", what, ": found ", got,
                               " bytes before the end of the file, expected ", buffer.size()));
  }
}

}  // namespace tidepool
