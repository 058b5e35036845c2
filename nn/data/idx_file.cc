#include "tidepool/nn/data/idx_file.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/gzip_reader.h"
#include "tidepool/nn/data/gzip_stream.h"

namespace tidepool {
namespace {

constexpr int kAnyRank = -1;  // and any type
constexpr size_t kMagicBytes = 4;

std::string HexByte(uint8_t byte) { return absl::StrCat("0x", absl::Hex(byte, absl::kZeroPad2)); }

// What stands before the elements.
struct Header {
  size_t bytes = 0;
  IdxType type = IdxType::kUnsignedByte;
  std::vector<int64_t> dims;
  uint64_t elements = 0;  // bytes of them

  std::string Shape() const { return absl::StrCat("[", absl::StrJoin(dims, ","), "]"); }
};

bool IsType(uint8_t byte) { return IdxTypeBytes(static_cast<IdxType>(byte)) > 0; }

size_t HeaderBytes(int rank) { return kMagicBytes + 4 * static_cast<size_t>(rank); }

// `bytes`: the file's first, HeaderBytes(expected_rank) of them unless it is shorter.
Header ParseHeader(absl::Span<const uint8_t> bytes, const std::string& name, int expected_rank,
                   uint64_t max_bytes) {
  if (bytes.size() < kMagicBytes) {
    ThrowDataLoss(absl::StrCat(name, ": byte ", bytes.size(),
                               ": IDX magic: found the end of the file after ", bytes.size(),
                               " bytes, expected 4"));
  }
  if (bytes[0] != 0 || bytes[1] != 0) {
    ThrowDataLoss(absl::StrCat(name, ": byte 0: IDX magic: found ", HexByte(bytes[0]), " ",
                               HexByte(bytes[1]), ", expected 0x00 0x00"));
  }
  Header header;
  header.type = static_cast<IdxType>(bytes[2]);
  const bool is_any = expected_rank == kAnyRank;
  if (is_any ? !IsType(bytes[2]) : header.type != IdxType::kUnsignedByte) {
    ThrowDataLoss(absl::StrCat(name, ": byte 2: IDX element type: found ", HexByte(bytes[2]),
                               is_any ? ", expected 0x08, 0x09, 0x0B, 0x0C, 0x0D or 0x0E"
                                      : ", expected 0x08 (unsigned byte)"));
  }
  if (!is_any && bytes[3] != expected_rank) {
    ThrowDataLoss(
        absl::StrCat(name, ": byte 3: IDX rank: found ", bytes[3], ", expected ", expected_rank));
  }
  header.bytes = HeaderBytes(bytes[3]);
  if (bytes.size() < header.bytes) {
    ThrowDataLoss(absl::StrCat(name, ": byte ", bytes.size(),
                               ": IDX dimensions: found the end of the file, expected a header of ",
                               header.bytes, " bytes for rank ", bytes[3]));
  }
  uint64_t elements = IdxTypeBytes(header.type);
  bool empty = false, overflows = false;
  for (size_t at = kMagicBytes; at < header.bytes; at += 4) {
    const uint64_t dim = uint64_t{bytes[at]} << 24 | uint64_t{bytes[at + 1]} << 16 |
                         uint64_t{bytes[at + 2]} << 8 | bytes[at + 3];
    header.dims.push_back(static_cast<int64_t>(dim));
    empty |= dim == 0;
    if (dim != 0 && elements > std::numeric_limits<int64_t>::max() / dim) overflows = true;
    if (!overflows && dim != 0) elements *= dim;
  }
  if (overflows && !empty) {
    ThrowDataLoss(absl::StrCat(name, ": byte ", kMagicBytes, ": IDX dimensions: found ",
                               header.Shape(), ", expected a product below 2^63"));
  }
  header.elements = empty ? 0 : elements;
  // Whoever has something for each item would make room for what no byte of the file stands for.
  if (empty && header.dims[0] != 0) {
    ThrowDataLoss(absl::StrCat(name, ": byte ", kMagicBytes, ": IDX dimensions: found ",
                               header.Shape(),
                               ", expected items of at least one element, or none"));
  }
  if (header.elements > max_bytes) {
    ThrowResourceExhausted(absl::StrCat(name, ": byte ", kMagicBytes, ": IDX dimensions: found ",
                                        header.Shape(), ", which are ", header.elements,
                                        " bytes, expected at most ", max_bytes));
  }
  return header;
}

[[noreturn]] void FailLength(const std::string& name, const Header& header,
                             const std::string& found, bool too_few, uint64_t at) {
  ThrowDataLoss(absl::StrCat(name, ": byte ", at, ": IDX data: found ", found,
                             too_few ? " bytes, too few" : " bytes, too many", ", expected ",
                             header.elements, " for dimensions ", header.Shape()));
}

void CheckLength(const std::string& name, const Header& header, uint64_t found) {
  if (found == header.elements) return;
  const bool too_few = found < header.elements;
  FailLength(name, header, absl::StrCat(found), too_few,
             header.bytes + (too_few ? found : header.elements));
}

// How many there are behind the header, one more at most than it says.
uint64_t ElementsOf(const std::string& path, const Header& header, uint64_t max_content) {
  FileReader file(path);
  GzipStream stream(file, max_content);
  std::vector<uint8_t> piece(size_t{1} << 16);
  const uint64_t most = header.bytes + header.elements + 1;
  uint64_t found = 0;
  while (found < most) {
    const uint64_t next = std::min<uint64_t>(piece.size(), most - found);
    const size_t got = stream.Read(absl::MakeSpan(piece.data(), next));
    found += got;
    if (got < next) break;
  }
  return std::max<uint64_t>(found, header.bytes) - header.bytes;
}

}  // namespace

size_t IdxTypeBytes(IdxType type) {
  switch (type) {
    case IdxType::kUnsignedByte:
    case IdxType::kSignedByte:
      return 1;
    case IdxType::kShort:
      return 2;
    case IdxType::kInt:
    case IdxType::kFloat:
      return 4;
    case IdxType::kDouble:
      return 8;
  }
  return 0;
}

IdxFile ParseIdx(absl::Span<const uint8_t> bytes, const std::string& name, int expected_rank) {
  Header header = ParseHeader(bytes, name, expected_rank, std::numeric_limits<uint64_t>::max());
  CheckLength(name, header, bytes.size() - header.bytes);
  IdxFile file;
  file.dims = std::move(header.dims);
  file.type = header.type;
  file.data.assign(bytes.begin() + static_cast<ptrdiff_t>(header.bytes), bytes.end());
  return file;
}

namespace {

IdxFile Read(const std::string& path, int expected_rank, uint64_t max_bytes, IdxDimsCheck check) {
  FileReader file(path, Opens::kPipesToo);
  const uint64_t kMax = std::numeric_limits<uint64_t>::max();
  const size_t most_header = HeaderBytes(expected_rank == kAnyRank ? kMostIdxRank : expected_rank);
  const uint64_t max_content = max_bytes > kMax - most_header ? kMax : max_bytes + most_header;
  GzipStream stream(file, max_content);
  std::vector<uint8_t> start(kMagicBytes);
  start.resize(stream.Read(absl::MakeSpan(start)));
  if (start.size() == kMagicBytes) {
    start.resize(HeaderBytes(expected_rank == kAnyRank ? start[3] : expected_rank));
    const size_t got = stream.Read(absl::MakeSpan(start).subspan(kMagicBytes));
    start.resize(kMagicBytes + got);
  }
  Header header = ParseHeader(start, file.name(), expected_rank, max_bytes);
  check(header.dims);
  const bool is_plain_file = file.is_regular() && !stream.is_gzip();
  if (is_plain_file) CheckLength(file.name(), header, file.size() - header.bytes);
  IdxFile idx;
  // What the file's own size does not explain has room made for it as it comes.
  uint64_t likely = is_plain_file ? header.elements : 4096 + kLikelyExpansion * file.size();
  if (likely < header.elements && file.is_regular()) {
    // Read twice rather than held twice, as a vector that grows is.
    CheckLength(file.name(), header, ElementsOf(path, header, max_content));
    likely = header.elements;
  }
  while (idx.data.size() < header.elements) {
    const size_t filled = idx.data.size();
    idx.data.resize(std::min<uint64_t>(header.elements, std::max<uint64_t>(2 * filled, likely)));
    const size_t got = stream.Read(absl::MakeSpan(idx.data).subspan(filled));
    if (filled + got < idx.data.size()) CheckLength(file.name(), header, filled + got);
  }
  uint8_t beyond;  // reading on checks the last checksum
  if (stream.Read(absl::MakeSpan(&beyond, 1)) != 0) {
    FailLength(file.name(), header, absl::StrCat("more than ", header.elements), false,
               header.bytes + header.elements);
  }
  idx.dims = std::move(header.dims);
  idx.type = header.type;
  return idx;
}

}  // namespace

IdxFile ReadIdx(const std::string& path, int expected_rank, uint64_t max_bytes,
                IdxDimsCheck check) {
  return Read(path, expected_rank, max_bytes, check);
}

IdxFile ReadAnyIdx(const std::string& path, uint64_t max_bytes, IdxDimsCheck check) {
  return Read(path, kAnyRank, max_bytes, check);
}

}  // namespace tidepool
