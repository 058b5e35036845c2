#include "tidepool/memory/provider/mapped_file.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string NewPath(const char* name) {
  const std::string path = testing::TempDir() + "/mapped_file_test_" + name;
  unlink(path.c_str());
  return path;
}

struct stat StatusOf(const std::string& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0) << path;
  return status;
}

Error ErrorOf(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error;
  }
  return Error(absl::StatusCode::kOk, "nothing was thrown");
}

void WriteFile(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

TEST(MappedFile, ContentsSurviveReopening) {
  const std::string path = NewPath("contents");
  {
    MappedFile file("w", path, 100000, 0, 64);
    EXPECT_EQ(file.bytes(), 100032);
    EXPECT_EQ(file.base()[99999], std::byte{0});
    std::memset(file.base(), 7, 100000);
  }
  EXPECT_EQ(StatusOf(path).st_size, 100032);
  MappedFile file("w", path, 0, 0, 64);
  EXPECT_EQ(file.bytes(), 100032);
  EXPECT_EQ(file.base()[99999], std::byte{7});
  EXPECT_EQ(file.base()[100000], std::byte{0});
}

TEST(MappedFile, ShorterFilesAreExtendedLongerOnesSetTheSize) {
  const std::string path = NewPath("lengths");
  WriteFile(path, std::string(1000, 'x'));
  {
    MappedFile file("w", path, 50000, 0, 16);
    EXPECT_EQ(file.bytes(), 50000);
    EXPECT_EQ(file.base()[999], std::byte{'x'});
    EXPECT_EQ(file.base()[1000], std::byte{0});
  }
  {
    MappedFile file("w", path, 10, 0, 16);
    EXPECT_EQ(file.bytes(), 50000);
  }
  MappedFile file("w", path, 10, 20000, 16);
  EXPECT_EQ(file.bytes(), 20000);
  EXPECT_EQ(StatusOf(path).st_size, 50000);  // what lies beyond the limit is left alone
}

// A file of whole pages has no room behind its end in its last page.
TEST(MappedFile, HasAReadableTailAndAnAlignedBase) {
  for (size_t alignment : {16, 4096, 2 << 20}) {
    MappedFile file("w", "", size_t{2} << 20, 0, alignment);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(file.base()) % alignment, 0);
    for (size_t i = 0; i < 64; ++i) EXPECT_EQ(file.base()[file.bytes() + i], std::byte{0});
    EXPECT_GE(file.mapped_bytes(), file.bytes() + 64);
  }
}

// A sparse file of somebody else's gets its blocks, so that no write can meet a full disk.
TEST(MappedFile, BlocksAreAllocated) {
  const std::string path = NewPath("sparse");
  WriteFile(path, "x");
  ASSERT_EQ(truncate(path.c_str(), 1 << 20), 0);
  MappedFile file("w", path, 0, 0, 64);
  EXPECT_GE(StatusOf(path).st_blocks * 512, 1 << 20);
  EXPECT_EQ(file.base()[0], std::byte{'x'});
}

TEST(MappedFile, ANamelessFileLeavesNothingBehind) {
  const std::string directory = NewPath("directory");
  ASSERT_EQ(mkdir(directory.c_str(), 0700), 0);
  auto names = [&] {
    int count = 0;
    DIR* opened = opendir(directory.c_str());
    while (readdir(opened) != nullptr) ++count;
    closedir(opened);
    return count;
  };
  setenv("TMPDIR", directory.c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    MappedFile file("w", "", 1 << 20, 0, 64);
    std::memset(file.base(), 1, 1 << 20);
    _exit(names() == 2 ? 0 : 1);  // a crash: no destructor runs
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "the file has a name while it is mapped";
  EXPECT_EQ(names(), 2);  // . and ..
  setenv("TMPDIR", (directory + "/missing").c_str(), 1);
  const Error error = ErrorOf([] { MappedFile("w", "", 4096, 0, 64); });
  EXPECT_EQ(error.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(error.message(), HasSubstr("/missing"));
  unsetenv("TMPDIR");
  rmdir(directory.c_str());
}

TEST(MappedFile, TwoMappingsOfOneFileAreRefused) {
  const std::string path = NewPath("locked");
  std::optional<MappedFile> first(std::in_place, "a", path, 4096, 0, 64);
  first->base()[0] = std::byte{5};
  const Error error = ErrorOf([&] { MappedFile("b", path, 8192, 0, 64); });
  EXPECT_EQ(error.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(error.message(), AllOf(HasSubstr("workspace [b]"), HasSubstr(path),
                                     HasSubstr("mapped by another workspace or process")));
  EXPECT_EQ(StatusOf(path).st_size, 4096);
  first.reset();
  MappedFile again("b", path, 0, 0, 64);
  EXPECT_EQ(again.base()[0], std::byte{5});
}

TEST(MappedFile, WhatIsNoFileIsNamed) {
  const Error directory = ErrorOf([] { MappedFile("w", testing::TempDir(), 4096, 0, 64); });
  EXPECT_EQ(directory.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(directory.message(), HasSubstr("is a directory"));

  const std::string missing = NewPath("none") + "/x";
  const Error no_directory = ErrorOf([&] { MappedFile("w", missing, 4096, 0, 64); });
  EXPECT_EQ(no_directory.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(no_directory.message(), HasSubstr(missing));

  const std::string pipe = NewPath("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf([&] { MappedFile("w", pipe, 4096, 0, 64); }).message(),
              HasSubstr("is not a regular file"));
  unlink(pipe.c_str());

  const std::string empty = NewPath("empty");
  const Error nothing = ErrorOf([&] { MappedFile("w", empty, 0, 0, 64); });
  EXPECT_EQ(nothing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(nothing.message(), HasSubstr("nothing to map"));
  EXPECT_NE(access(empty.c_str(), F_OK), 0) << "what a refusal made is removed";
}

TEST(MappedFile, WithoutPermissionNothingIsDone) {
  const std::string path = NewPath("forbidden");
  WriteFile(path, "x");
  ASSERT_EQ(chmod(path.c_str(), 0400), 0);
  const bool root = geteuid() == 0;  // to whom permissions mean nothing
  if (root && seteuid(65534) != 0) GTEST_SKIP() << "no other user to be";
  const Error error = ErrorOf([&] { MappedFile("w", path, 4096, 0, 64); });
  if (root) {
    ASSERT_EQ(seteuid(0), 0);
  }
  EXPECT_EQ(error.code(), absl::StatusCode::kPermissionDenied);
  EXPECT_THAT(error.message(), HasSubstr(path));
  EXPECT_EQ(StatusOf(path).st_size, 1);
}

TEST(MappedFile, AFullDiskIsAnErrorAndTheFileIsAsItWas) {
  const std::string path = NewPath("full");
  WriteFile(path, std::string(1000, 'x'));
  const Error larger_than_disk = ErrorOf([&] { MappedFile("w", path, size_t{1} << 50, 0, 64); });
  EXPECT_EQ(larger_than_disk.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(larger_than_disk.message(), HasSubstr("free"));
  EXPECT_EQ(ErrorOf([&] { MappedFile("w", path, SIZE_MAX, 0, 64); }).code(),
            absl::StatusCode::kResourceExhausted);

  // A file system that says no half-way, as a quota would.
  signal(SIGXFSZ, SIG_IGN);
  rlimit before;
  getrlimit(RLIMIT_FSIZE, &before);
  rlimit limit = before;
  limit.rlim_cur = 65536;
  setrlimit(RLIMIT_FSIZE, &limit);
  const Error limited = ErrorOf([&] { MappedFile("w", path, 1 << 20, 0, 64); });
  const std::string fresh = NewPath("fresh");
  const Error limited_fresh = ErrorOf([&] { MappedFile("w", fresh, 1 << 20, 0, 64); });
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(limited.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(limited.message(), HasSubstr("1048576 bytes on disk"));
  EXPECT_EQ(limited_fresh.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(access(fresh.c_str(), F_OK), 0);
  EXPECT_EQ(StatusOf(path).st_size, 1000);
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they map memory too
// The file has its blocks already when there are no addresses to map it at.
TEST(MappedFile, WithoutAddressesTheFileIsAsItWas) {
  const std::string path = NewPath("addresses"), fresh = NewPath("addresses_fresh");
  WriteFile(path, std::string(1000, 'x'));
  rlimit before;
  getrlimit(RLIMIT_AS, &before);
  rlimit limit = before;
  limit.rlim_cur = 4096;  // less than there is
  setrlimit(RLIMIT_AS, &limit);
  const Error error = ErrorOf([&] { MappedFile("w", path, 1 << 20, 0, 64); });
  const Error error_fresh = ErrorOf([&] { MappedFile("w", fresh, 1 << 20, 0, 64); });
  setrlimit(RLIMIT_AS, &before);
  EXPECT_EQ(error.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(error.message(), HasSubstr("bytes of addresses"));
  EXPECT_EQ(StatusOf(path).st_size, 1000);
  EXPECT_EQ(error_fresh.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(access(fresh.c_str(), F_OK), 0);
}
#endif

TEST(MappedFile, TruncationByOthersIsNoticed) {
  const std::string path = NewPath("truncated");
  MappedFile file("w", path, 8192, 0, 64);
  file.CheckLength("w");
  ASSERT_EQ(truncate(path.c_str(), 100), 0);
  const Error error = ErrorOf([&] { file.CheckLength("w"); });
  EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(error.message(),
              AllOf(HasSubstr(path), HasSubstr("truncated to 100 bytes while 8192")));
}

}  // namespace
}  // namespace tidepool
