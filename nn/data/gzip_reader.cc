#include "tidepool/nn/data/gzip_reader.h"

#include <algorithm>
#include <limits>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/nn/data/gzip_stream.h"

namespace tidepool {
namespace {

// All that the stream has, but no more than `most` bytes. Room for `likely` bytes is made at once.
std::vector<uint8_t> ReadAll(GzipStream& stream, size_t likely, size_t most) {
  std::vector<uint8_t> content;
  size_t filled = 0, room = std::max<size_t>(likely, 4096);
  while (filled == content.size() && filled < most) {
    content.resize(std::min(room, most));
    filled += stream.Read(absl::MakeSpan(content).subspan(filled));
    room = content.size() > most / 2 ? most : 2 * content.size();
  }
  content.resize(filled);
  return content;
}

// One byte beyond what is allowed tells that there is more.
size_t OneMore(size_t bytes) {
  return bytes == std::numeric_limits<size_t>::max() ? bytes : bytes + 1;
}

}  // namespace

bool IsGzip(absl::Span<const uint8_t> bytes) {
  return bytes.size() >= 2 && bytes[0] == 0x1f && bytes[1] == 0x8b;
}

std::vector<uint8_t> Gunzip(absl::Span<const uint8_t> bytes, const std::string& name,
                            size_t max_bytes) {
  GzipStream stream(bytes, name, max_bytes);
  // The last four bytes claim the length: a hint that saves copying, never trusted for more than a
  // little.
  size_t claimed = 0;
  if (bytes.size() >= 18) {
    for (size_t i = 1; i <= 4; ++i) claimed = claimed << 8 | bytes[bytes.size() - i];
  }
  return ReadAll(stream, OneMore(std::min(claimed, bytes.size() * kLikelyExpansion)),
                 OneMore(max_bytes));
}

std::vector<uint8_t> ReadFileMaybeGzip(const std::string& path, size_t max_bytes) {
  FileReader file(path, Opens::kPipesToo);
  GzipStream stream(file, max_bytes);
  const auto too_long = [&](uint64_t found, const char* more) {
    ThrowResourceExhausted(absl::StrCat(file.name(), ": byte ", max_bytes, ": found ", more, found,
                                        " bytes in the file, expected at most ", max_bytes));
  };
  if (!stream.is_gzip() && file.size() > max_bytes) too_long(file.size(), "");
  std::vector<uint8_t> content = ReadAll(stream, OneMore(file.size()), OneMore(max_bytes));
  if (content.size() > max_bytes) too_long(max_bytes, "more than ");
  return content;
}

}  // namespace tidepool
