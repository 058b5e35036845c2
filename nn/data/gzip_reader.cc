#include "tidepool/nn/data/gzip_reader.h"

#include <zlib.h>

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {
namespace {

// Deflate cannot expand further than this (zlib's technical notes).
constexpr size_t kMaxExpansion = 1032;

// Where in a gzip file we are; every error names it.
struct Input {
  absl::Span<const uint8_t> bytes;
  const std::string& name;
  size_t position = 0;

  size_t left() const { return bytes.size() - position; }

  [[noreturn]] void Fail(size_t at, absl::string_view what, absl::string_view found,
                         absl::string_view expected) const {
    ThrowDataLoss(absl::StrCat(name, ": byte ", at, ": gzip ", what, ": found ", found,
                               ", expected ", expected));
  }
  void Require(size_t count, absl::string_view what) const {
    if (left() >= count) return;
    Fail(position, what, absl::StrCat("the end of the file after ", left(), " bytes"),
         absl::StrCat(count, " bytes"));
  }
  uint8_t Byte(absl::string_view what) {
    Require(1, what);
    return bytes[position++];
  }
  uint32_t LittleEndian(int count, absl::string_view what) {
    Require(static_cast<size_t>(count), what);
    uint32_t value = 0;
    for (int i = 0; i < count; ++i) value |= uint32_t{bytes[position++]} << (8 * i);
    return value;
  }
};

std::string Hex(uint32_t value) { return absl::StrCat("0x", absl::Hex(value, absl::kZeroPad8)); }

void ReadHeader(Input& input) {
  constexpr int kHeaderCrc = 2, kExtra = 4, kName = 8, kComment = 16, kReserved = 0xe0;
  const size_t start = input.position;
  input.Require(10, "header");
  input.position += 2;  // the magic, seen by the caller
  if (const uint8_t method = input.Byte("method"); method != Z_DEFLATED) {
    input.Fail(start + 2, "method", absl::StrCat(method), "8 (deflate)");
  }
  const uint8_t flags = input.Byte("flags");
  if ((flags & kReserved) != 0) input.Fail(start + 3, "flags", absl::StrCat(flags), "at most 31");
  input.position += 6;  // time, compression level, operating system: of no use here
  if ((flags & kExtra) != 0) {
    const uint32_t length = input.LittleEndian(2, "extra field's length");
    input.Require(length, "extra field");
    input.position += length;
  }
  if ((flags & kName) != 0) {
    while (input.Byte("file name") != 0) continue;
  }
  if ((flags & kComment) != 0) {
    while (input.Byte("comment") != 0) continue;
  }
  if ((flags & kHeaderCrc) != 0) {
    const uint32_t actual =
        crc32(0, input.bytes.data() + start, static_cast<uInt>(input.position - start)) & 0xffff;
    const size_t at = input.position;
    const uint32_t stored = input.LittleEndian(2, "header CRC");
    if (stored != actual)
      input.Fail(at, "header CRC", Hex(stored), absl::StrCat(Hex(actual), " for this header"));
  }
}

// Deflate data, one member after another. `output` may be longer than what is filled, so that a
// file of many tiny members costs no more than its length.
class Inflater {
 public:
  Inflater() {
    if (inflateInit2(&stream_, -MAX_WBITS) != Z_OK)
      ThrowResourceExhausted("zlib: found no memory, expected 48 KiB");
  }
  ~Inflater() { inflateEnd(&stream_); }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;

  // Appends one member at output[filled].
  void Run(Input& input, std::vector<uint8_t>& output, size_t& filled, size_t max_bytes) {
    inflateReset(&stream_);
    constexpr size_t kChunk = size_t{1} << 30;  // zlib counts in 32 bits
    // Reading is over when zlib says so; an output that is full at max_bytes may still be complete,
    // so it gets one byte more to show whether there is more.
    const size_t limit =
        max_bytes == std::numeric_limits<size_t>::max() ? max_bytes : max_bytes + 1;
    for (;;) {
      if (filled == output.size()) {
        const size_t doubled = std::max<size_t>(output.size() * 2, 4096);
        const size_t reserved = output.capacity() > filled ? output.capacity() : doubled;
        output.resize(std::min({limit, doubled, reserved}));
      }
      const size_t in = std::min(input.left(), kChunk),
                   out = std::min(output.size() - filled, kChunk);
      stream_.next_in = const_cast<Bytef*>(input.bytes.data() + input.position);
      stream_.avail_in = static_cast<uInt>(in);
      stream_.next_out = output.data() + filled;
      stream_.avail_out = static_cast<uInt>(out);
      const int result = inflate(&stream_, Z_NO_FLUSH);
      input.position += in - stream_.avail_in;
      filled += out - stream_.avail_out;
      if (filled > max_bytes) {
        ThrowResourceExhausted(absl::StrCat(input.name, ": byte ", input.position,
                                            ": gzip data: found more than ", max_bytes,
                                            " bytes of content, expected at most that"));
      }
      if (result == Z_STREAM_END) break;
      if (result == Z_MEM_ERROR) ThrowResourceExhausted("zlib: found no memory, expected 48 KiB");
      if (result == Z_BUF_ERROR ||
          (result == Z_OK && input.left() == 0 && stream_.avail_out != 0)) {
        input.Fail(input.position, "data", "the end of the file", "more deflate data");
      }
      if (result != Z_OK) {
        input.Fail(input.position, "data",
                   stream_.msg != nullptr ? stream_.msg : "a preset dictionary",
                   "valid deflate data");
      }
    }
  }

 private:
  z_stream stream_ = {};
};

uint32_t Crc32(absl::Span<const uint8_t> bytes) {
  return static_cast<uint32_t>(crc32_z(0, bytes.data(), bytes.size()));
}

}  // namespace

bool IsGzip(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

std::vector<uint8_t> Gunzip(absl::Span<const uint8_t> bytes, const std::string& name,
                            size_t max_bytes) {
  Input input{bytes, name};
  std::vector<uint8_t> output;
  if (!IsGzip(bytes)) {
    ThrowDataLoss(absl::StrCat(name, ": byte 0: gzip magic: found ",
                               bytes.size() < 2 ? "a shorter file" : "other bytes",
                               ", expected 1f 8b"));
  }
  // The last four bytes claim the length: a hint that saves copying, never trusted for more.
  if (bytes.size() >= 18) {
    input.position = bytes.size() - 4;
    const size_t claimed = input.LittleEndian(4, "length");
    input.position = 0;
    output.reserve(std::min({claimed + 1, max_bytes, bytes.size() * kMaxExpansion}));
  }
  Inflater inflater;
  size_t filled = 0;
  do {
    const size_t start = filled;
    ReadHeader(input);
    inflater.Run(input, output, filled, max_bytes);
    const auto member = absl::MakeConstSpan(output).subspan(start, filled - start);
    size_t at = input.position;
    const uint32_t crc = input.LittleEndian(4, "CRC-32"), actual_crc = Crc32(member);
    if (crc != actual_crc)
      input.Fail(at, "CRC-32", Hex(crc), absl::StrCat(Hex(actual_crc), ", that of the content"));
    at = input.position;
    const uint32_t length = input.LittleEndian(4, "length");
    if (length != static_cast<uint32_t>(member.size())) {
      input.Fail(at, "length", absl::StrCat(length),
                 absl::StrCat(static_cast<uint32_t>(member.size()), ", that of the content"));
    }
  } while (IsGzip(bytes.subspan(input.position)));
  if (input.left() != 0) {
    input.Fail(input.position, "end", absl::StrCat(input.left(), " bytes after the last member"),
               "the end of the file or another member");
  }
  output.resize(filled);
  return output;
}

std::vector<uint8_t> ReadFileMaybeGzip(const std::string& path, size_t max_bytes) {
  FileReader file(path, Opens::kPipesToo);
  // Incompressible content is a little longer compressed: 5 bytes per 16 KiB block and the frame.
  constexpr size_t kMax = std::numeric_limits<size_t>::max();
  const size_t slack = max_bytes / 1024 + 1024;
  const size_t max_read = max_bytes > kMax - slack ? kMax : max_bytes + slack;
  const auto too_long = [&](uint64_t found, const char* more) {
    ThrowResourceExhausted(absl::StrCat(file.name(), ": byte ", max_bytes, ": found ", more, found,
                                        " bytes in the file, expected at most ", max_bytes));
  };
  if (file.size() > max_read) too_long(file.size(), "");
  // One byte more than expected shows the end of the file without another round.
  std::vector<uint8_t> bytes(file.is_regular() ? file.size() + 1 : 4096);
  size_t filled = 0;
  for (;;) {
    filled += file.Read(
        absl::MakeSpan(reinterpret_cast<std::byte*>(bytes.data()) + filled, bytes.size() - filled));
    if (filled < bytes.size()) break;
    if (filled > max_read) too_long(max_read, "more than ");
    bytes.resize(bytes.size() * 2);
  }
  bytes.resize(filled);
  if (IsGzip(bytes)) return Gunzip(bytes, file.name(), max_bytes);
  if (bytes.size() > max_bytes) too_long(bytes.size(), "");
  return bytes;
}

}  // namespace tidepool
