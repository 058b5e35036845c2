// The IDX format, in which MNIST and its successors (Fashion-MNIST, EMNIST, ...) are published.
//
// A file is: two zero bytes; the element type (08 = unsigned byte; 09, 0B, 0C, 0D and 0E of
// ReadAnyIdx); the rank; one 32-bit big-endian size per dimension; the elements, last dimension fastest. Source: Y.
// LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section FILE FORMATS FOR
// THE MNIST DATABASE.
//
// The dimensions are checked against a file's size, or where it is compressed or a pipe against the
// limit, before there is room for the elements: a damaged or lying file costs no more than
// kLikelyExpansion times its size (gzip_reader.h) before it is refused. Items without elements are
// refused, and what the caller does not want costs no more than the header.
//
// Memory: the elements, once, and a constant; through a pipe twice for a moment. A file that
// inflates to more than kLikelyExpansion times its size is read twice.
//
// Errors: kDataLoss, naming file, byte offset, field, found and expected; kResourceExhausted for
// more than the limit; else as gzip_reader.h. Threads: pure functions.
#ifndef TIDEPOOL_NN_DATA_IDX_FILE_H_
#define TIDEPOOL_NN_DATA_IDX_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace tidepool {

// As the third byte of a file says.
enum class IdxType : uint8_t {
  kUnsignedByte = 0x08,
  kSignedByte = 0x09,
  kShort = 0x0B,
  kInt = 0x0C,
  kFloat = 0x0D,
  kDouble = 0x0E,
};
// 0 of what is none.
size_t IdxTypeBytes(IdxType type);

struct IdxFile {
  std::vector<int64_t> dims;  // outermost first; each from 0 to 2^32-1
  std::vector<uint8_t> data;  // as many elements as the product of dims, as they are in the file
  IdxType type = IdxType::kUnsignedByte;  // of the elements
};

// More bytes of elements than this are refused, compressed or not, unless the caller says otherwise; the
// largest of the family has 0.5 GiB.
inline constexpr uint64_t kMaxIdxBytes = uint64_t{4} << 30;

// Of dimensions that are not wanted: throws. Sees them before anything of the elements is read or
// has room made for it.
using IdxDimsCheck = absl::FunctionRef<void(absl::Span<const int64_t> dims)>;
inline void AnyIdxDims(absl::Span<const int64_t> /*dims*/) {}

// Plain or gzip, a file or a pipe.
IdxFile ReadIdx(const std::string& path, int expected_rank, uint64_t max_bytes = kMaxIdxBytes,
                IdxDimsCheck check = AnyIdxDims);

// Of any rank up to kMostIdxRank and any element type. idx_array.h makes an array of it.
inline constexpr int kMostIdxRank = 255;
IdxFile ReadAnyIdx(const std::string& path, uint64_t max_bytes = kMaxIdxBytes,
                   IdxDimsCheck check = AnyIdxDims);

// ReadIdx of a plain file's bytes; `name` stands for the file in messages.
IdxFile ParseIdx(absl::Span<const uint8_t> bytes, const std::string& name, int expected_rank);

}  // namespace tidepool

#endif  // TIDEPOOL_NN_DATA_IDX_FILE_H_
