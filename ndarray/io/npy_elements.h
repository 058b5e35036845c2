// Between a .npy header and an array: what .npy and .npz files share.
#ifndef TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_
#define TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_

#include "tidepool/ndarray/io/npy_format.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// A dense array for the data as it stands in the file.
NDArray MakeNpyArray(const NpyHeader& header, Place place);
// The array that the file holds, once the data is there: bytes in this machine's order, Fortran
// order as a transposed view.
NDArray FinishNpyArray(const NpyHeader& header, NDArray array);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_NPY_ELEMENTS_H_
