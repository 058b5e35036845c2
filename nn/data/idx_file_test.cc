#include "tidepool/nn/data/idx_file.h"

#include <sys/stat.h>

#include <csignal>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool {
namespace {

using absl::StatusCode;

IdxFile Parse(const std::string& bytes, int rank) {
  return ParseIdx(absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()),
                  "f.idx", rank);
}

void ExpectDataLoss(const std::string& bytes, int rank, std::vector<std::string> parts) {
  parts.push_back("f.idx: ");
  parts.push_back("expected ");
  EXPECT_THAT(ErrorOf([&] { Parse(bytes, rank); }), IsError(StatusCode::kDataLoss, parts));
}

TEST(ParseIdx, Ranks) {
  const IdxFile images = Parse(Idx({2, 1, 3}, "abcdef"), 3);
  EXPECT_THAT(images.dims, testing::ElementsAre(2, 1, 3));
  EXPECT_THAT(images.data, testing::ElementsAre('a', 'b', 'c', 'd', 'e', 'f'));
  EXPECT_THAT(Parse(Idx({3}, "abc"), 1).dims, testing::ElementsAre(3));
  EXPECT_THAT(Parse(Idx({}, "a"), 0).data, testing::ElementsAre('a'));
  EXPECT_EQ(Parse(Idx({258}, std::string(258, 'x')), 1).data.size(), 258u);
}

TEST(ParseIdx, EmptyDimensions) {
  EXPECT_THAT(Parse(Idx({0, 28, 28}, ""), 3).dims, testing::ElementsAre(0, 28, 28));
  // The product is 0 even where the other two would overflow.
  EXPECT_EQ(Parse(Idx({0, 0xffffffff, 0xffffffff, 0xffffffff}, ""), 4).data.size(), 0u);
  ExpectDataLoss(Idx({0, 28}, "x"), 2,
                 {"byte 12", "found 1 bytes, too many", "expected 0 for dimensions [0,28]"});
}

// Sixteen bytes that claim four billion images: who makes room for a label of each believes them.
TEST(ParseIdx, ItemsWithoutElements) {
  ExpectDataLoss(Idx({0xffffffff, 0, 28}, ""), 3,
                 {"byte 4", "dimensions", "[4294967295,0,28]", "items of at least one element"});
  ExpectDataLoss(Idx({0xffffffff, 0xffffffff, 0xffffffff, 0}, ""), 4,
                 {"byte 4", "at least one element"});
}

TEST(ParseIdx, Magic) {
  ExpectDataLoss("", 1, {"byte 0", "magic", "end of the file after 0 bytes", "expected 4"});
  ExpectDataLoss(std::string("\0\0\x08", 3), 1,
                 {"byte 3", "magic", "end of the file after 3 bytes"});
  ExpectDataLoss("PK\x08\x01" + std::string(8, '\0'), 1,
                 {"byte 0", "magic", "found 0x50 0x4b", "expected 0x00 0x00"});
  ExpectDataLoss(Idx({3}, "abc", 0x0d), 1,
                 {"byte 2", "element type", "found 0x0d", "expected 0x08 (unsigned byte)"});
}

TEST(ParseIdx, Rank) {
  ExpectDataLoss(Idx({3}, "abc"), 3, {"byte 3", "rank", "found 1", "expected 3"});
  ExpectDataLoss(Idx({3, 1, 1}, "abc"), 1, {"byte 3", "rank", "found 3", "expected 1"});
}

TEST(ParseIdx, TruncatedHeader) {
  const std::string file = Idx({2, 1, 3}, "abcdef");
  for (size_t length = 4; length < 16; ++length) {
    ExpectDataLoss(file.substr(0, length), 3,
                   {"byte " + std::to_string(length), "dimensions", "found the end",
                    "header of 16 bytes for rank 3"});
  }
}

TEST(ParseIdx, DataTooShortOrTooLong) {
  ExpectDataLoss(Idx({2, 3}, "abcde"), 2,
                 {"byte 17", "data", "found 5 bytes, too few", "expected 6", "[2,3]"});
  ExpectDataLoss(Idx({2, 3}, "abcdefg"), 2,
                 {"byte 18", "data", "found 7 bytes, too many", "expected 6", "[2,3]"});
  ExpectDataLoss(Idx({0x80000000}, "abc"), 1, {"found 3 bytes", "expected 2147483648"});
}

TEST(ParseIdx, ProductOverflows) {
  ExpectDataLoss(Idx({0xffffffff, 0xffffffff, 1}, "abc"), 3,
                 {"byte 4", "dimensions", "[4294967295,4294967295,1]", "product below 2^63"});
  // 2^64: a product taken modulo 2^64 would be 0 and fit an empty file.
  ExpectDataLoss(Idx({0x10000, 0x10000, 0x10000, 0x10000}, ""), 4,
                 {"byte 4", "product below 2^63"});
}

TEST(ReadIdx, PlainAndGzipAreTheSame) {
  const std::string file = Idx({2, 2}, "wxyz");
  for (const std::string& path :
       {WriteTestFile("plain.idx", file), WriteTestFile("zipped.idx", Gzip(file))}) {
    const IdxFile idx = ReadIdx(path, 2);
    EXPECT_THAT(idx.dims, testing::ElementsAre(2, 2));
    EXPECT_THAT(idx.data, testing::ElementsAre('w', 'x', 'y', 'z'));
    EXPECT_THAT(ErrorOf([&] { ReadIdx(path, 3); }),
                IsError(StatusCode::kDataLoss, {path, "rank", "found 2"}));
  }
}

// What it says is looked at before anything is inflated, or waited for.
TEST(ReadIdx, DimensionsAreCheckedFirst) {
  const std::string bomb =
      WriteTestFile("bomb.idx", Gzip(Idx({1 << 13, 1 << 13}, std::string(1 << 22, '\0')), 9));
  EXPECT_THAT(
      ErrorOf([&] { ReadIdx(bomb, 2, 1 << 20); }),
      IsError(StatusCode::kResourceExhausted,
              {bomb, "byte 4", "[8192,8192], which are 67108864 bytes", "at most 1048576"}));
  EXPECT_THAT(ErrorOf([&] { ReadIdx(bomb, 3); }),
              IsError(StatusCode::kDataLoss, {"rank: found 2"}));
  EXPECT_THAT(
      ErrorOf([&] { ReadIdx(bomb, 2); }),
      IsError(StatusCode::kDataLoss, {"found 4194304 bytes, too few", "expected 67108864"}));
  const std::string longer =
      WriteTestFile("longer.idx", Gzip(Idx({4}, std::string(1 << 22, '\0')), 9));
  EXPECT_THAT(
      ErrorOf([&] { ReadIdx(longer, 1); }),
      IsError(StatusCode::kDataLoss, {longer, "byte 12", "found more than 4 bytes, too many"}));
}

// A file that inflates a thousandfold is read twice rather than held twice.
// Files that end behind their headers: whoever looks at the dimensions does so before that is
// found.
TEST(ReadIdx, WhatIsNotWantedCostsTheHeaderAlone) {
  const std::string header = Idx({1 << 20, 28, 28}, "");
  const auto unwanted = [](absl::Span<const int64_t> dims) {
    EXPECT_THAT(dims, testing::ElementsAre(1 << 20, 28, 28));
    ThrowInvalidArgument("not wanted");
  };
  for (const std::string& path :
       {WriteTestFile("unwanted", header), WriteTestFile("unwanted.gz", Gzip(header))}) {
    EXPECT_EQ(ErrorOf([&] { ReadIdx(path, 3, kMaxIdxBytes, unwanted); }).message(), "not wanted");
    EXPECT_THAT(ErrorOf([&] { ReadIdx(path, 3); }),
                IsError(StatusCode::kDataLoss, {path, "too few"}));
  }
}

TEST(ReadIdx, IsHeldOnce) {
  constexpr size_t kBytes = (size_t{9} << 20) + 5;
  std::string content(kBytes, '\0');
  content.back() = 'z';
  const std::string path =
      WriteTestFile("many.idx", Gzip(Idx({static_cast<uint32_t>(kBytes)}, content), 9));
  const IdxFile idx = ReadIdx(path, 1);
  ASSERT_EQ(idx.data.size(), kBytes);
  EXPECT_EQ(idx.data.back(), 'z');
  // A vector that has grown has room for more, or had the half of its content copied.
  EXPECT_EQ(idx.data.capacity(), kBytes);
}

TEST(ReadIdx, WhatNeverEndsIsRefusedByItsFirstBytes) {
  EXPECT_THAT(
      ErrorOf([] { ReadIdx("/dev/zero", 3); }),
      IsError(StatusCode::kDataLoss, {"/dev/zero", "byte 2", "element type", "found 0x00"}));
}

// A pipe's writer says more than it writes, or writes on for ever; nobody waits for it.
TEST(ReadIdx, Pipes) {
  const std::string path = testing::TempDir() + "/idx_pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  const auto read = [&](const std::string& bytes, bool for_ever) {
    std::thread writer([&] {
      std::ofstream file(path, std::ios::binary);
      do {
        file << bytes << std::flush;
      } while (for_ever && file);
    });
    IdxFile idx;
    std::string problem;
    try {
      idx = ReadIdx(path, 1, 1 << 20);
    } catch (const Error& error) {
      problem = error.message();
    }
    writer.join();
    return std::make_pair(idx.data.size(), problem);
  };
  signal(SIGPIPE, SIG_IGN);
  EXPECT_EQ(read(Idx({100000}, std::string(100000, 'x')), false).first, 100000u);
  EXPECT_EQ(read(Gzip(Idx({100000}, std::string(100000, 'x'))), false).first, 100000u);
  EXPECT_THAT(read(Idx({1 << 20}, "few"), false).second,
              testing::HasSubstr("found 3 bytes, too few"));
  EXPECT_THAT(read(Idx({1 << 20}, std::string(5000, 'x')), true).second,
              testing::HasSubstr("too many"));
  EXPECT_THAT(read(Idx({1 << 21}, ""), true).second,
              testing::HasSubstr("expected at most 1048576"));
  // A name that does not end, and members without content.
  std::string named = Gzip("x").substr(0, 10) + std::string(1 << 20, 'n');
  named[3] = 8;
  EXPECT_THAT(read(named, true).second, testing::HasSubstr("file name: found a longer one"));
  EXPECT_THAT(read(Gzip("") + Gzip("") + Gzip(""), true).second,
              testing::HasSubstr("bytes in the file, expected"));
}

TEST(ReadIdx, ErrorsOfTheLayersBelow) {
  const std::string truncated = WriteTestFile("cut.gz", Gzip(Idx({2, 2}, "wxyz")).substr(0, 20));
  EXPECT_THAT(
      ErrorOf([&] { ReadIdx(truncated, 2); }),
      IsError(StatusCode::kDataLoss, {truncated, "byte", "gzip", "found the end of the file"}));
  EXPECT_THAT(ErrorOf([] { ReadIdx("/none", 2); }), IsError(StatusCode::kNotFound, {"/none"}));
}

}  // namespace
}  // namespace tidepool
