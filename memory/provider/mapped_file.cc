#include "tidepool/memory/provider/mapped_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/accounting/memory_tracker.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/nameless_file.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {
namespace {

constexpr size_t kMostBytes = SIZE_MAX / 4;

size_t RoundUp(size_t n, size_t unit) { return (n + unit - 1) & ~(unit - 1); }

// Open and locked. Until Keep() is called, its end undoes what was done to the file.
class OpenFile {
 public:
  OpenFile(const std::string& who, const std::string& path) : who_(who), path_(path) {}
  ~OpenFile() {
    if (descriptor_ < 0) return;
    if (old_length_ >= 0 && ftruncate(descriptor_, old_length_) != 0) {
      // Nothing left to try: the file stays longer than it was, with zeros at its end.
    }
    if (made_) unlink(path_.c_str());
    close(descriptor_);
  }
  int Keep() { return std::exchange(descriptor_, -1); }

  void OpenTemporary() {
    const char* directory = std::getenv("TMPDIR");
    const std::string place = directory != nullptr && *directory != '\0' ? directory : "/tmp";
    path_ = absl::StrCat("a temporary file in ", place);
    descriptor_ = OpenNamelessFile(place);
    if (descriptor_ < 0) Fail(errno, "cannot be made");
  }

  void OpenNamed() {
    while (descriptor_ < 0) {
      descriptor_ = open(path_.c_str(), O_RDWR | O_CLOEXEC);
      if (descriptor_ < 0 && errno == ENOENT) {
        descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        made_ = descriptor_ >= 0;
        if (descriptor_ < 0 && errno == EEXIST) continue;  // made by somebody else meanwhile
      }
      if (descriptor_ < 0 && errno == EISDIR) Refuse("is a directory, expected a file");
      if (descriptor_ < 0) Fail(errno, "cannot be opened for reading and writing");
    }
    struct stat status = Status();
    if (!S_ISREG(status.st_mode)) Refuse("is not a regular file");
    if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    const int error = errno;
    made_ = false;  // whoever holds the lock has it now
    if (error == EWOULDBLOCK) {
      ThrowFailedPrecondition(absl::StrCat(Name(), " is mapped by another workspace or process"));
    }
    Fail(error, "cannot be locked");
  }

  struct stat Status() const {
    struct stat status;
    if (fstat(descriptor_, &status) != 0) Fail(errno, "has no status");
    return status;
  }

  // Every block of the first `bytes` is there afterwards.
  void AllocateBlocks(size_t bytes) {
    const struct stat status = Status();
    struct statvfs disk;
    const size_t present = static_cast<size_t>(status.st_blocks) * 512;
    if (bytes > present && fstatvfs(descriptor_, &disk) == 0) {
      // Before writing the disk full to find out.
      const double free_bytes = static_cast<double>(disk.f_bavail) * disk.f_frsize;
      if (static_cast<double>(bytes - present) > free_bytes) {
        ThrowResourceExhausted(absl::StrCat(Name(), " needs ", bytes - present,
                                            " bytes more on disk, which has ",
                                            static_cast<uint64_t>(free_bytes), " free"));
      }
    }
    old_length_ = status.st_size;
    const int error = posix_fallocate(descriptor_, 0, static_cast<off_t>(bytes));
    if (error == 0) return;
    if (error == ENOSPC || error == EFBIG || error == EDQUOT) {
      ThrowResourceExhausted(
          absl::StrCat(Name(), " cannot have ", bytes, " bytes on disk: ", std::strerror(error)));
    }
    Fail(error, "cannot be extended");
  }

  std::string Name() const { return absl::StrCat("workspace [", who_, "]: ", path_); }
  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  [[noreturn]] void Refuse(const char* what) const {
    ThrowInvalidArgument(absl::StrCat(Name(), " ", what));
  }
  [[noreturn]] void Fail(int error, const char* what) const {
    ThrowErrno(error, absl::StrCat(Name(), " ", what));
  }

 private:
  const std::string& who_;
  std::string path_;
  int descriptor_ = -1;
  bool made_ = false;
  int64_t old_length_ = -1;  // to go back to
};

}  // namespace

MappedFile::MappedFile(const std::string& who, const std::string& path, size_t least_bytes,
                       size_t most_bytes, size_t alignment) {
  MemoryTracker& ledger =
      MemoryTracker::Global();  // may throw, at its first use: before anything is taken
  OpenFile file(who, path);
  if (path.empty()) {
    file.OpenTemporary();
  } else {
    file.OpenNamed();
  }
  const size_t length = static_cast<size_t>(file.Status().st_size);
  size_t wanted = std::max(length, least_bytes);
  if (most_bytes > 0) wanted = std::min(wanted, most_bytes);
  if (wanted == 0) file.Refuse("is empty or new and initial_size is 0: there is nothing to map");
  if (wanted > kMostBytes) {
    ThrowResourceExhausted(absl::StrCat(file.Name(), " cannot have ", wanted, " bytes"));
  }
  const size_t bytes = RoundUp(wanted, alignment);
  file.AllocateBlocks(bytes);

  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t file_pages = RoundUp(bytes, page);
  // Behind the file's last page lies one that is always readable.
  const size_t mapped = file_pages + RoundUp(kReadableTailBytes, page);
  const size_t reserved = mapped + alignment;
  void* address =
      mmap(nullptr, reserved, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED) {
    ThrowResourceExhausted(
        absl::StrCat(file.Name(), ": the system refused ", reserved, " bytes of addresses"));
  }
  auto* const base = reinterpret_cast<std::byte*>(
      RoundUp(reinterpret_cast<uintptr_t>(address), std::max(alignment, page)));
  if (mmap(base, file_pages, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file.descriptor(),
           0) == MAP_FAILED) {
    const int error = errno;
    munmap(address, reserved);
    file.Fail(error, "cannot be mapped");
  }
  path_ = file.path();
  descriptor_ = file.Keep();
  mapping_ = static_cast<std::byte*>(address);
  reserved_bytes_ = reserved;
  base_ = base;
  bytes_ = bytes;
  mapped_bytes_ = mapped;
  ledger.CountSystemAllocation();
}

MappedFile::~MappedFile() {
  munmap(mapping_, reserved_bytes_);
  close(descriptor_);  // and with it the lock
  MemoryTracker::Global().CountSystemRelease();
}

void MappedFile::CheckLength(const std::string& who) const {
  struct stat status;
  if (fstat(descriptor_, &status) != 0) {
    ThrowErrno(errno, absl::StrCat("workspace [", who, "]: ", path_, " has no status"));
  }
  if (static_cast<size_t>(status.st_size) >= bytes_) return;
  ThrowDataLoss(absl::StrCat("workspace [", who, "]: ", path_, " was truncated to ", status.st_size,
                             " bytes while ", bytes_,
                             " bytes of it are mapped; Destroy() the workspace to map it anew"));
}

}  // namespace tidepool
