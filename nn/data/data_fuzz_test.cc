// Every damaged gzip or IDX file parses into something self-consistent or throws tidepool::Error.
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/nn/data/gzip_reader.h"
#include "tidepool/nn/data/idx_file.h"
#include "tidepool/nn/data/testing/gzip_writer.h"

namespace tidepool {
namespace {

constexpr size_t kMaxContent = 1 << 18;

absl::Span<const uint8_t> Bytes(const std::string& text) {
  return absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

// Runs parse(case); what it throws must be a proper Error. Returns whether the case was accepted.
template <typename Parse>
bool AcceptedOrProperError(const std::string& bytes, Parse parse) {
  try {
    parse(bytes);
    return true;
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == absl::StatusCode::kDataLoss ||
                error.code() == absl::StatusCode::kResourceExhausted)
        << error.message();
    EXPECT_EQ(MessageFlaw(error), "");
    EXPECT_EQ(error.message().find("case: byte "), 0u) << error.message();
  } catch (const std::exception& other) {
    ADD_FAILURE() << "not a tidepool::Error: " << other.what();
  }
  return false;
}

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

std::string Content(size_t length, int kinds) {
  std::string content;
  uint32_t state = 12345;
  for (size_t i = 0; i < length; ++i) {
    state = state * 1664525 + 1013904223;
    content += static_cast<char>((state >> 24) % kinds);
  }
  return content;
}

TEST(GzipFuzz, DamagedFiles) {
  std::string with_fields = Gzip("content");
  with_fields[3] = 4 | 8 | 16;
  with_fields.insert(10, std::string("\x03\0xyzname\0comment\0", 18));
  ByteMutator mutator(FuzzSeed(),
                      {Gzip(Content(600, 256), 0), Gzip(Content(900, 5), 9),
                       Gzip(std::string(100000, 'z')), Gzip("ab") + Gzip("cd"), with_fields});
  const int cases = FuzzCases(40000);
  int accepted = 0;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    accepted += AcceptedOrProperError(mutator.Next(), [](const std::string& bytes) {
      const std::vector<uint8_t> content = Gunzip(Bytes(bytes), "case", kMaxContent);
      EXPECT_LE(content.size(), kMaxContent);
      EXPECT_EQ(std::string(content.begin(), content.end()), ReferenceGunzip(bytes));
    });
  }
  std::printf("%d cases, %d accepted\n", cases, accepted);
  EXPECT_GT(accepted, cases / 200);
  EXPECT_LT(accepted, cases / 2);
}

TEST(IdxFuzz, DamagedFiles) {
  ByteMutator mutator(FuzzSeed() + 1, {Idx({4, 3, 2}, Content(24, 256)), Idx({0, 3, 2}, ""),
                                       Idx({1, 1, 200}, Content(200, 9))});
  const int cases = FuzzCases(40000);
  int accepted = 0;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    SCOPED_TRACE(i);
    accepted += AcceptedOrProperError(mutator.Next(), [](const std::string& bytes) {
      const IdxFile file = ParseIdx(Bytes(bytes), "case", 3);
      ASSERT_EQ(file.dims.size(), 3u);
      unsigned __int128 product = 1;
      for (const int64_t dim : file.dims) product *= static_cast<uint64_t>(dim);
      EXPECT_EQ(static_cast<uint64_t>(product), file.data.size());
      EXPECT_EQ(std::string(file.data.begin(), file.data.end()), bytes.substr(16));
    });
  }
  std::printf("%d cases, %d accepted\n", cases, accepted);
  EXPECT_GT(accepted, cases / 200);
  EXPECT_LT(accepted, cases / 2);
}

}  // namespace
}  // namespace tidepool
