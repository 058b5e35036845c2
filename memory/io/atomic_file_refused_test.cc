// What is found before anything is written: files that nothing can be renamed onto, disks without
// room.
#include <fcntl.h>
#include <linux/fs.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/atomic_file.h"
#include "tidepool/memory/io/testing/error_of.h"

namespace tidepool {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;

std::string NewFolder() {
  static int count = 0;
  const std::string folder =
      testing::TempDir() + "/refused" + std::to_string(getpid()) + "_" + std::to_string(count++);
  fs::create_directory(folder);
  return folder;
}

size_t FileCount(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

// What only the rename would refuse is known before anything is written.
TEST(AtomicFile, NamesThatAreTooLongAreRefusedAtOnce) {
  const std::string folder = NewFolder(), path = folder + "/" + std::string(256, 'n');
  EXPECT_THAT(ErrorOf([&] { AtomicFile file(path); }),
              IsError(StatusCode::kInvalidArgument, {path, "File name too long"}));
  EXPECT_EQ(FileCount(folder), 0u);
}

// Standard output that goes to a file is a regular one: the link that leads there is the machine's.
TEST(AtomicFile, LinksToOpenFilesAreRefusedAtOnce) {
  const std::string folder = NewFolder(), target = folder + "/target";
  const int file = open(target.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_GE(file, 0);
  const std::string magic = "/proc/self/fd/" + std::to_string(file);
  fs::create_symlink(magic, folder + "/stdout");
  fs::create_symlink("stdout", folder + "/indirect");
  fs::create_symlink("/dev/fd/" + std::to_string(file), folder + "/fd");
  fs::create_symlink("loop", folder + "/loop");
  for (const std::string& path :
       {magic, folder + "/stdout", folder + "/indirect", folder + "/fd",
        std::string("/dev/tidepool-no-such"), std::string("/proc/none")}) {
    EXPECT_THAT(
        ErrorOf([&] { AtomicFile out(path); }),
        IsError(StatusCode::kInvalidArgument, {path, "expected the name of a file of its own"}))
        << path;
    EXPECT_EQ(ErrorOf([&] { DiskReservation(path, 1); }).code(), StatusCode::kInvalidArgument);
  }
  close(file);
  EXPECT_TRUE(fs::is_symlink(folder + "/stdout"));
  EXPECT_EQ(FileCount(folder), 5u);
  AtomicFile(folder + "/loop");  // a link that is replaced, as others
  fs::create_symlink(target, folder + "/link");
  AtomicFile(folder + "/link").Commit();
  EXPECT_FALSE(fs::is_symlink(folder + "/link"));
}

TEST(AtomicFile, ImmutableAndAppendOnlyFilesAreRefusedAtOnce) {
  const std::string folder = NewFolder(), path = folder + "/out";
  std::ofstream(path) << "old";
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(file, 0);
  for (const auto& [flag, word] :
       {std::pair{FS_IMMUTABLE_FL, "immutable"}, std::pair{FS_APPEND_FL, "append-only"}}) {
    int flags = flag;
    if (ioctl(file, FS_IOC_SETFLAGS, &flags) != 0) {
      close(file);
      GTEST_SKIP() << "this file system or user sets no such flag";
    }
    EXPECT_THAT(ErrorOf([&] { AtomicFile out(path); }),
                IsError(StatusCode::kPermissionDenied, {path, word, "not permitted"}));
    flags = 0;
    ASSERT_EQ(ioctl(file, FS_IOC_SETFLAGS, &flags), 0);
  }
  close(file);
  EXPECT_EQ(FileCount(folder), 1u);
}

// Runs `body` in a child that may mount, if it may; its exit status.
constexpr int kNotPermitted = 77;
int StatusOfMountingChild(absl::FunctionRef<int()> body) {
  const pid_t child = fork();
  if (child == 0) {
    if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
      _exit(kNotPermitted);
    if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) _exit(kNotPermitted);
    _exit(body());
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

TEST(AtomicFile, AFileThatIsAMountPointIsRefusedAtOnce) {
  const std::string folder = NewFolder(), path = folder + "/out", source = folder + "/source";
  std::ofstream(path) << "old";
  std::ofstream(source) << "mounted";
  const int status = StatusOfMountingChild([&] {
    if (mount(source.c_str(), path.c_str(), nullptr, MS_BIND, nullptr) != 0) return kNotPermitted;
    const Error error = ErrorOf([&] { AtomicFile file(path); });
    return error.code() == StatusCode::kFailedPrecondition &&
                   error.message().find("out: found a mount point") != std::string::npos
               ? 0
               : 1;
  });
  if (status == kNotPermitted) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(FileCount(folder), 2u);
}

TEST(AtomicFile, AnotherUsersFileInAStickyFolderIsRefusedAtOnce) {
  const std::string folder = NewFolder(), path = folder + "/out";
  std::ofstream(path) << "old";
  ASSERT_EQ(chmod(folder.c_str(), 01777), 0);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() != 0 || seteuid(65534) != 0 || access(folder.c_str(), X_OK) != 0) _exit(77);
    const Error error = ErrorOf([&] { AtomicFile file(path); });
    const bool right = error.code() == StatusCode::kPermissionDenied &&
                       error.message().find("sticky folder") != std::string::npos;
    _exit(right ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no other user to become";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(FileCount(folder), 1u);
}

TEST(DiskReservation, LeavesNoNameAndSaysWhatIsMissing) {
  const std::string folder = NewFolder(), path = folder + "/out";
  DiskReservation room(path, 100000);
  EXPECT_EQ(FileCount(folder), 0u);
  EXPECT_THAT(ErrorOf([&] { DiskReservation(path, uint64_t{1} << 55); }).message(),
              testing::HasSubstr(path + ": reserve 36028797018963968 bytes: "));
  EXPECT_THAT(ErrorOf([&] { DiskReservation(folder + "/none/out", 1); }),
              IsError(StatusCode::kNotFound, {"none/out", "No such file"}));
  EXPECT_EQ(FileCount(folder), 0u);
}

TEST(DiskReservation, KeepsTheRoomUntilItIsReleased) {
  const std::string folder = NewFolder();
  const int status = StatusOfMountingChild([&] {
    if (mount("tmpfs", folder.c_str(), "tmpfs", 0, "size=1m") != 0) return kNotPermitted;
    const auto write = [&] {
      return CatchStatus([&] {
               AtomicFile file(folder + "/other");
               file.Append(std::string(600 << 10, 'x'));
             })
          .code();
    };
    DiskReservation room(folder + "/out", 600 << 10);
    if (write() != StatusCode::kResourceExhausted) return 1;
    if (ErrorOf([&] { DiskReservation(folder + "/out", 600 << 10); }).code() !=
        StatusCode::kResourceExhausted) {
      return 2;
    }
    room.Release();
    return write() == StatusCode::kOk ? 0 : 3;
  });
  if (status == kNotPermitted) GTEST_SKIP() << "mounting is not permitted here";
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace tidepool
