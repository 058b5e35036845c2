// Archives that say more than they have, and names that an archive does not hold.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/memory_budget.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/memory/testing/fuzzing/heap_watch.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/testing/zip_writer.h"

namespace tidepool {
namespace {

using absl::StatusCode;

std::string NpyOfZeros(uint64_t bytes) {
  std::string text =
      absl::StrCat("{'descr': '|u1', 'fortran_order': False, 'shape': (", bytes, ",), }\n");
  return std::string("\x93NUMPY\x01\0", 8) + static_cast<char>(text.size()) + '\0' + text +
         std::string(bytes, '\0');
}

Error Refusal(const std::string& bytes, uint64_t most = kMaxNpzInflatedBytes) {
  return ErrorOf([&] { ReadNpz(WriteTestFile("lies.npz", bytes), Place::Heap(), most); });
}

TEST(NpzLimits, EntriesThatShareTheirBytesAreRefused) {
  constexpr uint64_t kEach = 1 << 20;
  std::vector<ZipEntry> entries = {{"a0.npy", NpyOfZeros(kEach), true}};
  EXPECT_EQ(ReadNpz(WriteTestFile("one.npz", ZipOf(entries))).at("a0").NumElements(), kEach);
  for (int i = 1; i < 60; ++i)
    entries.push_back({absl::StrCat("a", i, ".npy"), "", true, /*shares_first=*/true});
  const std::string bytes = ZipOf(entries);
  EXPECT_LT(bytes.size(), 8000);
  PeakScope during;
  EXPECT_THAT(Refusal(bytes), IsError(StatusCode::kDataLoss,
                                      {"lies.npz: entry \"a", "in a file of", "that share none"}));
  EXPECT_EQ(during.peak_bytes() - during.start().total, 0) << "before any array is made";
}

// As large as what was once read into 6.3 GB: a file of 105 KB.
TEST(NpzLimits, SixtyArraysOfOneStreamTakeNoMemory) {
  std::vector<ZipEntry> entries = {{"a0.npy", NpyOfZeros(105 << 20), true}};
  for (int i = 1; i < 60; ++i)
    entries.push_back({absl::StrCat("a", i, ".npy"), "", true, /*shares_first=*/true});
  const std::string bytes = ZipOf(entries);
  EXPECT_LT(bytes.size(), 115'000);
  const HeapWatch heap;
  PeakScope arrays;
  EXPECT_THAT(Refusal(bytes), IsError(StatusCode::kDataLoss, {"lies.npz: entry \"a"}));
  EXPECT_LT(heap.peak_bytes(), 1 << 20);
  EXPECT_EQ(arrays.peak_bytes() - arrays.start().total, 0);
}

// Sums of sizes do not find them: long names make room for more entries than there are bytes of.
TEST(NpzLimits, FewSharedBytesAreRefusedToo) {
  const std::string long_name(400, 'n');
  for (const bool is_deflated : {false, true}) {
    std::vector<ZipEntry> entries = {{long_name + "0.npy", NpyOfZeros(100), is_deflated},
                                     {long_name + "1.npy", NpyOfZeros(50), is_deflated}};
    EXPECT_EQ(ReadNpz(WriteTestFile("apart.npz", ZipOf(entries))).size(), 2);
    entries.push_back({long_name + "2.npy", "", is_deflated, /*shares_first=*/true});
    EXPECT_THAT(Refusal(ZipOf(entries)),
                IsError(StatusCode::kDataLoss,
                        {"nn\"...: found bytes ", "expected entries that share none"}));
  }
}

TEST(NpzLimits, InflatedBytesAreLimited) {
  const std::vector<ZipEntry> entries = {{"a.npy", NpyOfZeros(100000), true},
                                         {"b.npy", NpyOfZeros(100000), true},
                                         {"c.npy", NpyOfZeros(1000), false}};
  const std::string bytes = ZipOf(entries);
  EXPECT_EQ(ReadNpz(WriteTestFile("two.npz", bytes), Place::Heap(), 201000).size(), 3);
  EXPECT_THAT(Refusal(bytes, 150000),
              IsError(StatusCode::kResourceExhausted,
                      {"entry \"b.npy\"", "bytes of compressed arrays", "at most 150000"}));
  // What is stored is as large as the file, which is no lie.
  const std::string stored = ZipOf({{"c.npy", NpyOfZeros(1000), false}});
  EXPECT_EQ(ReadNpz(WriteTestFile("stored.npz", stored), Place::Heap(), 0).size(), 1);
}

TEST(NpzLimits, SizesAreCheckedAgainstTheFile) {
  ZipEntry entry{"a.npy", NpyOfZeros(100), true};
  entry.claims = 1 << 30;
  EXPECT_THAT(Refusal(ZipOf({entry})),
              IsError(StatusCode::kDataLoss, {"found 1073741824 bytes out of", "in a file of"}));
  entry.is_deflated = false;
  EXPECT_THAT(Refusal(ZipOf({entry})),
              IsError(StatusCode::kDataLoss, {"found 1073741824 bytes out of"}));
  std::string bzip2 = ZipOf({{"a.npy", NpyOfZeros(100), false}});
  bzip2[8] = bzip2[bzip2.find("PK\x01\x02") + 10] = 12;
  EXPECT_THAT(Refusal(bzip2), IsError(StatusCode::kUnimplemented,
                                      {"compression method 12", "expected 0 (stored) or 8"}));
}

// Opening one waits for a writer, who may never come.
// libzip takes a file without bytes for an archive without entries; files of the system have none.
TEST(NpzLimits, AFileWithoutBytesIsNoArchive) {
  EXPECT_THAT(Refusal(""),
              IsError(StatusCode::kDataLoss, {"lies.npz: found no bytes, expected a zip archive"}));
  EXPECT_THAT(ErrorOf([] { ReadNpz("/proc/self/maps"); }),
              IsError(StatusCode::kDataLoss, {"/proc/self/maps: found no bytes"}));
}

// By the field that archives have for sizes and places of 2^32 bytes and more.
TEST(NpzLimits, PlacesBeyondTheLargestFileAreDataLoss) {
  std::string bytes = ZipOf({{"a.npy", NpyOfZeros(10)}});
  const size_t directory = bytes.find("PK\1\2");
  bytes.replace(directory + 20, 8, 8, '\xff');  // both sizes are elsewhere
  bytes.replace(directory + 42, 4, 4, '\xff');  // and where the entry begins
  bytes[directory + 30] = 28;                   // bytes of the field
  char& directory_bytes = bytes[bytes.size() - 22 + 12];
  directory_bytes = static_cast<char>(directory_bytes + 28);
  bytes.insert(directory + 46 + 5, std::string("\1\0\30\0", 4) + std::string(24, '\xff'));
  EXPECT_THAT(Refusal(bytes), IsError(StatusCode::kDataLoss, {"lies.npz: cannot be opened"}));
}

TEST(NpzLimits, WhoHasNoMemoryForAnArrayIsToldWhichFile) {
  MemoryOwner& owner = MemoryOwner::Process().Child("little");
  const MemoryOwnerScope scope(owner);
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), 1 << 20);
  const std::string bytes = NpyOfZeros(4 << 20);
  EXPECT_THAT(ErrorOf([&] { ParseNpy(bytes, "w.npy", Place::Heap()); }),
              IsError(StatusCode::kResourceExhausted, {"w.npy: "}));
  EXPECT_THAT(ErrorOf([&] { ReadNpy(WriteTestFile("w.npy", bytes), Place::Heap()); }),
              IsError(StatusCode::kResourceExhausted, {"w.npy: "}));
  EXPECT_THAT(Refusal(ZipOf({{"a.npy", bytes, true}})),
              IsError(StatusCode::kResourceExhausted, {"lies.npz: entry \"a.npy\": "}));
  MemoryBudget::Global().SetOwnerLimit(owner, Host(), MemoryBudget::kUnlimited);
}

TEST(NpzLimits, PipesAreRefusedAtOnce) {
  const std::string pipe = testing::TempDir() + "/arrays_pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  const auto is_refused =
      IsError(StatusCode::kInvalidArgument, {"open " + pipe, "found a pipe or device"});
  EXPECT_THAT(ErrorOf([&] { ReadNpy(pipe); }), is_refused);
  EXPECT_THAT(ErrorOf([&] { ReadNpz(pipe); }), is_refused);
}

// The end of the directory of a large archive has a count of 64 bits: it is not room for so many.
TEST(NpzLimits, TheNumberOfEntriesIsNotBelieved) {
  const auto put = [](std::string& out, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  };
  for (const uint64_t count :
       {uint64_t{2}, uint64_t{20'000'000}, uint64_t{1} << 40, ~uint64_t{0}}) {
    const std::string plain = ZipOf({{"a.npy", NpyOfZeros(100), false}});
    const size_t directory = plain.find("PK\x01\x02"), end = plain.find("PK\x05\x06");
    std::string bytes = plain.substr(0, end) + "PK\x06\x06";
    put(bytes, 44, 8), put(bytes, 45, 2), put(bytes, 45, 2), put(bytes, 0, 8);
    put(bytes, count, 8), put(bytes, count, 8), put(bytes, end - directory, 8),
        put(bytes, directory, 8);
    bytes += "PK\x06\x07";
    put(bytes, 0, 4), put(bytes, end, 8), put(bytes, 1, 4);
    bytes += plain.substr(end);
    bytes.replace(bytes.size() - 22 + 8, 12, std::string(12, '\xff'));
    const HeapWatch heap;
    EXPECT_EQ(Refusal(bytes).code(), StatusCode::kDataLoss) << count;
    EXPECT_LT(heap.peak_bytes(), 1 << 20) << count;
  }
}

TEST(WriteNpz, NamesThatAnArchiveDoesNotHoldAreRefused) {
  const std::string path = testing::TempDir() + "/names.npz";
  WriteNpz(path, {{"kept", Ones({2})}});
  for (const std::string& name : {std::string(), std::string("a\0b", 3), std::string("\xff"),
                                  std::string(65532, 'x'), std::string("\xed\xa0\x80")}) {
    EXPECT_THAT(ErrorOf([&] {
                  WriteNpz(path, {{"good", Ones({2})}, {name, Ones({2})}});
                }),
                IsError(StatusCode::kInvalidArgument,
                        {path + ": array \"", "expected 1 to 65531 bytes of UTF-8"}));
  }
  EXPECT_THAT(ErrorOf([&] {
                WriteNpz(path, {{"odd", Ones({2}, DType::kBFloat16)}});
              }),
              IsError(StatusCode::kInvalidArgument, {path + ": array \"odd\": npy: found bf16"}));
  EXPECT_EQ(ReadNpz(path).count("kept"), 1) << "what was there stays";
  std::map<std::string, NDArray> arrays;
  for (const std::string& name :
       {std::string("ж/ü.npy"), std::string(" "), std::string(65531, 'x'), std::string("..")}) {
    arrays.emplace(name, Ones({2}));
  }
  WriteNpz(path, arrays);
  const std::map<std::string, NDArray> read = ReadNpz(path);
  ASSERT_EQ(read.size(), arrays.size());
  for (const auto& [name, array] : arrays) EXPECT_EQ(read.count(name), 1) << name.substr(0, 20);
}

std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    names.push_back(entry.path().filename().string());
  }
  return names;
}

// As every file that is written: the old one or the whole new one, and nothing left beside it.
TEST(WriteNpz, AppearsWholeOrNotAtAll) {
  const std::string folder = testing::TempDir() + "/whole_npz", path = folder + "/x.npz";
  std::filesystem::create_directory(folder);
  const NDArray large = Arange(0, 1 << 16);
  for (const NpzCompression compression : {NpzCompression::kNone, NpzCompression::kDeflate}) {
    WriteNpz(path, {{"old", Ones({3})}}, compression);
    // A process that dies in the middle.
    const auto die = [&] {
      const rlimit few{1 << 14, 1 << 14};
      setrlimit(RLIMIT_FSIZE, &few);
      WriteNpz(path, {{"new", large}}, compression);
    };
    EXPECT_EXIT(die(), testing::KilledBySignal(SIGXFSZ), "");
    EXPECT_EQ(ReadNpz(path).count("old"), 1);
    // The system refuses in the middle.
    struct sigaction ignored = {}, before;
    ignored.sa_handler = SIG_IGN;
    ASSERT_EQ(sigaction(SIGXFSZ, &ignored, &before), 0);
    rlimit limit;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlimit few{1 << 14, limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &few), 0);
    EXPECT_THAT(ErrorOf([&] {
                  WriteNpz(path, {{"new", large}}, compression);
                }),
                IsError(StatusCode::kOutOfRange, {"write " + path, "File too large"}));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    sigaction(SIGXFSZ, &before, nullptr);
    EXPECT_EQ(ReadNpz(path).count("old"), 1);
    EXPECT_THAT(FilesIn(folder), testing::ElementsAre("x.npz"))
        << "what the dead process left is gone too";
    WriteNpz(path, {{"new", large}, {"second", Ones({2})}}, compression);
    EXPECT_EQ(ReadNpz(path).at("new").ToVector<float>(), large.ToVector<float>());
  }
}

// Under the rules of every file that is written.
TEST(WriteNpz, WhatCannotBeReplacedIsRefused) {
  const std::string folder = testing::TempDir() + "/replaced_npz";
  std::filesystem::create_directory(folder);
  const std::string pipe = folder + "/pipe", target = folder + "/target", link = folder + "/link";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT(ErrorOf([&] {
                WriteNpz(pipe, {{"a", Ones({2})}});
              }),
              IsError(StatusCode::kInvalidArgument, {"write " + pipe, "device or pipe"}));
  WriteNpz(target, {{"kept", Ones({2})}});
  std::filesystem::create_symlink("target", link);
  WriteNpz(link, {{"a", Ones({2})}});
  EXPECT_FALSE(std::filesystem::is_symlink(link));
  EXPECT_EQ(ReadNpz(target).count("kept"), 1) << "a link is replaced, not followed";
  EXPECT_THAT(ErrorOf([&] {
                WriteNpz(folder + "/none/x", {{"a", Ones({2})}});
              }),
              IsError(StatusCode::kNotFound, {"write " + folder + "/none/x"}));
}

}  // namespace
}  // namespace tidepool
