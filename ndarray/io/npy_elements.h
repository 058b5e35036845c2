// Between a .npy header and an array: what .npy and .npz files share.
#ifndef TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_
#define TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_

#include <string>

#include "tidepool/ndarray/io/npy_format.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct NpyArrays {
  NDArray array;  // dense, for the data as it stands in the file
  NDArray host;   // where to read the data to: the array itself, or of one on a device one like it
};
// Errors begin with `name`.
NpyArrays MakeNpyArrays(const NpyHeader& header, Place place, const std::string& name);
// The array that the file holds, once the data is in `read`, the host's: bytes in this machine's
// order, Fortran order as a transposed view.
NDArray FinishNpyArray(const NpyHeader& header, const NDArray& read, NDArray array);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_
