#include "tidepool/memory/io/atomic_file.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

// Leaves room for our suffix within the 255 bytes a file name may have.
constexpr size_t kMaxBaseNameBytes = 200;
// Temporary files of dead writers are looked for among so many.
constexpr int kNumbersLookedAt = 8;

std::string FolderOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

std::string TemporaryPath(const std::string& path, int number) {
  const size_t slash = path.rfind('/');
  const size_t base = slash == std::string::npos ? 0 : slash + 1;
  return absl::StrCat(path.substr(0, base), path.substr(base, kMaxBaseNameBytes), ".tidepool-",
                      number, ".tmp");
}

bool IsSameFile(int descriptor, const char* path) {
  struct stat open_file, named;
  return fstat(descriptor, &open_file) == 0 && lstat(path, &named) == 0 &&
         open_file.st_dev == named.st_dev && open_file.st_ino == named.st_ino;
}

// Whether the temporary file at `path` was a dead writer's; it is gone then.
bool RemoveIfLeft(const std::string& path) {
  // Never through a link, never waiting. Some file systems lock only what is open for writing.
  constexpr int kFlags = O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int file = open(path.c_str(), O_WRONLY | kFlags);
  if (file < 0 && errno == EACCES) file = open(path.c_str(), O_RDONLY | kFlags);
  if (file < 0) return false;
  struct stat status;
  // A writer looks whether its file still has its name once it holds the lock.
  const bool is_left = fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                       flock(file, LOCK_EX | LOCK_NB) == 0 && IsSameFile(file, path.c_str()) &&
                       unlink(path.c_str()) == 0;
  close(file);
  return is_left;
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

bool IsFolder(const std::string& folder, const char* other) {
  struct stat one, two;
  return stat(folder.c_str(), &one) == 0 && stat(other, &two) == 0 && one.st_dev == two.st_dev &&
         one.st_ino == two.st_ino;
}

// /dev/stdout and its like are a file that the process has open, by a link for all of the machine,
// which a rename would put a plain file in the place of.
void CheckNoMagicLink(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel
  std::string next = path;
  for (int i = 0; i < kMostLinks; ++i) {
    const std::string folder = FolderOf(next);
    struct statfs system;
    if ((statfs(folder.c_str(), &system) == 0 && system.f_type == PROC_SUPER_MAGIC) ||
        IsFolder(folder, "/dev")) {
      ThrowInvalidArgument(absl::StrCat(
          "write ", OneLine(path), ": found ", next == path ? "" : "a link to ",
          next == path ? "a file of /proc or /dev" : OneLine(next),
          ", expected the name of a file of its own, which a new one can take the place of"));
    }
    char target[PATH_MAX];
    const ssize_t size = readlink(next.c_str(), target, sizeof target);
    if (size <= 0) return;  // no link
    const std::string to(target, static_cast<size_t>(size));
    next = to[0] == '/' ? to : absl::StrCat(folder, "/", to);
  }
}

// What would refuse the rename onto `path`, found now.
void CheckReplaceable(const std::string& path) {
  struct statx found;
  if (statx(AT_FDCWD, path.c_str(), AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS,
            &found) != 0) {
    // Among them a name that is too long, which the temporary file's is not.
    if (errno != ENOENT && errno != ENOSYS)
      ThrowErrno(errno, absl::StrCat("write ", OneLine(path)));
    return;
  }
  const auto has = [&found](uint64_t attribute) {
    return (found.stx_attributes_mask & found.stx_attributes & attribute) != 0;
  };
  if (has(STATX_ATTR_MOUNT_ROOT)) {
    ThrowFailedPrecondition(absl::StrCat("write ", OneLine(path),
                                         ": found a mount point, expected a file that a new one "
                                         "can take the place of; mount its folder"));
  }
  if (has(STATX_ATTR_IMMUTABLE | STATX_ATTR_APPEND)) {
    ThrowErrno(EPERM,
               absl::StrCat("write ", OneLine(path), ": the file is ",
                            has(STATX_ATTR_IMMUTABLE) ? "immutable" : "append-only", " (lsattr)"));
  }
  struct stat folder;
  const uid_t user = geteuid();
  if (user != 0 && stat(FolderOf(path).c_str(), &folder) == 0 && (folder.st_mode & S_ISVTX) != 0 &&
      found.stx_uid != user && folder.st_uid != user) {
    ThrowErrno(EPERM, absl::StrCat("write ", OneLine(path),
                                   ": the file is another user's in a sticky folder"));
  }
}

}  // namespace

AtomicFile::AtomicFile(const std::string& path) : path_(path) {
  if (path.empty()) ThrowInvalidArgument("write: path: found \"\", expected the name of a file");
  if (path.find('\0') != std::string::npos) {
    ThrowInvalidArgument(
        absl::StrCat("write ", OneLine(path), ": the path has a NUL, expected none"));
  }
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
  CheckNoMagicLink(path);
  CheckReplaceable(path);
  OpenTemporary();
  if (exists && fchmod(descriptor_, existing.st_mode & 07777) != 0) {
    Fail(errno, absl::StrCat("write ", OneLine(path), ": copy its permissions to ",
                             OneLine(temporary_path_)));
  }
}

void AtomicFile::OpenTemporary() {
  // Several that write the same path at once take one number after the other.
  for (int number = 0; number < kNumbersLookedAt; ++number) {
    RemoveIfLeft(TemporaryPath(path_, number));
  }
  for (int number = 0;; ++number) {
    temporary_path_ = TemporaryPath(path_, number);
    descriptor_ = open(temporary_path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0 && (errno == EEXIST || errno == EINTR)) continue;
    if (descriptor_ < 0) {
      ThrowErrno(errno,
                 absl::StrCat("write ", OneLine(path_), ": create ", OneLine(temporary_path_)));
    }
    // Until it is locked others take it for a dead writer's.
    const bool is_taken = flock(descriptor_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (!is_taken && IsSameFile(descriptor_, temporary_path_.c_str())) return;
    close(descriptor_);
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
  unlink(temporary_path_.c_str());  // while the lock says that it is ours
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
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
  // Closing may still find an error, and the lock has to stay until the file has its name.
  const int lock = fcntl(descriptor_, F_DUPFD_CLOEXEC, 0);
  if (lock < 0) Fail(errno, absl::StrCat("commit ", OneLine(path_)));
  const int closed = close(std::exchange(descriptor_, lock));
  if (closed != 0 && errno != EINTR) {
    Fail(errno, absl::StrCat("commit ", OneLine(path_), ": close ", OneLine(temporary_path_)));
  }
  if (rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    Fail(errno, absl::StrCat("commit ", OneLine(path_), ": rename ", OneLine(temporary_path_)));
  }
  close(std::exchange(descriptor_, -1));
  state_ = State::kCommitted;
  const std::string folder = FolderOf(path_);
  if (const int error = SyncFolder(folder); error != 0) {
    ThrowErrno(error, absl::StrCat("commit ", OneLine(path_),
                                   ": the file is in place, but its folder could not be synced: ",
                                   OneLine(folder)));
  }
}

DiskReservation::DiskReservation(const std::string& path, uint64_t bytes) {
  const std::string what = absl::StrCat("write ", OneLine(path), ": reserve ", bytes, " bytes");
  {
    const AtomicFile file(path);
    descriptor_ = fcntl(file.descriptor_, F_DUPFD_CLOEXEC, 0);
  }  // which takes the name away
  if (descriptor_ < 0) ThrowErrno(errno, what);
  int error;
  do {
    error = bytes == 0 || fallocate(descriptor_, 0, 0, static_cast<off_t>(bytes)) == 0 ? 0 : errno;
  } while (error == EINTR);
  if (error == EOPNOTSUPP || error == ENOSYS) {
    struct statvfs free;
    const bool fits = fstatvfs(descriptor_, &free) != 0 ||
                      bytes / std::max<uint64_t>(1, free.f_frsize) < free.f_bavail;
    error = fits ? 0 : ENOSPC;
  }
  if (error == 0) return;
  Release();
  ThrowErrno(error, what);
}

DiskReservation::DiskReservation(DiskReservation&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

DiskReservation& DiskReservation::operator=(DiskReservation&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

void DiskReservation::Release() noexcept {
  if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
}

}  // namespace tidepool
