// What a kernel is and what it receives.
#ifndef TIDEPOOL_NDARRAY_KERNEL_KERNEL_H_
#define TIDEPOOL_NDARRAY_KERNEL_KERNEL_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/memory/device.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/kernel/threads.h"

namespace tidepool {

// An operand. A view of the caller's array: pointers live as long as the call.
struct TensorRef {
  void* data = nullptr;              // null when the operand is absent or empty
  DType dtype = DType::kFloat32;     // of the elements
  bool present = false;              // false: an optional operand that was left out
  bool dense = true;                 // row-major without gaps
  bool readable_tail = true;         // a few bytes behind the end can be read (kReadableTailBytes)
  int rank = 0;                      // number of axes
  const int64_t* dims = nullptr;     // sizes of the axes
  const int64_t* strides = nullptr;  // in elements
  // For caches of derived data such as packed weights: the bytes are the same while both are. An id
  // of 0 says that nothing may be kept: the bytes may change without the version.
  uint64_t buffer_id = 0;
  uint64_t version = 0;

  // The first element, unchecked: T is the type of `dtype`.
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
  // The product of the sizes; 1 of rank 0.
  int64_t NumElements() const {
    int64_t count = 1;
    for (int i = 0; i < rank; ++i) count *= dims[i];
    return count;
  }
};

// One call of an operator, whose operands were checked. Lives until run() returns (kept_call.h
// keeps one).
struct KernelCall {
  OpCode op;                            // which of those that the function is registered for
  absl::Span<const TensorRef> inputs;   // one per declared operand, optional ones maybe absent
  absl::Span<const TensorRef> outputs;  // one per declared operand
  // The struct that Info(op).attributes names. A plain value of Info(op).attributes.bytes() bytes:
  // a kernel that runs after the call copies it. Null where the operator takes none.
  const void* attributes = nullptr;

  void* scratch = nullptr;   // what Kernel::scratch_bytes asked for, 64-byte aligned
  size_t scratch_bytes = 0;  // of `scratch`
  Threads threads;           // that it may use
  Device device;             // where the operands are
  int queue = 0;             // number of the device's compute queue to work in (device_queue.h)

  // The attributes, unchecked: T is the operator's struct.
  template <typename T>
  const T& attrs() const {
    return *static_cast<const T*>(attributes);
  }
};

// Registered once per (operator, device type, data type, provider) from a static initialiser. A
// plain aggregate of pointers to static data.
struct Kernel {
  // What it is registered for. `dtype`: of the first output, or of the first input (kKeyIsInput).
  OpCode op;
  DeviceType device;
  DType dtype;

  const char* provider;            // "reference", "cpu", "xnnpack", ...
  int priority;                    // the highest that supports a call runs it
  void (*run)(const KernelCall&);  // does the call, or queues it on call.queue of a device
  size_t (*scratch_bytes)(const KernelCall&) = nullptr;  // null: none
  bool (*supports)(const KernelCall&) = nullptr;         // null: every call
  bool strided = false;  // takes any strides; otherwise the dispatcher makes operands dense
};

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_KERNEL_H_
