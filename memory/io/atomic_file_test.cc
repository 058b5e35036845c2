#include "tidepool/memory/io/atomic_file.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"

namespace tidepool {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;

std::string NewFolder() {
  static int count = 0;
  const std::string folder =
      testing::TempDir() + "/atomic" + std::to_string(getpid()) + "_" + std::to_string(count++);
  fs::create_directory(folder);
  return folder;
}

std::string Content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

size_t FileCount(const std::string& folder) {
  return std::distance(fs::directory_iterator(folder), fs::directory_iterator());
}

TEST(AtomicFile, AppearsAtCommit) {
  const std::string folder = NewFolder(), path = folder + "/out";
  AtomicFile file(path);
  file.Append(std::string("hello "));
  file.Append(std::string("world"));
  EXPECT_FALSE(fs::exists(path));
  EXPECT_EQ(fs::path(file.temporary_path()).parent_path(), folder);
  file.Commit();
  EXPECT_TRUE(file.is_committed());
  EXPECT_EQ(file.size(), 11u);
  EXPECT_EQ(Content(path), "hello world");
  EXPECT_EQ(FileCount(folder), 1u);
}

TEST(AtomicFile, OldContentStaysUntilCommitAndWithoutIt) {
  const std::string folder = NewFolder(), path = folder + "/out";
  std::ofstream(path) << "old";
  {
    AtomicFile file(path);
    file.Append(std::string("new"));
    EXPECT_EQ(Content(path), "old");
  }
  EXPECT_EQ(Content(path), "old");
  EXPECT_EQ(FileCount(folder), 1u);
}

TEST(AtomicFile, KeepsPermissionBitsAndReplacesLinks) {
  const std::string folder = NewFolder(), path = folder + "/out", link = folder + "/link";
  std::ofstream(path) << "old";
  fs::permissions(path, fs::perms::owner_read | fs::perms::owner_write);
  fs::create_symlink(path, link);
  for (const std::string& target : {path, link}) {
    AtomicFile file(target);
    file.Append(std::string("new"));
    file.Commit();
    EXPECT_EQ(fs::status(target).permissions(), fs::perms::owner_read | fs::perms::owner_write);
  }
  EXPECT_FALSE(fs::is_symlink(link));
}

TEST(AtomicFile, TwoWritersOfOnePathDoNotMix) {
  const std::string folder = NewFolder(), path = folder + "/out";
  std::vector<std::thread> writers;
  for (int i = 0; i < 8; ++i) {
    writers.emplace_back([&path, i] {
      AtomicFile file(path);
      for (int j = 0; j < 50; ++j) file.Append(std::string(100, static_cast<char>('a' + i)));
      file.Commit();
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::string content = Content(path);
  EXPECT_EQ(content, std::string(5000, content.at(0)));
  EXPECT_EQ(FileCount(folder), 1u);
}

TEST(AtomicFile, LongNamesAndRelativePaths) {
  const std::string folder = NewFolder(), path = folder + "/" + std::string(255, 'n');
  AtomicFile file(path);
  file.Commit();
  EXPECT_EQ(fs::file_size(path), 0u);

  const fs::path before = fs::current_path();
  fs::current_path(folder);
  {
    AtomicFile relative("plain");
    relative.Append(std::string("x"));
    relative.Commit();
  }
  fs::current_path(before);
  EXPECT_EQ(Content(folder + "/plain"), "x");
}

TEST(AtomicFile, BadPaths) {
  const std::string folder = NewFolder();
  std::ofstream(folder + "/file") << "x";
  EXPECT_THAT(ErrorOf([] { AtomicFile file(""); }),
              IsError(StatusCode::kInvalidArgument, {"path", "found \"\""}));
  EXPECT_THAT(ErrorOf([&] { AtomicFile file(folder); }),
              IsError(StatusCode::kFailedPrecondition, {folder, "Is a directory"}));
  EXPECT_THAT(ErrorOf([&] { AtomicFile file(folder + "/"); }),
              IsError(StatusCode::kFailedPrecondition, {folder, "Is a directory"}));
  EXPECT_THAT(ErrorOf([&] { AtomicFile file(folder + "/none/out"); }),
              IsError(StatusCode::kNotFound, {folder + "/none/out", "No such file or directory"}));
  EXPECT_THAT(ErrorOf([&] { AtomicFile file(folder + "/file/out"); }),
              IsError(StatusCode::kFailedPrecondition, {folder + "/file/out", "Not a directory"}));
}

// In a child process that gives up root's right to write everywhere.
TEST(AtomicFile, UnwritableFolder) {
  const std::string folder = NewFolder();
  fs::permissions(folder, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                              fs::perms::others_exec);
  const pid_t child = fork();
  if (child == 0) {
    if (geteuid() == 0 && seteuid(65534) != 0) _exit(77);
    try {
      AtomicFile file(folder + "/out");
    } catch (const Error& error) {
      const bool right = error.code() == StatusCode::kPermissionDenied &&
                         error.message().find(folder + "/out") != std::string::npos &&
                         error.message().find("Permission denied") != std::string::npos;
      _exit(right ? 0 : 1);
    }
    _exit(2);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "root without another user to become";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(FileCount(folder), 0u);
}

// A limit on file size takes the path a full disk takes: write() returns an error half-way.
TEST(AtomicFile, FailedWriteLeavesNothingAndCannotBeCommitted) {
  const std::string folder = NewFolder(), path = folder + "/out";
  std::ofstream(path) << "old";
  struct rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto file = std::make_unique<AtomicFile>(path);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit small = before;
  small.rlim_cur = 1000;
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  file->Append(std::string(600, 'x'));
  const Error error = ErrorOf([&] { file->Append(std::string(600, 'y')); });
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, old_handler);

  EXPECT_THAT(error,
              IsError(error.code(), {path, "byte 1000", file->temporary_path(), "File too large"}));
  EXPECT_THAT(ErrorOf([&] { file->Append(std::string("z")); }),
              IsError(StatusCode::kFailedPrecondition, {path, "found a file that failed before"}));
  EXPECT_THAT(ErrorOf([&] { file->Commit(); }),
              IsError(StatusCode::kFailedPrecondition, {path, "failed"}));
  file.reset();
  EXPECT_EQ(Content(path), "old");
  EXPECT_EQ(FileCount(folder), 1u);
}

// A temporary name that exists, here as a link elsewhere, is never opened.
TEST(AtomicFile, TakenTemporaryNamesAreSkipped) {
  const std::string folder = NewFolder(), path = folder + "/out";
  AtomicFile file(path);
  const std::string& name = file.temporary_path();
  const size_t number_at = name.rfind('-') + 1;
  const int number = std::stoi(name.substr(number_at));
  const std::string next = name.substr(0, number_at) + std::to_string(number + 1) + ".tmp";
  fs::create_symlink("/dev/full", next);
  AtomicFile other(path);
  EXPECT_NE(other.temporary_path(), next);
  EXPECT_TRUE(fs::is_symlink(next));
}

TEST(AtomicFile, RenameOntoAFolderThatAppearedMeanwhile) {
  const std::string folder = NewFolder(), path = folder + "/out";
  AtomicFile file(path);
  file.Append(std::string("x"));
  fs::create_directory(path);
  EXPECT_THAT(
      ErrorOf([&] { file.Commit(); }),
      IsError(StatusCode::kFailedPrecondition, {"commit " + path, "rename", "Is a directory"}));
  EXPECT_EQ(FileCount(folder), 1u);
}

TEST(AtomicFile, NothingAfterCommit) {
  const std::string path = NewFolder() + "/out";
  AtomicFile file(path);
  file.Commit();
  EXPECT_THAT(ErrorOf([&] { file.Append(std::string("x")); }),
              IsError(StatusCode::kFailedPrecondition, {path, "already committed"}));
  EXPECT_THAT(ErrorOf([&] { file.Commit(); }),
              IsError(StatusCode::kFailedPrecondition, {path, "already committed"}));
  EXPECT_EQ(Content(path), "");
}

// Kills writers at random points: the old file or a whole new one is all that is ever seen.
TEST(AtomicFile, KilledWritersLeaveTheOldFileOrAWholeNewOne) {
  const std::string folder = NewFolder(), path = folder + "/out";
  std::ofstream(path) << std::string(5000, '0');
  for (int round = 1; round <= 20; ++round) {
    const pid_t child = fork();
    if (child == 0) {
      for (int i = 0;; ++i) {
        AtomicFile file(path);
        for (int j = 0; j < 50; ++j) file.Append(std::string(100, static_cast<char>('a' + i % 26)));
        file.Commit();
      }
    }
    usleep(200 * round);
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    const std::string content = Content(path);
    ASSERT_EQ(content.size(), 5000u);
    ASSERT_EQ(content, std::string(5000, content[0]));
    ASSERT_LE(FileCount(folder), 2u) << "each writer clears what the one before it left";
  }
  { AtomicFile file(path); }
  EXPECT_EQ(FileCount(folder), 1u);
}

TEST(AtomicFile, OnlyTemporaryFilesOfDeadWritersAreCleared) {
  const std::string folder = NewFolder(), path = folder + "/out";
  AtomicFile living(path);
  living.Append(std::string("mine"));
  const std::string start = path + ".tidepool-";
  fs::create_symlink(path + ".elsewhere", start + "1.tmp");
  std::ofstream(path + ".elsewhere") << "not a temporary file";
  fs::create_directory(start + "2.tmp");
  ASSERT_EQ(mkfifo((start + "3.tmp").c_str(), 0600), 0);
  std::ofstream(start + "4.tmp") << "half of what a dead wri";
  fs::permissions(start + "4.tmp", fs::perms::owner_read);
  std::ofstream(path + ".tmp") << "somebody's";
  { AtomicFile other(path); }
  EXPECT_FALSE(fs::exists(start + "4.tmp"));
  EXPECT_EQ(FileCount(folder), 6u);
  EXPECT_EQ(Content(path + ".elsewhere"), "not a temporary file");
  living.Commit();
  EXPECT_EQ(Content(path), "mine");
}

// Renaming over /dev/null would break the machine for everybody.
TEST(AtomicFile, DevicesAndPipesAreRefusedAndStay) {
  try {
    AtomicFile file("/dev/null");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_NE(error.message().find("/dev/null: found a device or pipe"), std::string::npos);
  }
}

}  // namespace
}  // namespace tidepool
