#include "tidepool/memory/io/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

// Leaves room for our suffix within the 255 bytes a file name may have.
constexpr size_t kMaxBaseNameBytes = 200;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string NewTemporaryPath(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  const size_t slash = path.rfind('/');
  const size_t base = slash == std::string::npos ? 0 : slash + 1;
  return absl::StrCat(path.substr(0, base), path.substr(base, kMaxBaseNameBytes), ".", getpid(),
                      "-", counter.fetch_add(1, std::memory_order_relaxed), ".tmp");
}

// 0 or errno. Some file systems cannot sync a folder and say EINVAL; their renames are durable in
// their own way.
int SyncFolder(const std::string& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return errno;
  const int error = fsync(descriptor) == 0 || errno == EINVAL ? 0 : errno;
  close(descriptor);
  return error;
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  if (path.empty()) ThrowInvalidArgument("write: path: found \"\", expected the name of a file");
  struct stat existing;
  const bool exists = stat(path.c_str(), &existing) == 0;
  if ((exists && S_ISDIR(existing.st_mode)) || path.back() == '/') {
    ThrowErrno(EISDIR, absl::StrCat("write ", OneLine(path)));
  }
  if (exists && !S_ISREG(existing.st_mode)) {
    // A rename would put a plain file in the place of the device or pipe.
    ThrowInvalidArgument(absl::StrCat("write ", OneLine(path),
                                      ": found a device or pipe, expected a regular file or none"));
  }
  do {
    // A name that is taken belongs to an earlier process with our number: try the next one.
    temporary_path_ = NewTemporaryPath(path);
    descriptor_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  } while (descriptor_ < 0 && (errno == EEXIST || errno == EINTR));
  if (descriptor_ < 0) {
    ThrowErrno(errno, absl::StrCat("write ", OneLine(path), ": create ", OneLine(temporary_path_)));
  }
  if (exists && fchmod(descriptor_, existing.st_mode & 07777) != 0) {
    Fail(errno, absl::StrCat("write ", OneLine(path), ": copy its permissions to ",
                             OneLine(temporary_path_)));
  }
}

AtomicFile::~AtomicFile() {
  if (state_ == State::kOpen) Discard();
}

void AtomicFile::RequireOpen(const char* operation) const {
  if (state_ == State::kOpen) return;
  ThrowFailedPrecondition(
      absl::StrCat(operation, " ", OneLine(path_), ": found a file that ",
                   state_ == State::kCommitted ? "is already committed" : "failed before",
                   ", expected one that is being written"));
}

void AtomicFile::Discard() noexcept {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
  unlink(temporary_path_.c_str());
}

void AtomicFile::Fail(int error_number, const std::string& what) {
  Discard();
  state_ = State::kFailed;
  ThrowErrno(error_number, what);
}

void AtomicFile::Append(absl::Span<const std::byte> bytes) {
  RequireOpen("append to");
  size_t done = 0;
  while (done < bytes.size()) {
    const size_t chunk = std::min<size_t>(bytes.size() - done, size_t{1} << 30);
    const ssize_t wrote = write(descriptor_, bytes.data() + done, chunk);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) {
      Fail(errno, absl::StrCat("write ", OneLine(path_), ": byte ", size_, " of ",
                               OneLine(temporary_path_)));
    }
    done += static_cast<size_t>(wrote);
    size_ += static_cast<uint64_t>(wrote);
  }
}

void AtomicFile::Append(const std::string& bytes) {
  Append(absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()));
}

void AtomicFile::Commit() {
  RequireOpen("commit");
  // Data must be on the disk before the name points to it, or a crash shows an empty file.
  if (fsync(descriptor_) != 0) {
    Fail(errno, absl::StrCat("commit ", OneLine(path_), ": sync ", OneLine(temporary_path_)));
  }
  const int closed = close(descriptor_);
  descriptor_ = -1;
  if (closed != 0 && errno != EINTR) {
    Fail(errno, absl::StrCat("commit ", OneLine(path_), ": close ", OneLine(temporary_path_)));
  }
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    Fail(errno, absl::StrCat("commit ", OneLine(path_), ": rename ", OneLine(temporary_path_)));
  }
  state_ = State::kCommitted;
  const std::string folder = FolderOf(path_);
  if (const int error = SyncFolder(folder); error != 0) {
    ThrowErrno(error, absl::StrCat("commit ", OneLine(path_),
                                   ": the file is in place, but its folder could not be synced: ",
                                   OneLine(folder)));
  }
}

}  // namespace tidepool
