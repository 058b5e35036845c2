// Every damaged file parses into something self-consistent or throws tidepool::Error.
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/io/safetensors_format.h"
#include "tidepool/ndarray/io/safetensors_info.h"
#include "tidepool/memory/io/testing/byte_mutator.h"
#include "tidepool/memory/io/testing/error_of.h"

namespace tidepool {
namespace {

std::string ValidFile(std::map<std::string, std::string> metadata,
                      std::vector<SafetensorInfo> tensors) {
  const SafetensorsHeader header =
      LayOutSafetensors(std::move(metadata), std::move(tensors), "corpus");
  std::string bytes = SerializeSafetensorsHeader(header, "corpus");
  for (uint64_t i = 0; i < header.data_bytes; ++i) bytes += static_cast<char>(i * 37);
  return bytes;
}

// The rules of the format, written down a second time.
void ExpectConsistent(const SafetensorsReader& reader, size_t file_bytes) {
  uint64_t position = 0;
  std::map<std::string, int> names;
  for (const SafetensorInfo& info : reader.tensors()) {
    ASSERT_EQ(info.begin, position);
    ASSERT_LE(info.begin, info.end);
    position = info.end;
    unsigned __int128 bits = SafetensorDtypeBits(info.dtype);
    ASSERT_GT(SafetensorDtypeBits(info.dtype), 0);
    for (const int64_t dimension : info.shape) {
      ASSERT_GE(dimension, 0);
      bits *= static_cast<unsigned __int128>(dimension);
    }
    ASSERT_EQ(static_cast<uint64_t>(bits), info.bytes() * 8);
    ASSERT_EQ(++names[info.name], 1);
    ASSERT_EQ(reader.FindOrNull(info.name), &info);
    unsigned sum = 0;  // touches every byte, for AddressSanitizer
    for (const std::byte byte : reader.data(info)) sum += static_cast<unsigned>(byte);
    ASSERT_LE(sum, 255 * info.bytes());
  }
  ASSERT_EQ(position, reader.data_bytes());
  ASSERT_LE(position + 8, file_bytes);
}

TEST(SafetensorsFuzz, DamagedFiles) {
  ByteMutator mutator(
      FuzzSeed(),
      {ValidFile({}, {}), ValidFile({{"format", "pt"}, {"epoch", "12"}}, {{"a", "F32", {2, 3}}}),
       ValidFile({}, {{"layer.0.weight", "F32", {4, 4}},
                      {"layer.0.bias", "F32", {4}},
                      {"step", "I64", {}},
                      {"mask", "BOOL", {5}},
                      {"empty", "F16", {0, 3}},
                      {"nibbles", "F4", {6}}})});
  const int cases = FuzzCases(40000);
  int accepted = 0;
  for (int i = 0; i < cases; ++i) {
    const std::string bytes = mutator.Next();
    SCOPED_TRACE(i);
    try {
      const SafetensorsReader reader = SafetensorsReader::Parse(
          absl::MakeConstSpan(reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()),
          "case");
      ExpectConsistent(reader, bytes.size());
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
      ASSERT_EQ(MessageFlaw(error), "");
      ASSERT_EQ(error.message().find("case: "), 0u) << error.message();
    } catch (const std::exception& other) {
      FAIL() << "not a tidepool::Error: " << other.what();
    }
    if (testing::Test::HasFatalFailure()) return;
  }
  std::printf("%d cases, %d accepted\n", cases, accepted);
  // Both outcomes must occur, or the fuzz test tests nothing.
  EXPECT_GT(accepted, cases / 100);
  EXPECT_LT(accepted, cases / 2);
}

}  // namespace
}  // namespace tidepool
