// Files of arrays: .npy, .npz, safetensors.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/io/safetensors_format.h"
#include "tidepool/ndarray/io/testing/zip_writer.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

constexpr uint64_t kMostInflated = uint64_t{1} << 18;

// Touches every byte, for AddressSanitizer. A bool is 0 or 1.
void Touch(const NDArray& array) {
  const NDArray dense = array.is_dense() ? array : array.CopyTo(Place::Heap());
  const size_t bytes = static_cast<size_t>(dense.NumElements()) * DTypeBytes(dense.dtype());
  int most = 0;
  for (size_t i = 0; i < bytes; ++i)
    most = std::max(most, std::to_integer<int>(dense.raw_data()[i]));
  if (array.dtype() == DType::kBool) {
    ASSERT_LE(most, 1);
  }
}

// ---- .npy -------------------------------------------------------------------------------------

std::string NpyOf(const std::string& header, const std::string& data, char version = 1) {
  std::string bytes = std::string("\x93NUMPY", 6) + version + '\0';
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i)
    bytes += static_cast<char>(header.size() >> (8 * i));
  return bytes + header + data;
}

std::vector<std::string> NpyFiles() {
  const auto header = [](const char* descr, const char* order, const char* shape) {
    return absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", order, ", 'shape': ", shape,
                        ", }      \n");
  };
  return {NpyOf(header("<f4", "False", "(2, 3)"), std::string(24, 'a')),
          NpyOf(header(">f8", "True", "(1, 2)"), std::string(16, 'b'), 2),
          NpyOf(header("|b1", "False", "(4,)"), std::string("\0\1\2\xff", 4), 3),
          NpyOf(header("<i8", "False", "()"), std::string(8, 'c')),
          NpyOf(header("|u1", "False", "(0, 1152921504606846976)"), ""),
          NpyOf(header("<f8", "False", "(1152921504606846976,)"), "few"),
          NpyOf(header("<f4", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "four")};
}

// A number of the text, or a piece of it for another.
void MutateText(ByteMutator& mutator, std::string& text) {
  std::vector<size_t> digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] >= '0' && text[i] <= '9' && (i == 0 || text[i - 1] < '0' || text[i - 1] > '9'))
      digits.push_back(i);
  }
  if (digits.empty() || mutator.Below(3) == 0) return mutator.Mutate(text);
  const size_t at = digits[mutator.Below(digits.size())];
  size_t end = at;
  while (end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
  text.replace(at, end - at,
               absl::StrCat(mutator.Number(static_cast<uint64_t>(std::atoll(text.c_str() + at)))));
}

size_t NpyDataAt(const std::string& bytes) {
  const size_t newline = bytes.find('\n');
  return newline == std::string::npos ? bytes.size() : newline + 1;
}

void MutateNpy(ByteMutator& mutator, std::string& bytes) {
  const size_t begin = std::min<size_t>(bytes.size(), bytes.size() > 6 && bytes[6] != 1 ? 12 : 10);
  const size_t data = std::max(begin, NpyDataAt(bytes));
  std::string text = bytes.substr(begin, data - begin);
  std::string rest = bytes.substr(data);
  if (mutator.Below(6) == 0) {
    rest.resize(mutator.Below(64), 'x');
  } else {
    MutateText(mutator, text);
  }
  bytes = bytes.substr(0, begin) + text + rest;
}

// The length of the header.
void RepairNpy(std::string& bytes) {
  if (bytes.size() < 12) return;
  const size_t width = bytes[6] == 1 ? 2 : 4, begin = 8 + width;
  const size_t length = std::max(begin, NpyDataAt(bytes)) - begin;
  for (size_t i = 0; i < width; ++i) bytes[8 + i] = static_cast<char>(length >> (8 * i));
}

void ReadNpyFile(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  bool read = true;
  try {
    Touch(ReadNpy(path, Place::Heap()));
  } catch (const Error& error) {
    EXPECT_EQ(error.message().find(path), 0u) << error.message();
    read = false;
  }
  bool parsed = true;
  try {
    Touch(ParseNpy(bytes, "case", Place::Heap()));
  } catch (const Error&) {
    parsed = false;
    EXPECT_FALSE(read);
    throw;
  }
  EXPECT_EQ(read, parsed);
}

TIDEPOOL_FUZZ_TARGET(Npy, {.corpus = &NpyFiles,
                           .mutate = &MutateNpy,
                           .repair = &RepairNpy,
                           .run = &ReadNpyFile,
                           .cases = 20000});

// ---- .npz -------------------------------------------------------------------------------------

std::vector<std::string> NpzFiles() {
  const std::vector<std::string> arrays = NpyFiles();
  std::vector<ZipEntry> entries, deflated;
  for (size_t i = 0; i < 5; ++i)
    entries.push_back({absl::StrCat("array_", i, ".npy"), arrays[i], false});
  for (size_t i = 0; i < 3; ++i)
    deflated.push_back({absl::StrCat("d", i, ".npy"), arrays[i], true});
  std::vector<ZipEntry> shared(
      1, {"s0.npy",
          NpyOf("{'descr': '|u1', 'fortran_order': False, 'shape': (65536,), }\n",
                std::string(65536, '\0')),
          true});
  for (int i = 1; i < 60; ++i)
    shared.push_back({absl::StrCat("s", i, ".npy"), "", true, /*shares_first=*/true});
  return {ZipOf(entries),
          ZipOf(deflated),
          ZipOf({entries[0], deflated[1]}),
          ZipOf({}),
          ZipOf({{"text.txt", "x", false}}),
          ZipOf({shared[0]}),
          ZipOf(shared)};
}

// A field of a header of an entry, or of the end.
void MutateNpz(ByteMutator& mutator, std::string& bytes) {
  std::vector<size_t> records;
  for (size_t i = 0; i + 30 < bytes.size(); ++i) {
    if (bytes[i] == 'P' && bytes[i + 1] == 'K' && bytes[i + 2] < 8) records.push_back(i);
  }
  if (records.empty()) return mutator.Mutate(bytes);
  const size_t at = records[mutator.Below(records.size())];
  const size_t width = mutator.Below(2) == 0 ? 2 : 4;
  const size_t field = at + 4 + 2 * mutator.Below(20);
  if (field + width > bytes.size()) return mutator.Mutate(bytes);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + field, width);
  value = mutator.Number(value);
  std::memcpy(bytes.data() + field, &value, width);
}

void ReadNpzFile(const std::string& bytes) {
  uint64_t held = 0;
  for (const auto& [name, array] : ReadNpz(FuzzFile(bytes), Place::Heap(), kMostInflated)) {
    Touch(array);
    held += static_cast<uint64_t>(array.NumElements()) * DTypeBytes(array.dtype());
  }
  EXPECT_LE(held, bytes.size() + kMostInflated);
}

// libzip makes room for 65,536 entries (2 MiB) where there are more than the directory says.
TIDEPOOL_FUZZ_TARGET(Npz, {.corpus = &NpzFiles,
                           .mutate = &MutateNpz,
                           .repair = &RepairZip,
                           .run = &ReadNpzFile,
                           .constant_bytes = (size_t{4} << 20) + 2 * kMostInflated});

// ---- safetensors ------------------------------------------------------------------------------

std::string Tensors(std::map<std::string, std::string> metadata,
                    std::vector<SafetensorInfo> tensors) {
  const SafetensorsHeader header =
      LayOutSafetensors(std::move(metadata), std::move(tensors), "corpus");
  std::string bytes = SerializeSafetensorsHeader(header, "corpus");
  for (uint64_t i = 0; i < header.data_bytes; ++i) bytes += static_cast<char>(i * 37);
  return bytes;
}

std::vector<std::string> SafetensorsFiles() {
  return {Tensors({}, {}),
          Tensors({{"format", "pt"}, {"epoch", "12"}}, {{"a", "F32", {2, 3}}}),
          Tensors({}, {{"layer.0.weight", "F32", {4, 4}},
                       {"layer.0.bias", "F32", {4}},
                       {"step", "I64", {}},
                       {"mask", "BOOL", {5}},
                       {"empty", "F16", {0, 3}}}),
          Tensors({}, {{"nibbles", "F4", {6}}, {"eight", "F8_E4M3", {3}}}),
          Tensors({}, {{"ninth", "U8", {1, 1, 1, 1, 1, 1, 1, 1, 1}}}),
          Tensors({}, {{"none", "U8", {0, int64_t{1} << 62, int64_t{1} << 62}}})};
}

size_t HeaderEnd(const std::string& bytes) {
  int depth = 0;
  for (size_t i = 8; i < bytes.size(); ++i) {
    depth += bytes[i] == '{' ? 1 : bytes[i] == '}' ? -1 : 0;
    if (depth == 0 && bytes[i] != ' ') return i + 1;
  }
  return bytes.size();
}

void MutateSafetensors(ByteMutator& mutator, std::string& bytes) {
  if (bytes.size() < 8) return mutator.Mutate(bytes);
  const size_t end = HeaderEnd(bytes);
  std::string json = bytes.substr(8, end - 8);
  const std::string rest = bytes.substr(end);
  if (mutator.Below(8) == 0) {
    constexpr const char* kTypes[] = {"BOOL", "U8", "F16", "F32", "I64", "F4", "C64", "X"};
    const size_t at = json.find("\"dtype\":\"", mutator.Below(json.size() + 1));
    const size_t close = at == std::string::npos ? at : json.find('"', at + 9);
    if (close != std::string::npos) json.replace(at + 9, close - at - 9, kTypes[mutator.Below(8)]);
  } else {
    MutateText(mutator, json);
  }
  bytes = bytes.substr(0, 8) + json + rest;
}

void RepairSafetensors(std::string& bytes) {
  if (bytes.size() < 8) return;
  const uint64_t length = HeaderEnd(bytes) - 8;
  std::memcpy(bytes.data(), &length, sizeof(length));
}

// The rules of the format, written down a second time.
void ExpectConsistent(const SafetensorsReader& reader, size_t file_bytes) {
  uint64_t position = 0;
  std::map<std::string, int> names;
  for (const SafetensorInfo& info : reader.tensors()) {
    ASSERT_EQ(info.begin, position);
    ASSERT_LE(info.begin, info.end);
    position = info.end;
    unsigned __int128 bits = static_cast<unsigned>(SafetensorDtypeBits(info.dtype));
    ASSERT_GT(SafetensorDtypeBits(info.dtype), 0);
    const bool empty = std::find(info.shape.begin(), info.shape.end(), 0) != info.shape.end();
    for (const int64_t dimension : info.shape) {
      ASSERT_GE(dimension, 0);
      if (!empty) bits *= static_cast<unsigned __int128>(dimension);
    }
    ASSERT_EQ(empty ? 0 : static_cast<uint64_t>(bits), info.bytes() * 8);
    ASSERT_EQ(++names[info.name], 1);
    ASSERT_EQ(reader.FindOrNull(info.name), &info);
    unsigned sum = 0;
    for (const std::byte byte : reader.data(info)) sum += static_cast<unsigned>(byte);
    ASSERT_LE(sum, 255 * info.bytes());
  }
  ASSERT_EQ(position, reader.data_bytes());
  ASSERT_LE(position + 8, file_bytes);
}

void ReadSafetensorsFile(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  try {
    for (const auto& [name, array] : ReadSafetensorsArrays(path, Place::Heap())) Touch(array);
  } catch (const Error& error) {
    // Types and shapes that arrays do not have.
    EXPECT_TRUE(error.code() == absl::StatusCode::kDataLoss ||
                error.code() == absl::StatusCode::kUnimplemented)
        << error.message();
    EXPECT_EQ(error.message().find(path), 0u) << error.message();
    EXPECT_TRUE(error.code() != absl::StatusCode::kUnimplemented ||
                error.message().find("tensor \"") != std::string::npos);
  }
  const auto data = reinterpret_cast<const std::byte*>(bytes.data());
  try {
    ExpectConsistent(SafetensorsReader::Parse(absl::MakeConstSpan(data, bytes.size()), "case"),
                     bytes.size());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kDataLoss) << error.message();
    EXPECT_EQ(error.message().find("case: "), 0u) << error.message();
    throw;
  }
}

TIDEPOOL_FUZZ_TARGET(Safetensors, {.corpus = &SafetensorsFiles,
                                   .mutate = &MutateSafetensors,
                                   .repair = &RepairSafetensors,
                                   .run = &ReadSafetensorsFile,
                                   .cases = 40000,
                                   .accepted_one_in = 100});

}  // namespace
}  // namespace tidepool
