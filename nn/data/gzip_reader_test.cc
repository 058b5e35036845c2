#include "tidepool/nn/data/gzip_reader.h"

#include <sys/stat.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/fuzzing/heap_watch.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool {
namespace {

using absl::StatusCode;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

std::string Text(const std::vector<uint8_t>& bytes) {
  return std::string(bytes.begin(), bytes.end());
}

std::string Unzip(const std::string& file, size_t max_bytes = 1 << 20) {
  return Text(Gunzip(Bytes(file), "f.gz", max_bytes));
}

Error GunzipError(const std::string& file, size_t max_bytes = 1 << 20) {
  return ErrorOf([&] { Unzip(file, max_bytes); });
}

// `gzip -n9` of "hello\n", made by GNU gzip 1.12.
const std::string kHello(
    "\x1f\x8b\x08\x00\x00\x00\x00\x00\x02\x03\xcb\x48\xcd\xc9\xc9\xe7\x02\x00\x20\x30\x3a\x36\x06"
    "\x00\x00\x00",
    26);

// With every optional field of RFC 1952: extra field, name, comment; and a header CRC that is
// given.
std::string WithAllFields(const std::string& member, const std::string& crc) {
  std::string header = member.substr(0, 10);
  header[3] = 2 | 4 | 8 | 16;
  return header + std::string("\x03\x00xyz", 5) + std::string("name\0", 5) +
         std::string("comment\0", 8) + crc + member.substr(10);
}

TEST(Gunzip, KnownFile) { EXPECT_EQ(Unzip(kHello), "hello\n"); }

TEST(Gunzip, RoundTripsOfManyLengths) {
  std::mt19937 random(5);
  for (const size_t length : {0, 1, 2, 4095, 4096, 4097, 70000, 1 << 20}) {
    std::string content(length, '\0');
    for (char& c : content) c = static_cast<char>(random() % 7);
    for (const int level : {0, 1, 9})
      EXPECT_EQ(Unzip(Gzip(content, level), length), content) << length;
  }
}

TEST(Gunzip, JoinsMembers) {
  EXPECT_EQ(Unzip(Gzip("ab") + Gzip("") + Gzip(std::string(9000, 'c')) + kHello),
            "ab" + std::string(9000, 'c') + "hello\n");
}

TEST(Gunzip, ManyTinyMembersAreNotQuadratic) {
  std::string file;
  for (int i = 0; i < 50000; ++i) file += kHello;
  EXPECT_EQ(Unzip(file).size(), 300000u);
}

TEST(Gunzip, OptionalHeaderFields) {
  // 0xcd28: low half of Python's zlib.crc32 of the 28 header bytes before it.
  EXPECT_EQ(Unzip(WithAllFields(kHello, std::string("\x28\xcd", 2))), "hello\n");
  EXPECT_THAT(GunzipError(WithAllFields(kHello, std::string("\0\0", 2))),
              IsError(StatusCode::kDataLoss, {"f.gz", "byte 28", "header CRC", "found 0x00000000",
                                              "expected 0x0000cd28"}));
}

// Every truncation of a file with every field is an error that names the length at which it ends.
TEST(Gunzip, EveryTruncation) {
  const std::string file = WithAllFields(kHello, std::string("\x28\xcd", 2));
  for (size_t length = 2; length < file.size(); ++length) {
    EXPECT_THAT(GunzipError(file.substr(0, length)),
                IsError(StatusCode::kDataLoss,
                        {"f.gz: byte ", "gzip ", "found the end of the file", "expected"}))
        << length;
  }
  EXPECT_THAT(GunzipError(kHello.substr(0, 12)),
              IsError(StatusCode::kDataLoss, {"byte 12", "data", "more deflate"}));
  EXPECT_THAT(
      GunzipError(kHello.substr(0, 20)),
      IsError(StatusCode::kDataLoss, {"byte 18", "CRC-32", "after 2 bytes", "expected 4 bytes"}));
  EXPECT_THAT(
      GunzipError(kHello.substr(0, 5)),
      IsError(StatusCode::kDataLoss, {"byte 0", "header", "after 5 bytes", "expected 10 bytes"}));
}

TEST(Gunzip, Damage) {
  std::string bad = kHello;
  bad[18] ^= 1;
  EXPECT_THAT(GunzipError(bad),
              IsError(StatusCode::kDataLoss,
                      {"f.gz", "byte 18", "CRC-32", "found 0x363a3021", "expected 0x363a3020"}));
  bad = kHello;
  bad[22] = 7;
  EXPECT_THAT(GunzipError(bad),
              IsError(StatusCode::kDataLoss, {"byte 22", "length", "found 7", "expected 6"}));
  bad = kHello;
  bad[2] = 7;
  EXPECT_THAT(GunzipError(bad),
              IsError(StatusCode::kDataLoss, {"byte 2", "method", "found 7", "expected 8"}));
  bad = kHello;
  bad[3] = 32;
  EXPECT_THAT(GunzipError(bad), IsError(StatusCode::kDataLoss,
                                        {"byte 3", "flags", "found 32", "expected at most 31"}));
  bad = kHello;
  bad[10] = 7;  // block type 3 does not exist
  EXPECT_THAT(GunzipError(bad), IsError(StatusCode::kDataLoss,
                                        {"data", "found invalid block type", "expected valid"}));
  EXPECT_THAT(GunzipError("plain"),
              IsError(StatusCode::kDataLoss, {"f.gz", "byte 0", "magic", "expected 1f 8b"}));
  EXPECT_THAT(GunzipError(""),
              IsError(StatusCode::kDataLoss, {"byte 0", "magic", "a shorter file"}));
}

TEST(Gunzip, TrailingGarbage) {
  EXPECT_THAT(GunzipError(kHello + "junk"),
              IsError(StatusCode::kDataLoss,
                      {"f.gz", "byte 26", "found 4 bytes after the last member", "expected"}));
  EXPECT_THAT(GunzipError(kHello + std::string(3, '\0')),
              IsError(StatusCode::kDataLoss, {"byte 26", "3 bytes after"}));
  EXPECT_THAT(GunzipError(kHello + "\x1f\x8b"),
              IsError(StatusCode::kDataLoss, {"byte 26", "header", "after 2 bytes"}));
}

// The last four bytes say how much there is, and nobody has to tell the truth.
TEST(Gunzip, ItsOwnLengthIsNotBelieved) {
  const std::string claims = kHello.substr(0, 22) + std::string("\xff\xff\xff\x7f", 4);
  const HeapWatch heap;
  EXPECT_THAT(GunzipError(claims, size_t{4} << 30),
              IsError(StatusCode::kDataLoss, {"found 2147483647", "expected 6"}));
  EXPECT_LT(heap.peak_bytes(), 1 << 20);
}

TEST(Gunzip, BombsStopAtTheLimit) {
  const std::string bomb = Gzip(std::string(50'000'000, '\0'), 9);
  EXPECT_LT(bomb.size(), 60000u);
  EXPECT_THAT(GunzipError(bomb, 1000000),
              IsError(StatusCode::kResourceExhausted,
                      {"f.gz", "byte ", "more than 1000000 bytes", "expected at most"}));
  EXPECT_EQ(Unzip(bomb, 50'000'000).size(), 50'000'000u);
  EXPECT_THAT(GunzipError(bomb, 49'999'999), IsError(StatusCode::kResourceExhausted, {"49999999"}));
  EXPECT_THAT(GunzipError(kHello, 0),
              IsError(StatusCode::kResourceExhausted, {"more than 0 bytes"}));
  EXPECT_EQ(Unzip(Gzip(""), 0), "");
}

TEST(ReadFileMaybeGzip, PlainOrGzipByContentNotName) {
  EXPECT_EQ(Text(ReadFileMaybeGzip(WriteTestFile("plain.gz", "plain"), 100)), "plain");
  EXPECT_EQ(Text(ReadFileMaybeGzip(WriteTestFile("zipped", kHello), 100)), "hello\n");
  EXPECT_EQ(Text(ReadFileMaybeGzip(WriteTestFile("empty", ""), 0)), "");
  EXPECT_EQ(Text(ReadFileMaybeGzip(WriteTestFile("one", "\x1f"), 1)), "\x1f");
}

TEST(ReadFileMaybeGzip, Limits) {
  const std::string path = WriteTestFile("ten", "0123456789");
  EXPECT_EQ(ReadFileMaybeGzip(path, 10).size(), 10u);
  EXPECT_THAT(ErrorOf([&] { ReadFileMaybeGzip(path, 9); }),
              IsError(StatusCode::kResourceExhausted,
                      {path, "byte 9", "found 10 bytes", "expected at most 9"}));
  const std::string large = WriteTestFile("large", std::string(100000, 'x'));
  EXPECT_THAT(ErrorOf([&] { ReadFileMaybeGzip(large, 50); }),
              IsError(StatusCode::kResourceExhausted, {large, "found 100000 bytes", "at most 50"}));
  EXPECT_THAT(
      ErrorOf([] { ReadFileMaybeGzip("/dev/zero", 5000); }),
      IsError(StatusCode::kResourceExhausted, {"/dev/zero", "found more than", "at most 5000"}));
  // Stored blocks make the file longer than its content: the limit is on the content.
  std::string noise(50000, '\0');
  std::mt19937 random(1);
  for (char& c : noise) c = static_cast<char>(random());
  const std::string stored = Gzip(noise, 0);
  EXPECT_GT(stored.size(), noise.size());
  EXPECT_EQ(Text(ReadFileMaybeGzip(WriteTestFile("stored", stored), noise.size())), noise);
}

TEST(ReadFileMaybeGzip, Pipes) {
  const std::string path = testing::TempDir() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const std::string content = Gzip(std::string(100000, 'p'), 0);
  std::thread writer([&] { std::ofstream(path, std::ios::binary) << content; });
  EXPECT_EQ(Text(ReadFileMaybeGzip(path, 1 << 20)), std::string(100000, 'p'));
  writer.join();
}

TEST(ReadFileMaybeGzip, NoFile) {
  const std::string missing = testing::TempDir() + "/missing.gz";
  EXPECT_THAT(ErrorOf([&] { ReadFileMaybeGzip(missing, 10); }),
              IsError(StatusCode::kNotFound, {missing, "No such file or directory"}));
  EXPECT_THAT(ErrorOf([] { ReadFileMaybeGzip(testing::TempDir(), 10); }),
              IsError(StatusCode::kFailedPrecondition, {testing::TempDir(), "Is a directory"}));
}

}  // namespace
}  // namespace tidepool
