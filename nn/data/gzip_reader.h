// Reads files that may be compressed with gzip.
//
//   std::vector<uint8_t> bytes = ReadFileMaybeGzip("train-images-idx3-ubyte.gz", 1 << 30);
//
// A file is gzip if it starts with 1f 8b, whatever its name; otherwise its bytes are the result.
// Several gzip members one after another are joined, as RFC 1952 says. Each member's CRC-32 and
// length are checked; anything after the last member is an error.
//
// Errors name file, byte offset in the file, found and expected: kDataLoss for a damaged gzip file,
// kResourceExhausted for more than `max_bytes` of content (a decompression bomb stops there),
// kNotFound, kPermissionDenied, ... from errno, kFailedPrecondition for a folder.
// Threads: pure functions. Memory: the content, twice for a moment where it is more than
// kLikelyExpansion times the file; a file is read piece by piece (gzip_stream.h). Pipes and devices
// are read too, up to the same limit: what cannot end is refused by it.
#ifndef TIDEPOOL_NN_DATA_GZIP_READER_H_
#define TIDEPOOL_NN_DATA_GZIP_READER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace tidepool {

// Room for so much content as this times the compressed bytes is made before it has been seen.
inline constexpr size_t kLikelyExpansion = 16;

// The whole content of `path`, at most `max_bytes` after decompression.
std::vector<uint8_t> ReadFileMaybeGzip(const std::string& path, size_t max_bytes);

bool IsGzip(absl::Span<const uint8_t> bytes);

// Decompresses all members of a gzip file; `name` stands for the file in messages.
std::vector<uint8_t> Gunzip(absl::Span<const uint8_t> bytes, const std::string& name,
                            size_t max_bytes);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_GZIP_READER_H_
