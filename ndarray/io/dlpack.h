// DLPack: arrays shared with other libraries of the process without copying, on the host and on devices
// (https://dmlc.github.io/dlpack; versioned tensors of version 1 and those without a version).
//
//   DLManagedTensorVersioned* tensor = ToDLPackVersioned(x);  // give it away; its deleter lets go of x
//   NDArray y = FromDLPack(tensor);                           // takes it over; y's last handle calls the deleter
//
// Both ways the bytes live as long as anybody holds them, by one rule: closing x, its manager, its queue or any
// workspace makes our handles dead as ever and leaves the bytes to the other library until it calls the
// deleter, on any thread, also one that is ending. So what a workspace owns (ring slots as well) is not given
// away, because its cycle's end waits for nobody: Detach() it first, or have a copy given away. What comes
// in is on the ledger as kExternal; what goes out stays on it as it was.
//
// The other library may write to the bytes, as long as no operator uses them at that moment: every operator sees
// what is there when it is called. For that, nothing derived from them is kept meanwhile: constant weights
// run on kernels that pack none, a model's replica on another device is copied anew for each request, and
// the host copy of a device's array is fetched anew at each access. What we write on the host to a device's array goes
// to the device when it is used there next, or given away. Types: all of ours (bool as DLPack's code 6).
//
// Streams. `stream` is what `__dlpack__(stream=...)` is given: the number of a stream of the tensor's device
// (dlpack_devices.h says what numbers mean; of CUDA 1 is the legacy default stream, 2 the thread's, others are a
// cudaStream_t, 0 is refused), -1 for no order at all, or nothing (of CUDA: the legacy default stream).
// - Given away: work in that stream comes behind ours on the array; nobody waits on the host. When the deleter is called,
//   whatever the stream was given to do by then comes before our next use of the bytes or of their memory. The stream is
//   an adopted queue (device_queue.h) meanwhile: it lives until the deleter has returned.
// - Taken over: our uses come behind what the stream was given to do by then, and what it is given to do after
//   the deleter comes behind our uses. Without a stream that has work of its own (-1, or a queue of ours, whose
//   number DLPackStreamOf tells the producer) the host waits for our uses before it calls the deleter.
//
// One of our own that comes back as it was given away, and not by a tensor of the other library's, is a view of the array that
// it was made of, as long as that is alive, y would be the same owner's and as writable: closing x closes y then, as that of
// all views, and the queues of a device order what is done with either. Otherwise, and where the other library hands on
// our bytes by a tensor of its own, two arrays have the same bytes and nothing orders uses of the one behind those of the
// other in another queue: that is the program's, by DeviceQueue::After.
//
// Whose y is, is the rule of every new array: the manager's that was entered last on this thread
// (ManagerScope), whose close calls the deleter, handles or not; else its handles'. What is read only (a flag of
// versioned tensors) is an array that operators refuse to write to.
//
// Without elements there are no bytes to share: such a tensor may have null data, its deleter is called by
// FromDLPack itself, and y is a new array of that shape, on the tensor's device, nobody's and on no ledger.
//
// Errors: kFailedPrecondition for an array of a workspace, a stale or a closed one, one that is to be read only in a
// tensor without a version, while a step is captured; kUnimplemented for other types, lanes, major versions, device types
// that are not in the table and devices that no provider is linked for, kNotFound for a device that is not there;
// kInvalidArgument for shapes beyond rank 8, bad strides, bools other than 0 and 1 on the host, and streams that there cannot be;
// kResourceExhausted for more streams at a time than a device has queues; kInternal when the device refuses;
// those of the manager when that is capped, closed or beyond its budget. FromDLPack that throws has
// not taken the tensor over.
#ifndef TIDEPOOL_NDARRAY_IO_DLPACK_H_
#define TIDEPOOL_NDARRAY_IO_DLPACK_H_

#include <cstdint>
#include <optional>

#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/ndarray/io/dlpack_versioned.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

struct DLPackExport {
  std::optional<int64_t> stream = std::nullopt;  // of the consumer
  bool read_only = false;  // the consumer does not write; a versioned tensor says so
  bool copy = false;       // of a copy on the same device, which is the consumer's alone
};

// The caller owns the tensor: whoever takes it calls its deleter once.
DLManagedTensor* ToDLPack(const NDArray& array, const DLPackExport& how = {});
DLManagedTensorVersioned* ToDLPackVersioned(const NDArray& array, const DLPackExport& how = {});
// `stream`: of the producer.
NDArray FromDLPack(DLManagedTensor* tensor, std::optional<int64_t> stream = std::nullopt);
NDArray FromDLPack(DLManagedTensorVersioned* tensor, std::optional<int64_t> stream = std::nullopt);

// The number of a queue of ours, for a producer that is to make its data safe there. Throws kUnimplemented
// for a device without native queues.
int64_t DLPackStreamOf(const DeviceQueue& queue);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_IO_DLPACK_H_
