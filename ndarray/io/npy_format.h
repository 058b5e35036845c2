// The header of NumPy's .npy files, versions 1.0 to 3.0:
//
//   "\x93NUMPY" major minor length header "\n" data
//
// length is 2 bytes (1.0) or 4, little-endian; the header is a Python dict of descr, fortran_order
// and shape, padded with spaces so that the data begins at a multiple of 64.
// Source: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
// Types: f2 f4 f8, i1 to i8, u1 to u8, b1, of either byte order. bf16 has no name there.
#ifndef TIDEPOOL_NDARRAY_IO_NPY_FORMAT_H_
#define TIDEPOOL_NDARRAY_IO_NPY_FORMAT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/shape.h"

namespace tidepool {

struct NpyHeader {
  DType dtype = DType::kFloat32;
  bool swapped = false;        // the elements' bytes are in the other order
  bool fortran_order = false;  // the first axis runs fastest
  Shape shape;

  uint64_t data_bytes() const {
    return static_cast<uint64_t>(shape.NumElements()) * DTypeBytes(dtype);
  }
};

inline constexpr size_t kNpyPrefixBytes = 12;  // enough for the length of any version
inline constexpr size_t kNpyMostHeaderBytes = 1 << 16;

// From the file's first kNpyPrefixBytes (fewer only where the file is shorter): where the header's
// text begins and ends. `name` stands for the file in messages. Throws kDataLoss naming the byte,
// what was found and what was expected.
struct NpyHeaderRange {
  size_t begin, end;
};
NpyHeaderRange FindNpyHeader(absl::string_view prefix, const std::string& name);
// The text between the two. Throws kDataLoss for text that is not such a dict, kUnimplemented for
// types that Tidepool has not (naming them), kInvalidArgument for shapes beyond rank 8.
NpyHeader ParseNpyHeader(absl::string_view text, const std::string& name);

// Everything before the data: C order, this machine's bytes. Throws kInvalidArgument for bf16.
std::string SerializeNpyHeader(DType dtype, const Shape& shape);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_NPY_FORMAT_H_
