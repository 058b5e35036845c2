// Between a .npy header and an array: what .npy and .npz files share.
#ifndef TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_
#define TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "tidepool/memory/io/file_reader.h"
#include "tidepool/ndarray/io/npy_format.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct NpyArrays {
  NDArray array;  // dense, for the data as it stands in the file
  NDArray host;   // where to read the data to: the array itself, or of one on a device one like it
};
// Errors begin with `name`.
NpyArrays MakeNpyArrays(const NpyHeader& header, Place place, const std::string& name);
// Of `file`, which is read from its beginning; its data is from byte `begin` to the end. Errors as
// ReadNpy.
NpyHeader ReadNpyHeader(FileReader& file, uint64_t* begin);
// Bytes in this machine's order, bools of 0 and 1.
void FixNpyElements(const NpyHeader& header, absl::Span<std::byte> elements);
// The array that the file holds, once the data is in `read`, the host's: bytes in this machine's
// order, Fortran order as a transposed view.
NDArray FinishNpyArray(const NpyHeader& header, const NDArray& read, NDArray array);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_
