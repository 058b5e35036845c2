// Files of arrays: .npy, safetensors.
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
#include "tidepool/ndarray/io/npy_format.h"
#include "tidepool/ndarray/io/safetensors_arrays.h"
#include "tidepool/ndarray/io/safetensors_file.h"
#include "tidepool/ndarray/io/safetensors_format.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

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
          NpyOf(header("<f4", "False", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "four"),
          SerializeNpyHeader(DType::kFloat16, {}) + "ab",
          SerializeNpyHeader(DType::kInt64, {4}) + std::string(32, 'd')};
}

std::string BytesOf(const NDArray& array) {
  const NDArray dense = array.is_dense() ? array : array.CopyTo(Place::Heap());
  return {reinterpret_cast<const char*>(dense.raw_data()),
          static_cast<size_t>(dense.NumElements()) * DTypeBytes(dense.dtype())};
}

void ExpectSame(const NDArray& a, const NDArray& b) {
  ASSERT_EQ(a.shape(), b.shape());
  ASSERT_EQ(a.dtype(), b.dtype());
  ASSERT_EQ(BytesOf(a), BytesOf(b));
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

// The length of the header, and, where there is a header, that of the data.
void RepairNpy(std::string& bytes) {
  if (bytes.size() < 12) return;
  const size_t width = bytes[6] == 1 ? 2 : 4, begin = 8 + width;
  const size_t length = std::max(begin, NpyDataAt(bytes)) - begin;
  for (size_t i = 0; i < width; ++i) bytes[8 + i] = static_cast<char>(length >> (8 * i));
  if (bytes.size() % 3 == 0) return;
  try {
    const NpyHeader header = ParseNpyHeader(bytes.substr(begin, length), "repair");
    if (header.data_bytes() < 4096) bytes.resize(begin + length + header.data_bytes(), '\1');
  } catch (const Error&) {
  }
}

// What was read is what the file ends with, and comes back from a file of its own.
void ExpectIsOf(const NDArray& array, const std::string& bytes) {
  const NDArray in_file = array.is_dense() ? array : array.Transpose();  // Fortran's order
  std::string data = BytesOf(in_file);
  ASSERT_LE(data.size() + 10, bytes.size());
  const std::string end = bytes.substr(bytes.size() - data.size());
  if (array.dtype() == DType::kBool) {
    for (size_t i = 0; i < end.size(); ++i) ASSERT_EQ(data[i], end[i] != 0);
  } else {
    // No key begins so.
    const bool is_swapped =
        bytes.substr(0, bytes.size() - data.size()).find_first_of(">", 12) != std::string::npos;
    std::string expected = end;
    const auto width = static_cast<ptrdiff_t>(DTypeBytes(array.dtype()));
    for (auto at = expected.begin(); is_swapped && at < expected.end(); at += width)
      std::reverse(at, at + width);
    ASSERT_EQ(data, expected);
  }
  const std::string again = SerializeNpyHeader(array.dtype(), array.shape()) + BytesOf(array);
  ExpectSame(ParseNpy(again, "again", Place::Heap()), array);
}

void ReadNpyFile(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  NDArray read;
  bool is_read = true;
  try {
    read = ReadNpy(path, Place::Heap());
    Touch(read);
  } catch (const Error& error) {
    EXPECT_EQ(error.message().find(path), 0u) << error.message();
    is_read = false;
  }
  try {
    const NDArray parsed = ParseNpy(bytes, "case", Place::Heap());
    Touch(parsed);
    ASSERT_TRUE(is_read);
    ExpectSame(read, parsed);
    ExpectIsOf(parsed, bytes);
  } catch (const Error&) {
    EXPECT_FALSE(is_read);
    throw;
  }
}

TIDEPOOL_FUZZ_TARGET(Npy, {.corpus = &NpyFiles,
                           .mutate = &MutateNpy,
                           .repair = &RepairNpy,
                           .run = &ReadNpyFile,
                           .cases = 20000});

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
          Tensors({}, {{"shorter", "U8", {3}}}) + "x",
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

// The header that is written for what was read says the same.
void ExpectComesBack(const SafetensorsReader& reader) {
  SafetensorsHeader header;
  header.metadata = reader.metadata();
  header.tensors.assign(reader.tensors().begin(), reader.tensors().end());
  header.data_bytes = reader.data_bytes();
  const std::string text = SerializeSafetensorsHeader(header, "again");
  const SafetensorsHeader again =
      ParseSafetensorsHeader(absl::string_view(text).substr(8), header.data_bytes, "again");
  ASSERT_EQ(again.metadata, header.metadata);
  ASSERT_EQ(again.tensors.size(), header.tensors.size());
  for (size_t i = 0; i < again.tensors.size(); ++i) {
    const SafetensorInfo &a = again.tensors[i], &b = header.tensors[i];
    ASSERT_TRUE(a.name == b.name && a.dtype == b.dtype && a.shape == b.shape &&
                a.begin == b.begin && a.end == b.end);
  }
}

void ReadSafetensorsFile(const std::string& bytes) {
  const std::string path = FuzzFile(bytes);
  std::map<std::string, NDArray> arrays;
  try {
    arrays = ReadSafetensorsArrays(path, Place::Heap());
    for (const auto& [name, array] : arrays) Touch(array);
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
    const SafetensorsReader reader =
        SafetensorsReader::Parse(absl::MakeConstSpan(data, bytes.size()), "case");
    ExpectConsistent(reader, bytes.size());
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof(header));
    ASSERT_EQ(8 + header + reader.data_bytes(), bytes.size()) << "all of the file is something's";
    ExpectComesBack(reader);
    for (const auto& [name, array] : arrays) {
      const SafetensorInfo& info = reader.Find(name);
      ASSERT_EQ(absl::MakeConstSpan(info.shape), array.shape().span());
      const auto in_file = reader.data(info);
      ASSERT_EQ(in_file.size(), BytesOf(array).size());
      if (array.dtype() != DType::kBool && !in_file.empty()) {
        ASSERT_EQ(std::memcmp(in_file.data(), array.raw_data(), in_file.size()), 0) << name;
      }
    }
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
