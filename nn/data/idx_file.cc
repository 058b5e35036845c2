#include "tidepool/nn/data/idx_file.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/gzip_reader.h"

namespace tidepool {
namespace {

constexpr int kUnsignedByte = 0x08;
constexpr size_t kMagicBytes = 4;

std::string HexByte(uint8_t byte) { return absl::StrCat("0x", absl::Hex(byte, absl::kZeroPad2)); }

// Checks all but the elements themselves; returns the offset of the first.
size_t ParseHeader(absl::Span<const uint8_t> bytes, const std::string& name, int expected_rank,
                   std::vector<int64_t>& dims) {
  if (bytes.size() < kMagicBytes) {
    ThrowDataLoss(absl::StrCat(name, ": byte ", bytes.size(),
                               ": IDX magic: found the end of the file after ", bytes.size(),
                               " bytes, expected 4"));
  }
  if (bytes[0] != 0 || bytes[1] != 0) {
    ThrowDataLoss(absl::StrCat(name, ": byte 0: IDX magic: found ", HexByte(bytes[0]), " ",
                               HexByte(bytes[1]), ", expected 0x00 0x00"));
  }
  if (bytes[2] != kUnsignedByte) {
    ThrowDataLoss(absl::StrCat(name, ": byte 2: IDX element type: found ", HexByte(bytes[2]),
                               ", expected 0x08 (unsigned byte)"));
  }
  if (bytes[3] != expected_rank) {
    ThrowDataLoss(
        absl::StrCat(name, ": byte 3: IDX rank: found ", bytes[3], ", expected ", expected_rank));
  }
  const size_t header = kMagicBytes + 4 * static_cast<size_t>(bytes[3]);
  if (bytes.size() < header) {
    ThrowDataLoss(absl::StrCat(name, ": byte ", bytes.size(),
                               ": IDX dimensions: found the end of the file, expected a header of ",
                               header, " bytes for rank ", bytes[3]));
  }
  uint64_t elements = 1;
  bool empty = false, overflows = false;
  for (size_t at = kMagicBytes; at < header; at += 4) {
    const uint64_t dim = uint64_t{bytes[at]} << 24 | uint64_t{bytes[at + 1]} << 16 |
                         uint64_t{bytes[at + 2]} << 8 | bytes[at + 3];
    dims.push_back(static_cast<int64_t>(dim));
    empty |= dim == 0;
    if (dim != 0 && elements > std::numeric_limits<int64_t>::max() / dim) overflows = true;
    if (!overflows && dim != 0) elements *= dim;
  }
  if (empty) elements = 0;
  const std::string shape = absl::StrCat("[", absl::StrJoin(dims, ","), "]");
  if (overflows && !empty) {
    ThrowDataLoss(absl::StrCat(name, ": byte ", kMagicBytes, ": IDX dimensions: found ", shape,
                               ", expected a product below 2^63"));
  }
  const uint64_t found = bytes.size() - header;
  if (found != elements) {
    ThrowDataLoss(absl::StrCat(name, ": byte ", found < elements ? bytes.size() : header + elements,
                               ": IDX data: found ", found, " bytes, ",
                               found < elements ? "too few" : "too many", ", expected ", elements,
                               " for dimensions ", shape));
  }
  return header;
}

}  // namespace

IdxFile ParseIdx(absl::Span<const uint8_t> bytes, const std::string& name, int expected_rank) {
  IdxFile file;
  const size_t header = ParseHeader(bytes, name, expected_rank, file.dims);
  file.data.assign(bytes.begin() + header, bytes.end());
  return file;
}

IdxFile ReadIdx(const std::string& path, int expected_rank) {
  IdxFile file;
  file.data = ReadFileMaybeGzip(path, kMaxIdxBytes);
  const size_t header = ParseHeader(file.data, OneLine(path), expected_rank, file.dims);
  // In place: a copy would double the memory of the largest files.
  file.data.erase(file.data.begin(), file.data.begin() + static_cast<ptrdiff_t>(header));
  return file;
}

}  // namespace tidepool
