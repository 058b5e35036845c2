// The content of a file that may be compressed with gzip, piece by piece: nothing is held but 128
// KiB of the file.
//
//   GzipStream stream(file, kMaxBytes);               // a FileReader
//   size_t got = stream.Read(absl::MakeSpan(header));  // of the content
//
// What gzip is and what is refused: gzip_reader.h. So that no input goes on for ever, a file may be
// no longer than `max_bytes` of content need, and the name and comment of a member no longer than
// kMostGzipText.
//
// Errors: as gzip_reader.h, thrown by Read; kDataLoss for a file that became shorter than it was when
// it was opened. Threads: one at a time.
#ifndef TIDEPOOL_NN_DATA_GZIP_STREAM_H_
#define TIDEPOOL_NN_DATA_GZIP_STREAM_H_

#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "tidepool/memory/io/file_reader.h"

namespace tidepool {

inline constexpr size_t kMostGzipText = size_t{1} << 16;

// Bytes of a file, or in memory, with a look ahead.
class LookAheadBytes {
 public:
  // `file` must outlive this. kResourceExhausted is thrown for more bytes than so much content
  // takes compressed, where it cannot be: at once by the size of a file, of a pipe when they have
  // come.
  LookAheadBytes(FileReader& file, uint64_t max_content);
  // `bytes` likewise. `name` stands for the file in messages.
  LookAheadBytes(absl::Span<const uint8_t> bytes, std::string name);

  const std::string& name() const { return name_; }
  uint64_t position() const { return position_; }
  // What is there without another read; at the end of the file nothing.
  absl::Span<const uint8_t> ahead() const { return ahead_; }
  // Looks at least `count` bytes ahead, up to kMostAhead; fewer only at the end.
  absl::Span<const uint8_t> Look(size_t count);
  void Skip(size_t count);
  // From here to the end, where that is known without reading on; else ahead().size().
  uint64_t left() const;

 private:
  static constexpr size_t kMostAhead = size_t{1} << 17;

  [[noreturn]] void RefuseLength(uint64_t found, const char* more) const;

  FileReader* file_ = nullptr;
  uint64_t max_content_ = 0;
  std::string name_;
  std::vector<uint8_t> buffer_;
  absl::Span<const uint8_t> ahead_;
  uint64_t position_ = 0;
  bool at_end_ = false;
};

class GzipStream {
 public:
  // Of `file`, compressed or not.
  GzipStream(FileReader& file, uint64_t max_bytes);
  // Of compressed bytes in memory, which outlive the stream.
  GzipStream(absl::Span<const uint8_t> bytes, const std::string& name, uint64_t max_bytes);
  ~GzipStream();
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;

  bool is_gzip() const { return is_gzip_; }
  // Fills `to`; fewer bytes only at the end of the content, and then all lengths and checksums were
  // right.
  size_t Read(absl::Span<uint8_t> to);

 private:
  enum class Place : uint8_t { kHeader, kData, kEnd };

  void ReadHeader();
  void ReadText(const char* what);
  void Inflate(absl::Span<uint8_t>& to);
  void EndMember();
  void Require(size_t count, absl::string_view what);
  uint32_t LittleEndian(size_t count, absl::string_view what);
  void Take(size_t count);
  [[noreturn]] void Fail(uint64_t at, absl::string_view what, absl::string_view found,
                         absl::string_view expected) const;

  LookAheadBytes bytes_;
  const uint64_t max_bytes_;
  bool is_gzip_ = false;
  Place place_ = Place::kHeader;
  uint64_t content_ = 0;         // so far
  uint64_t member_content_ = 0;  // of the member
  uint32_t member_crc_ = 0;
  uint32_t header_crc_ = 0;
  z_stream inflater_ = {};
};

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_GZIP_STREAM_H_
