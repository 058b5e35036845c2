// The CUDA array interface, version 3: arrays of CUDA devices shared with CuPy, Numba, PyTorch and others that know
// Python's `__cuda_array_interface__`, without copying
// (https://numba.readthedocs.io/en/stable/cuda/cuda_array_interface.html).
//
//   const CudaArrayExport given = ToCudaArrayInterface(x);
//   given.fields().ToString();   // {'shape': (2, 3), 'typestr': '<f4', 'data': (140..., False), 'strides': None, ...}
//
//   NDArray y = FromCudaArrayInterface(fields, DeviceNamed("cuda:0"), [object] { ... });   // lets go of the producer
//
// It is DLPack (dlpack.h) in another form: lifetimes, order, the ledger and errors are as there.
// - Given away: the bytes live as long as the CudaArrayExport, which is movable; so the object whose attribute the dict is
//   keeps one. `stream` is the one that our work on the array is done in, the calling thread's queue unless the
//   caller names one: a consumer puts its work behind it, and what it wants done before our next use in front of the end of
//   the export. Numbers mean what they do in DLPack: 1 is the legacy default stream, 2 the thread's.
// - Taken over: our uses come behind what the producer's stream was given to do by then. `release` is called once, when the
//   last handle has gone or the array is closed, on whichever thread; it may do nothing. What the stream is given to do
//   after it comes behind our uses; where the producer names no stream, the host waits for them before.
//
// Types: of NumPy's that we have; bf16 has no name there (DLPack has one). The interface does not say of which device
// the memory is: the caller asks the driver, or knows. A mask is not known here: refuse arrays that have one.
#ifndef TIDEPOOL_NDARRAY_IO_CUDA_ARRAY_INTERFACE_H_
#define TIDEPOOL_NDARRAY_IO_CUDA_ARRAY_INTERFACE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tidepool/ndarray/io/dlpack.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// The entries of the dict.
struct CudaArrayInterface {
  std::vector<int64_t> shape;  // empty for a scalar
  std::string typestr;         // "<f4"
  uint64_t data = 0;           // address; 0 without elements
  bool read_only = false;      // the consumer must not write to it
  std::optional<std::vector<int64_t>> strides =
      std::nullopt;                              // in bytes; none: in C's order, dense
  std::optional<int64_t> stream = std::nullopt;  // none: there is nothing to wait for
  int version = 3;                               // 2 is taken over as well

  // As Python writes the dict: ast.literal_eval reads it.
  std::string ToString() const;
};

// An array that is given away: its bytes live as long as this, which is movable.
class CudaArrayExport {
 public:
  // What the consumer is told.
  const CudaArrayInterface& fields() const { return fields_; }

 private:
  friend CudaArrayExport ToCudaArrayInterface(const NDArray& array, const DLPackExport& how);
  struct Deleter {
    void operator()(DLManagedTensorVersioned* tensor) const { tensor->deleter(tensor); }
  };
  CudaArrayInterface fields_;
  std::unique_ptr<DLManagedTensorVersioned, Deleter> tensor_;
};

// Throws as ToDLPackVersioned; kInvalidArgument for an array of another device, kUnimplemented for bf16.
CudaArrayExport ToCudaArrayInterface(const NDArray& array, const DLPackExport& how = {});

// Throws as FromDLPack; kInvalidArgument for strides that are no multiples of an element, fewer or more of them than axes,
// and a device of another type; kUnimplemented for other types, byte orders and versions than 2 and 3. Then `release` is
// not called.
NDArray FromCudaArrayInterface(const CudaArrayInterface& fields, Device device,
                               std::function<void()> release);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_CUDA_ARRAY_INTERFACE_H_
