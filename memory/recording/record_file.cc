#include "tidepool/memory/recording/record_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace tidepool::record {
namespace {

constexpr int kFlags = O_WRONLY | O_CLOEXEC | O_APPEND | O_NOCTTY | O_NONBLOCK;

// Above what programs choose for themselves, below what select() can have; the kernel's table of
// descriptors grows with the highest.
constexpr rlim_t kHighDescriptor = 1000;

// The same file at a high descriptor, as high as the limit lets; where none is free, the one it had.
int MoveUp(int descriptor) noexcept {
  rlimit limit;
  rlim_t at = kHighDescriptor;
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur <= at) {
    at = limit.rlim_cur - limit.rlim_cur / 16;
  }
  for (; at > static_cast<rlim_t>(descriptor); at /= 2) {
    const int high = fcntl(descriptor, F_DUPFD_CLOEXEC, static_cast<int>(at));
    if (high < 0) continue;
    close(descriptor);
    return high;
  }
  return descriptor;
}

}  // namespace

int RecordFile::Open(const char* path) noexcept {
  const int descriptor = open(path, kFlags | O_CREAT, 0666);
  if (descriptor < 0) return errno;
  struct stat status;
  int error = fstat(descriptor, &status) != 0 ? errno : S_ISREG(status.st_mode) ? 0 : ENOTSUP;
  if (error == 0 && flock(descriptor, LOCK_EX | LOCK_NB) != 0) error = errno;
  if (error == 0 && ftruncate(descriptor, 0) != 0) error = errno;
  if (error != 0) {
    close(descriptor);
    return error;
  }
  descriptor_ = MoveUp(descriptor);
  process_ = getpid();
  path_ = path;
  device_ = status.st_dev;
  inode_ = status.st_ino;
  written_ = 0;
  return 0;
}

bool RecordFile::IsOwn(int descriptor, int64_t* size) const noexcept {
  struct stat status;
  if (fstat(descriptor, &status) != 0) return false;
  *size = status.st_size;
  return status.st_dev == device_ && status.st_ino == inode_;
}

// Another process may have taken the file for its own record meanwhile: nobody had it locked.
bool RecordFile::OpenAgain() noexcept {
  if (process_ != getpid())
    return false;  // a child of vfork(): not its descriptors, but its memory
  const int descriptor = open(path_, kFlags);
  if (descriptor < 0) return false;
  int64_t size;
  if (!IsOwn(descriptor, &size) || size != written_ || flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    close(descriptor);
    return false;
  }
  descriptor_ = MoveUp(descriptor);
  return true;
}

int RecordFile::Write(const char* data, size_t bytes) noexcept {
  int64_t size;
  if (!IsOwn(descriptor_, &size) && !OpenAgain()) return EBADF;
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      static_cast<rlim_t>(written_) + bytes > limit.rlim_cur) {
    return EFBIG;
  }
  while (bytes > 0) {
    const ssize_t count = write(descriptor_, data, bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return count < 0 ? errno : EIO;
    data += count;
    bytes -= static_cast<size_t>(count);
    written_ += count;
  }
  return 0;
}

void RecordFile::Close() noexcept {
  int64_t size;
  if (descriptor_ >= 0 && IsOwn(descriptor_, &size)) close(descriptor_);
  descriptor_ = -1;
}

}  // namespace tidepool::record
