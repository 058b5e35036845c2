#include "tidepool/memory/io/file_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"

namespace tidepool {
namespace {

absl::Span<std::byte> Bytes(std::string& text) {
  return absl::MakeSpan(reinterpret_cast<std::byte*>(text.data()), text.size());
}

TEST(FileReader, ReadsInPieces) {
  FileReader file(WriteTestFile("pieces", "0123456789"));
  EXPECT_TRUE(file.is_regular());
  EXPECT_EQ(file.size(), 10u);
  std::string first(4, ' '), rest(20, ' ');
  file.ReadExactly(Bytes(first), "first");
  EXPECT_EQ(first, "0123");
  EXPECT_EQ(file.offset(), 4u);
  EXPECT_EQ(file.Read(Bytes(rest)), 6u);
  EXPECT_EQ(rest.substr(0, 6), "456789");
  EXPECT_EQ(file.Read(Bytes(rest)), 0u);
}

TEST(FileReader, TooShortNamesTheByte) {
  const std::string path = WriteTestFile("short", "01234");
  FileReader file(path);
  std::string four(4, ' ');
  file.ReadExactly(Bytes(four), "first");
  EXPECT_THAT(ErrorOf([&] { file.ReadExactly(Bytes(four), "trailer"); }),
              IsError(absl::StatusCode::kDataLoss,
                      {path, "byte 4", "trailer", "found 1 bytes", "expected 4"}));
}

TEST(FileReader, APathWithANulIsNotAnotherFile) {
  const std::string path = WriteTestFile("whole", "content");
  EXPECT_THAT(ErrorOf([&] { FileReader reader(path + std::string("\0.other", 7)); }),
              IsError(absl::StatusCode::kInvalidArgument, {"the path has a NUL"}));
}

TEST(FileReader, MissingFileAndFolder) {
  const std::string missing = testing::TempDir() + "/no such file";
  EXPECT_THAT(ErrorOf([&] { FileReader file(missing); }),
              IsError(absl::StatusCode::kNotFound, {missing, "No such file or directory"}));
  EXPECT_THAT(
      ErrorOf([&] { FileReader file(testing::TempDir()); }),
      IsError(absl::StatusCode::kFailedPrecondition, {testing::TempDir(), "Is a directory"}));
}

TEST(FileReader, PipesAndDevicesAreRefusedAtOnceUnlessAskedFor) {
  const std::string pipe = testing::TempDir() + "/pipe without a writer";
  unlink(pipe.c_str());
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  for (const std::string& path : {pipe, std::string("/dev/zero"), std::string("/dev/null")}) {
    EXPECT_THAT(ErrorOf([&] { FileReader file(path); }),
                IsError(absl::StatusCode::kInvalidArgument,
                        {"open " + path, "found a pipe or device", "expected a regular file"}));
  }
  // A descriptor that stayed open would be the next number now.
  const int next = open("/dev/null", O_RDONLY);
  close(next);
  EXPECT_THROW(FileReader file(pipe), Error);
  const int again = open("/dev/null", O_RDONLY);
  close(again);
  EXPECT_EQ(again, next);
  unlink(pipe.c_str());
}

TEST(FileReader, DevicesHaveNoSize) {
  FileReader file("/dev/zero", Opens::kPipesToo);
  EXPECT_FALSE(file.is_regular());
  EXPECT_EQ(file.size(), 0u);
  std::string bytes(3, 'x');
  file.ReadExactly(Bytes(bytes), "zeros");
  EXPECT_EQ(bytes, std::string(3, '\0'));
}

TEST(FileReader, AnyPlaceIsRead) {
  const std::string path = testing::TempDir() + "places";
  const int made = open(path.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
  ASSERT_EQ(write(made, "0123456789", 10), 10);
  close(made);
  const FileReader file(path);
  std::string bytes(4, 'x');
  file.ReadExactlyAt(6, Bytes(bytes), "the end");
  EXPECT_EQ(bytes, "6789");
  file.ReadExactlyAt(0, Bytes(bytes), "the beginning");
  EXPECT_EQ(bytes, "0123");
  EXPECT_THAT(ErrorOf([&] { file.ReadExactlyAt(8, Bytes(bytes), "beyond"); }),
              IsError(absl::StatusCode::kDataLoss,
                      {path, "byte 8: beyond: found 2 bytes before the end", "expected 4"}));
  unlink(path.c_str());
}

TEST(FileReader, OddPathsStayOnOneLine) {
  EXPECT_THAT(ErrorOf([] { FileReader file("a\nb"); }),
              IsError(absl::StatusCode::kNotFound, {"a\\nb"}));
}

}  // namespace
}  // namespace tidepool
