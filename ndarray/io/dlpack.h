// DLPack: arrays shared with other libraries of the process without copying
// (https://dmlc.github.io/dlpack; the unversioned DLManagedTensor).
//
//   DLManagedTensor* tensor = ToDLPack(x);    // give it away; its deleter lets go of x
//   NDArray y = FromDLPack(tensor);           // takes it over; y's last handle calls the deleter
//
// Both ways the bytes live as long as anybody holds them: closing x or its manager makes our handles dead
// at once and leaves the bytes to the other library until it calls the deleter. What comes in is on the ledger as
// kExternal; what goes out stays on it as it was. The other library may write to them, as long as no
// operator uses them at that moment: every operator sees what is there when it is called. For that,
// nothing derived from them is kept meanwhile: constant weights run on kernels that pack none, and a
// model's replica on another device is copied anew for each request. Types: all of ours (bool as DLPack's code 6).
//
// Whose y is, is the rule of every new array: the manager's that was entered last on this thread
// (ManagerScope), whose close calls the deleter, handles or not; else its handles'.
//
// Without elements there are no bytes to share: such a tensor may have null data, its deleter is called by
// FromDLPack itself, and y is a new array of that shape, nobody's and on no ledger.
//
// Errors: kFailedPrecondition for an array of a workspace (its cycle would end under the other
// library: Detach() it first), a stale or a closed one; kUnimplemented for other types, lanes and
// devices; kInvalidArgument for shapes beyond rank 8 or bad strides; those of the manager when that is
// capped, closed or beyond its budget. FromDLPack that throws has not taken the tensor over.
#ifndef TIDEPOOL_NDARRAY_IO_DLPACK_H_
#define TIDEPOOL_NDARRAY_IO_DLPACK_H_

#include <dlpack/dlpack.h>

#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// The caller owns the tensor: whoever takes it calls its deleter once.
DLManagedTensor* ToDLPack(const NDArray& array);
NDArray FromDLPack(DLManagedTensor* tensor);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_DLPACK_H_
