// Archives of arrays: .npz.
#include <zlib.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/fuzzing/fuzz_target.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/io/npy_file.h"
#include "tidepool/ndarray/io/npy_format.h"
#include "tidepool/ndarray/io/testing/zip_writer.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {
namespace {

constexpr uint64_t kMostInflated = uint64_t{1} << 18;

std::string NpyOf(const Shape& shape, DType dtype, char fill) {
  const auto bytes = static_cast<size_t>(shape.NumElements()) * DTypeBytes(dtype);
  return SerializeNpyHeader(dtype, shape) + std::string(bytes, fill);
}

std::string Written(NpzCompression compression) {
  const std::string path = testing::TempDir() + "/corpus.npz";
  WriteNpz(path,
           {{"a", Full({2, 3}, 7)},
            {"b", Ones({4}, DType::kInt64)},
            {"c", Zeros({0, 2}, DType::kUInt8)}},
           compression);
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> NpzFiles() {
  const std::vector<std::string> arrays = {
      NpyOf({2, 3}, DType::kFloat32, 'a'), NpyOf({}, DType::kInt64, 'c'),
      NpyOf({4}, DType::kBool, '\2'), NpyOf({5, 1}, DType::kFloat16, 'h'), "\x93NUMPY no array"};
  std::vector<ZipEntry> entries, deflated;
  for (size_t i = 0; i < 5; ++i)
    entries.push_back({absl::StrCat("array_", i, ".npy"), arrays[i], false});
  for (size_t i = 0; i < 3; ++i)
    deflated.push_back({absl::StrCat("d", i, ".npy"), arrays[i], true});
  std::vector<ZipEntry> shared(1, {"s0.npy", NpyOf({65536}, DType::kUInt8, '\0'), true});
  for (int i = 1; i < 60; ++i)
    shared.push_back({absl::StrCat("s", i, ".npy"), "", true, /*shares_first=*/true});
  const std::string long_name(300, 'l');
  ZipEntry liar{"liar.npy", NpyOf({100}, DType::kUInt8, '\1'), true};
  liar.claims = 1 << 28;
  return {ZipOf(entries),
          ZipOf({entries[0], entries[1], entries[2]}),
          ZipOf(deflated),
          ZipOf({entries[0], deflated[1]}),
          ZipOf({}),
          ZipOf({{"text.txt", "x", false}}),
          ZipOf({shared[0]}),
          ZipOf(shared),
          ZipOf({{long_name + "0.npy", arrays[0], false},
                 {long_name + "1.npy", arrays[1], false},
                 {long_name + "2.npy", "", false, /*shares_first=*/true}}),
          ZipOf({liar}),
          ZipOf({{"zeros.npy", NpyOf({400000}, DType::kUInt8, '\0'), true}}),
          ZipOf({{"a.npy", NpyOf({200000}, DType::kUInt8, '\0'), true},
                 {"b.npy", NpyOf({100000}, DType::kUInt8, '\0'), true}}),
          Written(NpzCompression::kNone),
          Written(NpzCompression::kDeflate)};
}

// A field of a header of an entry, or of the end.
void MutateNpz(ByteMutator& mutator, std::string& bytes) {
  std::vector<size_t> records;
  for (size_t i = 0; i + 30 < bytes.size(); ++i) {
    if (bytes[i] == 'P' && bytes[i + 1] == 'K' && bytes[i + 2] < 8) records.push_back(i);
  }
  if (records.empty()) return mutator.Mutate(bytes);
  const size_t at = records[mutator.Below(records.size())];
  if (mutator.Below(6) == 0 && bytes.size() - at >= 46) {
    // An entry of the directory points to where another one, or anything, is.
    const size_t other = records[mutator.Below(records.size())];
    if (bytes[at + 2] == 1) {
      const auto offset =
          static_cast<uint32_t>(other + (mutator.Below(4) == 0 ? mutator.Below(64) : 0));
      std::memcpy(bytes.data() + at + 42, &offset, sizeof(offset));
      return;
    }
  }
  const size_t width = mutator.Below(2) == 0 ? 2 : 4;
  const size_t field = at + 4 + 2 * mutator.Below(20);
  if (field + width > bytes.size()) return mutator.Mutate(bytes);
  uint64_t value = 0;
  std::memcpy(&value, bytes.data() + field, width);
  value = mutator.Number(value);
  std::memcpy(bytes.data() + field, &value, width);
}

uint64_t Number(const std::string& bytes, size_t at, size_t width) {
  uint64_t value = 0;
  if (at + width <= bytes.size()) std::memcpy(&value, bytes.data() + at, width);
  return value;
}

// What the directory says, read a second time: nothing where it is not the plain one at the end.
struct Listed {
  std::string name;
  bool is_stored;
  uint64_t begin, data, end, size, crc;  // of its bytes in the file; of its content
};
std::vector<Listed> Directory(const std::string& bytes) {
  std::vector<Listed> entries;
  const size_t end = bytes.rfind("PK\x05\x06");
  if (end == std::string::npos || bytes.find("PK\x05\x06") != end ||
      end + 22 + Number(bytes, end + 20, 2) != bytes.size())
    return {};
  uint64_t at = Number(bytes, end + 16, 4);
  for (uint64_t i = Number(bytes, end + 10, 2); i > 0; --i) {
    if (at + 46 > end || bytes.compare(at, 4, "PK\x01\x02") != 0) return {};
    const uint64_t name = Number(bytes, at + 28, 2), extra = Number(bytes, at + 30, 2);
    const uint64_t begin = Number(bytes, at + 42, 4);
    const uint64_t data = begin + 30 + Number(bytes, begin + 26, 2) + Number(bytes, begin + 28, 2);
    entries.push_back({bytes.substr(at + 46, name), Number(bytes, at + 10, 2) == 0, begin, data,
                       data + Number(bytes, at + 20, 4), Number(bytes, at + 24, 4),
                       Number(bytes, at + 16, 4)});
    at += 46 + name + extra + Number(bytes, at + 32, 2);
  }
  return entries;
}

std::string BytesOf(const NDArray& array) {
  const NDArray dense = array.is_dense() ? array : array.CopyTo(Place::Heap());
  return {reinterpret_cast<const char*>(dense.raw_data()),
          static_cast<size_t>(dense.NumElements()) * DTypeBytes(dense.dtype())};
}

void ExpectSame(const NDArray& found, const NDArray& expected) {
  ASSERT_EQ(found.shape(), expected.shape());
  ASSERT_EQ(found.dtype(), expected.dtype());
  ASSERT_EQ(BytesOf(found), BytesOf(expected));
}

void ExpectIsOf(const std::map<std::string, NDArray>& arrays, const std::string& bytes) {
  std::vector<Listed> listed = Directory(bytes);
  if (listed.empty()) return;
  ASSERT_EQ(listed.size(), arrays.size());
  std::sort(listed.begin(), listed.end(),
            [](const Listed& a, const Listed& b) { return a.begin < b.begin; });
  for (size_t i = 0; i < listed.size(); ++i) {
    const Listed& entry = listed[i];
    if (i > 0 && listed[i - 1].is_stored) {
      ASSERT_LE(listed[i - 1].end, entry.begin + 30) << "they share bytes";
    }
    if (i > 0) {
      ASSERT_NE(listed[i - 1].data, entry.data) << "they share bytes";
    }
    const auto found = arrays.find(entry.name.substr(0, entry.name.size() - 4));
    // Other encodings of names are libzip's to read.
    if (found == arrays.end()) continue;
    ASSERT_LT(BytesOf(found->second).size(), entry.size);
    if (!entry.is_stored) continue;
    ASSERT_LE(entry.end, bytes.size());
    const std::string npy = bytes.substr(entry.data, entry.end - entry.data);
    ASSERT_EQ(crc32_z(0, reinterpret_cast<const Bytef*>(npy.data()), npy.size()), entry.crc);
    ExpectSame(found->second, ParseNpy(npy, "again", Place::Heap()));
  }
}

void ReadNpzFile(const std::string& bytes) {
  const std::map<std::string, NDArray> arrays =
      ReadNpz(FuzzFile(bytes), Place::Heap(), kMostInflated);
  uint64_t held = 0, touched = 0;
  for (const auto& [name, array] : arrays) {
    const std::string content = BytesOf(array);
    held += content.size();
    for (const char byte : content) touched += static_cast<unsigned char>(byte);
    if (array.dtype() == DType::kBool) {
      EXPECT_EQ(content.find_first_not_of(std::string("\0\1", 2)), std::string::npos);
    }
  }
  EXPECT_LE(touched, 255 * held);
  EXPECT_LE(held, bytes.size() + kMostInflated);
  ExpectIsOf(arrays, bytes);
}

// libzip makes room for 65,536 entries (2 MiB) where there are more than the directory says.
TIDEPOOL_FUZZ_TARGET(Npz, {.corpus = &NpzFiles,
                           .mutate = &MutateNpz,
                           .repair = &RepairZip,
                           .run = &ReadNpzFile,
                           .constant_bytes = (size_t{4} << 20) + 2 * kMostInflated});

}  // namespace
}  // namespace tidepool
