#include "tidepool/nn/data/gzip_stream.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"

namespace tidepool {
namespace {

constexpr size_t kZlibChunk = size_t{1} << 30;  // zlib counts in 32 bits

std::string Hex(uint32_t value) { return absl::StrCat("0x", absl::Hex(value, absl::kZeroPad8)); }

bool HasMagic(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

// Incompressible content is a little longer compressed: 5 bytes per 16 KiB block and the frame.
uint64_t MostFileBytes(uint64_t max_content) {
  const uint64_t slack = max_content / 1024 + 1024;
  return max_content > std::numeric_limits<uint64_t>::max() - slack ? max_content
                                                                    : max_content + slack;
}

}  // namespace

// ---- bytes ------------------------------------------------------------------------------------

LookAheadBytes::LookAheadBytes(FileReader& file, uint64_t max_content)
    : file_(&file), max_content_(max_content), name_(file.name()) {
  if (file.size() > MostFileBytes(max_content)) RefuseLength(file.size(), "");
  buffer_.resize(kMostAhead);
}

LookAheadBytes::LookAheadBytes(absl::Span<const uint8_t> bytes, std::string name)
    : name_(std::move(name)), ahead_(bytes), at_end_(true) {}

absl::Span<const uint8_t> LookAheadBytes::Look(size_t count) {
  if (ahead_.size() >= count || at_end_) return ahead_;
  if (const uint64_t most = MostFileBytes(max_content_); file_->offset() > most) {
    RefuseLength(most, "more than ");
  }
  const size_t kept = ahead_.size();
  if (kept > 0) std::memmove(buffer_.data(), ahead_.data(), kept);
  const size_t got = file_->Read(
      absl::MakeSpan(reinterpret_cast<std::byte*>(buffer_.data()) + kept, buffer_.size() - kept));
  at_end_ = kept + got < buffer_.size();
  // What is read line by line would end well within a number.
  if (at_end_ && file_->offset() < file_->size()) {
    ThrowDataLoss(absl::StrCat(name_, ": byte ", file_->offset(),
                               ": found the end of the file, expected ", file_->size(),
                               " bytes, as it had when it was opened"));
  }
  ahead_ = absl::MakeConstSpan(buffer_.data(), kept + got);
  return ahead_;
}

void LookAheadBytes::RefuseLength(uint64_t found, const char* more) const {
  ThrowResourceExhausted(absl::StrCat(name_, ": byte ", max_content_, ": found ", more, found,
                                      " bytes in the file, expected at most ", max_content_));
}

void LookAheadBytes::Skip(size_t count) {
  ahead_.remove_prefix(count);
  position_ += count;
}

uint64_t LookAheadBytes::left() const {
  if (file_ != nullptr && file_->is_regular() && file_->size() > position_)
    return file_->size() - position_;
  return ahead_.size();
}

// ---- content ----------------------------------------------------------------------------------

GzipStream::GzipStream(FileReader& file, uint64_t max_bytes)
    : bytes_(file, max_bytes), max_bytes_(max_bytes) {
  is_gzip_ = HasMagic(bytes_.Look(2));
  if (is_gzip_ && inflateInit2(&inflater_, -MAX_WBITS) != Z_OK) {
    ThrowResourceExhausted("zlib: found no memory, expected 48 KiB");
  }
}

GzipStream::GzipStream(absl::Span<const uint8_t> bytes, const std::string& name, uint64_t max_bytes)
    : bytes_(bytes, name), max_bytes_(max_bytes), is_gzip_(true) {
  if (!HasMagic(bytes)) {
    ThrowDataLoss(absl::StrCat(name, ": byte 0: gzip magic: found ",
                               bytes.size() < 2 ? "a shorter file" : "other bytes",
                               ", expected 1f 8b"));
  }
  if (inflateInit2(&inflater_, -MAX_WBITS) != Z_OK) {
    ThrowResourceExhausted("zlib: found no memory, expected 48 KiB");
  }
}

GzipStream::~GzipStream() {
  if (is_gzip_) inflateEnd(&inflater_);
}

void GzipStream::Fail(uint64_t at, absl::string_view what, absl::string_view found,
                      absl::string_view expected) const {
  ThrowDataLoss(absl::StrCat(bytes_.name(), ": byte ", at, ": gzip ", what, ": found ", found,
                             ", expected ", expected));
}

void GzipStream::Require(size_t count, absl::string_view what) {
  const size_t found = bytes_.Look(count).size();
  if (found >= count) return;
  Fail(bytes_.position(), what, absl::StrCat("the end of the file after ", found, " bytes"),
       absl::StrCat(count, " bytes"));
}

// Of the header, whose bytes its checksum covers.
void GzipStream::Take(size_t count) {
  header_crc_ = static_cast<uint32_t>(crc32_z(header_crc_, bytes_.ahead().data(), count));
  bytes_.Skip(count);
}

uint32_t GzipStream::LittleEndian(size_t count, absl::string_view what) {
  Require(count, what);
  uint32_t value = 0;
  for (size_t i = 0; i < count; ++i) value |= uint32_t{bytes_.ahead()[i]} << (8 * i);
  return value;
}

void GzipStream::ReadText(const char* what) {
  const uint64_t start = bytes_.position();
  for (;;) {
    Require(1, what);
    const uint8_t byte = bytes_.ahead()[0];
    Take(1);
    if (byte == 0) return;
    if (bytes_.position() - start >= kMostGzipText) {
      Fail(start, what, "a longer one", absl::StrCat("at most ", kMostGzipText, " bytes"));
    }
  }
}

void GzipStream::ReadHeader() {
  constexpr int kHeaderCrc = 2, kExtra = 4, kName = 8, kComment = 16, kReserved = 0xe0;
  const uint64_t start = bytes_.position();
  header_crc_ = 0;
  Require(10, "header");
  if (const uint8_t method = bytes_.ahead()[2]; method != Z_DEFLATED) {
    Fail(start + 2, "method", absl::StrCat(method), "8 (deflate)");
  }
  const uint8_t flags = bytes_.ahead()[3];
  if ((flags & kReserved) != 0) Fail(start + 3, "flags", absl::StrCat(flags), "at most 31");
  Take(10);  // time, compression level, operating system: of no use here
  if ((flags & kExtra) != 0) {
    const uint32_t length = LittleEndian(2, "extra field's length");
    Take(2);
    Require(length, "extra field");
    Take(length);
  }
  if ((flags & kName) != 0) ReadText("file name");
  if ((flags & kComment) != 0) ReadText("comment");
  if ((flags & kHeaderCrc) != 0) {
    const uint32_t actual = header_crc_ & 0xffff;
    const uint32_t stored = LittleEndian(2, "header CRC");
    if (stored != actual) {
      Fail(bytes_.position(), "header CRC", Hex(stored),
           absl::StrCat(Hex(actual), " for this header"));
    }
    bytes_.Skip(2);
  }
  inflateReset(&inflater_);
  member_content_ = 0;
  member_crc_ = 0;
  place_ = Place::kData;
}

// What of the member fits `to`, which is not empty, and its end.
void GzipStream::Inflate(absl::Span<uint8_t>& to) {
  const auto in = bytes_.Look(1).subspan(0, kZlibChunk);
  const auto out = to.subspan(0, kZlibChunk);
  inflater_.next_in = const_cast<Bytef*>(in.data());
  inflater_.avail_in = static_cast<uInt>(in.size());
  inflater_.next_out = out.data();
  inflater_.avail_out = static_cast<uInt>(out.size());
  const int result = inflate(&inflater_, Z_NO_FLUSH);
  bytes_.Skip(in.size() - inflater_.avail_in);
  const size_t made = out.size() - inflater_.avail_out;
  content_ += made;
  if (content_ > max_bytes_) {
    ThrowResourceExhausted(absl::StrCat(bytes_.name(), ": byte ", bytes_.position(),
                                        ": gzip data: found more than ", max_bytes_,
                                        " bytes of content, expected at most that"));
  }
  member_content_ += made;
  member_crc_ = static_cast<uint32_t>(crc32_z(member_crc_, out.data(), made));
  to.remove_prefix(made);
  if (result == Z_STREAM_END) return EndMember();
  if (result == Z_MEM_ERROR) ThrowResourceExhausted("zlib: found no memory, expected 48 KiB");
  if ((result == Z_BUF_ERROR || result == Z_OK) && bytes_.Look(1).empty() &&
      inflater_.avail_out != 0) {
    Fail(bytes_.position(), "data", "the end of the file", "more deflate data");
  }
  if (result != Z_OK && result != Z_BUF_ERROR) {
    Fail(bytes_.position(), "data",
         inflater_.msg != nullptr ? inflater_.msg : "a preset dictionary", "valid deflate data");
  }
}

void GzipStream::EndMember() {
  const uint32_t crc = LittleEndian(4, "CRC-32");
  if (crc != member_crc_) {
    Fail(bytes_.position(), "CRC-32", Hex(crc),
         absl::StrCat(Hex(member_crc_), ", that of the content"));
  }
  bytes_.Skip(4);
  const uint32_t length = LittleEndian(4, "length");
  if (length != static_cast<uint32_t>(member_content_)) {
    Fail(bytes_.position(), "length", absl::StrCat(length),
         absl::StrCat(static_cast<uint32_t>(member_content_), ", that of the content"));
  }
  bytes_.Skip(4);
  const auto next = bytes_.Look(2);
  if (HasMagic(next)) {
    place_ = Place::kHeader;
  } else if (next.empty()) {
    place_ = Place::kEnd;
  } else {
    Fail(bytes_.position(), "end", absl::StrCat(bytes_.left(), " bytes after the last member"),
         "the end of the file or another member");
  }
}

size_t GzipStream::Read(absl::Span<uint8_t> to) {
  const size_t wanted = to.size();
  if (!is_gzip_) {
    while (!to.empty()) {
      const auto ahead = bytes_.Look(1);
      const size_t count = std::min(ahead.size(), to.size());
      if (count == 0) break;
      std::memcpy(to.data(), ahead.data(), count);
      bytes_.Skip(count);
      to.remove_prefix(count);
    }
    return wanted - to.size();
  }
  while (!to.empty() && place_ != Place::kEnd) {
    if (place_ == Place::kHeader) {
      ReadHeader();
    } else {
      Inflate(to);
    }
  }
  return wanted - to.size();
}

}  // namespace tidepool
