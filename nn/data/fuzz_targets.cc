// gzip and IDX files.
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/nn/data/gzip_reader.h"
#include "tidepool/nn/data/idx_file.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool {
namespace {

constexpr size_t kMaxContent = size_t{1} << 18;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

std::string Content(size_t length, int kinds) {
  std::string content;
  uint32_t state = 12345;
  for (size_t i = 0; i < length; ++i) {
    state = state * 1664525 + 1013904223;
    content += static_cast<char>((state >> 24) % kinds);
  }
  return content;
}

void ExpectProper(const Error& error, const std::string& name) {
  EXPECT_TRUE(error.code() == absl::StatusCode::kDataLoss ||
              error.code() == absl::StatusCode::kResourceExhausted)
      << error.message();
  EXPECT_EQ(error.message().find(name + ": byte "), 0u) << error.message();
}

// ---- gzip -------------------------------------------------------------------------------------

// What zlib's own gzip reader makes of the file, as a second opinion on accepted ones.
std::string ReferenceGunzip(const std::string& bytes) {
  std::string out;
  size_t position = 0;
  while (position < bytes.size()) {
    z_stream stream = {};
    EXPECT_EQ(inflateInit2(&stream, 16 + MAX_WBITS), Z_OK);
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + position));
    stream.avail_in = static_cast<uInt>(bytes.size() - position);
    std::string member(kMaxContent + 1, '\0');
    stream.next_out = reinterpret_cast<Bytef*>(member.data());
    stream.avail_out = static_cast<uInt>(member.size());
    const int result = inflate(&stream, Z_FINISH);
    out += member.substr(0, stream.total_out);
    position += stream.total_in;
    inflateEnd(&stream);
    if (result != Z_STREAM_END) return "refused";
  }
  return out;
}

std::vector<std::string> GzipFiles() {
  std::string with_fields = Gzip("content");
  with_fields[3] = 4 | 8 | 16;
  with_fields.insert(10, std::string("\x03\0xyzname\0comment\0", 18));
  return {Gzip(Content(600, 256), 0),
          Gzip(Content(900, 5), 9),
          Gzip(std::string(100000, 'z')),
          Gzip("ab") + Gzip("cd"),
          with_fields,
          Gzip(std::string(1 << 23, '\0'), 9)};
}

// The header's flags and extra field, and what the end says of the content.
void MutateGzip(ByteMutator& mutator, std::string& bytes) {
  if (bytes.size() < 18) return mutator.Mutate(bytes);
  switch (mutator.Below(4)) {
    case 0:
      bytes[3] = static_cast<char>(mutator.Below(32));
      return;
    case 1: {
      const auto number = static_cast<uint32_t>(mutator.Number(600));
      std::memcpy(bytes.data() + bytes.size() - 4, &number, sizeof(number));
      return;
    }
    case 2:
      bytes += Gzip(std::string(mutator.Below(50), 'm'));
      return;
    default:
      mutator.Mutate(bytes);
  }
}

void ReadGzip(const std::string& bytes) {
  std::string read = "refused";
  const std::string path = FuzzFile(bytes);
  try {
    const std::vector<uint8_t> content = ReadFileMaybeGzip(path, kMaxContent);
    read.assign(content.begin(), content.end());
  } catch (const Error& error) {
    ExpectProper(error, path);
  }
  try {
    const std::vector<uint8_t> content = Gunzip(Bytes(bytes), "case", kMaxContent);
    EXPECT_LE(content.size(), kMaxContent);
    const std::string text(content.begin(), content.end());
    EXPECT_EQ(text, ReferenceGunzip(bytes));
    EXPECT_EQ(text, read);
  } catch (const Error& error) {
    ExpectProper(error, "case");
    EXPECT_TRUE(read == "refused" || !IsGzip(Bytes(bytes)));
    throw;
  }
}

TIDEPOOL_FUZZ_TARGET(Gzip, {.corpus = &GzipFiles,
                            .mutate = &MutateGzip,
                            .run = &ReadGzip,
                            .constant_bytes = (size_t{1} << 20) + 4 * kMaxContent,
                            .cases = 40000});

// ---- IDX --------------------------------------------------------------------------------------

std::vector<std::string> IdxFiles() {
  const std::vector<std::string> plain = {
      Idx({4, 3, 2}, Content(24, 256)),  Idx({0, 3, 2}, ""),
      Idx({1, 1, 200}, Content(200, 9)), Idx({0xffffffff, 0, 28}, ""),
      Idx({1u << 31, 1u << 31, 4}, ""),  Idx({60000, 28, 28}, "few")};
  std::vector<std::string> files = plain;
  for (const std::string& file : plain) files.push_back(Gzip(file));
  files.push_back(Gzip(Idx({1 << 10, 1 << 10, 8}, std::string(1 << 23, '\0')), 9));
  return files;
}

// A dimension, or the elements.
void MutateIdx(ByteMutator& mutator, std::string& bytes) {
  const bool is_gzip = IsGzip(Bytes(bytes));
  if (bytes.size() < 16 || (is_gzip && mutator.Below(4) != 0)) return mutator.Mutate(bytes);
  std::string file = bytes;
  if (is_gzip) {
    try {
      const std::vector<uint8_t> content = Gunzip(Bytes(bytes), "input", kMaxContent);
      file.assign(content.begin(), content.end());
    } catch (const Error&) {
      return mutator.Mutate(bytes);
    }
  }
  if (file.size() >= 16 && mutator.Below(4) != 0) {
    const size_t at = 4 + 4 * mutator.Below(3);
    const auto dim = static_cast<uint32_t>(mutator.Number(4));
    for (size_t i = 0; i < 4; ++i) file[at + i] = static_cast<char>(dim >> (24 - 8 * i));
  } else {
    mutator.Mutate(file);
  }
  bytes = is_gzip ? Gzip(file) : file;
}

void ReadIdxFile(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  IdxFile read;
  bool accepted = true;
  const auto check = [](const IdxFile& file, const std::string& content) {
    ASSERT_EQ(file.dims.size(), 3u);
    unsigned __int128 product = 1;
    for (const int64_t dim : file.dims) product *= static_cast<uint64_t>(dim);
    EXPECT_EQ(static_cast<uint64_t>(product), file.data.size());
    // Whoever has something for each item holds no more than the file.
    EXPECT_LE(static_cast<uint64_t>(file.dims[0]), file.data.size());
    EXPECT_EQ(std::string(file.data.begin(), file.data.end()), content.substr(16));
  };
  std::string content = bytes;
  if (IsGzip(Bytes(bytes))) {
    try {
      const std::vector<uint8_t> plain = Gunzip(Bytes(bytes), path, kMaxContent + 16);
      content.assign(plain.begin(), plain.end());
    } catch (const Error&) {
      content.clear();
    }
  }
  try {
    check(ReadIdx(path, 3, kMaxContent), content);
  } catch (const Error& error) {
    ExpectProper(error, path);
    accepted = false;
  }
  try {
    check(ParseIdx(Bytes(content), "case", 3), content);
  } catch (const Error& error) {
    ExpectProper(error, "case");
    EXPECT_FALSE(accepted);
    throw;
  }
  // More than the limit is refused by the file's reader alone.
  EXPECT_TRUE(accepted || content.size() > kMaxContent + 16);
}

TIDEPOOL_FUZZ_TARGET(Idx, {.corpus = &IdxFiles,
                           .mutate = &MutateIdx,
                           .run = &ReadIdxFile,
                           .constant_bytes = (size_t{1} << 20) + 4 * kMaxContent,
                           .cases = 40000});

}  // namespace
}  // namespace tidepool
