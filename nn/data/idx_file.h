// The IDX format, in which MNIST and its successors (Fashion-MNIST, EMNIST, ...) are published.
//
// A file is: two zero bytes; the element type (08 = unsigned byte, the only one read here); the
// rank; one 32-bit big-endian size per dimension; the elements, last dimension fastest. Source: Y.
// LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section FILE FORMATS FOR
// THE MNIST DATABASE.
//
// Errors: kDataLoss, naming file, byte offset, field, found and expected; else as gzip_reader.h.
// Threads: pure functions.
#ifndef TIDEPOOL_NN_DATA_IDX_FILE_H_
#define TIDEPOOL_NN_DATA_IDX_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace tidepool {

struct IdxFile {
  std::vector<int64_t> dims;  // outermost first; each from 0 to 2^32-1
  std::vector<uint8_t> data;  // as many bytes as the product of dims
};

// More content than this is refused, compressed or not; the largest of the family has 0.5 GiB.
inline constexpr size_t kMaxIdxBytes = size_t{4} << 30;

// Plain or gzip.
IdxFile ReadIdx(const std::string& path, int expected_rank);

// The same of a plain file's bytes; `name` stands for the file in messages.
IdxFile ParseIdx(absl::Span<const uint8_t> bytes, const std::string& name, int expected_rank);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_IDX_FILE_H_
