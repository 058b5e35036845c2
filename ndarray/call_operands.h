// The operands of one call as kernels see them.
#ifndef TIDEPOOL_NDARRAY_CALL_OPERANDS_H_
#define TIDEPOOL_NDARRAY_CALL_OPERANDS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/kernel.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Made as they are described: of the many that there may be there seldom are more than three.
class CallOperands {
 public:
  CallOperands(int inputs, int outputs) : inputs_(inputs), outputs_(outputs) {}
  TensorRef& input(int i) { return storage_[i].ref; }
  TensorRef& output(int o) { return storage_[kMostInputs + o].ref; }
  absl::Span<const TensorRef> inputs() const {
    return absl::Span<const TensorRef>(&storage_[0].ref, inputs_);
  }
  absl::Span<const TensorRef> outputs() const {
    return absl::Span<const TensorRef>(&storage_[kMostInputs].ref, outputs_);
  }
  bool all_dense() const {
    bool dense = true;
    for (const TensorRef& ref : inputs()) dense = dense && ref.dense;
    for (const TensorRef& ref : outputs()) dense = dense && ref.dense;
    return dense;
  }

 private:
  union Storage {
    Storage() {}
    TensorRef ref;
  };
  Storage storage_[kMostInputs + kMostOutputs];
  int inputs_, outputs_;
};

// Writes every field of what was no TensorRef yet, and returns the number of elements. In place: a struct
// returned by value would be copied by loads wider than the stores just made, which stall.
inline int64_t Describe(const NDArray& array, TensorRef& ref) {
  const int rank = array.rank();
  const int64_t* const dims = array.shape().dims();
  const int64_t* const strides = array.strides();
  int64_t count = 1;
  bool gaps = false;
  for (int i = rank - 1; i >= 0; --i) {
    gaps |= dims[i] != 1 && strides[i] != count;
    count *= dims[i];
  }
  // Of an operand without elements there may be memory, on another device than the call's.
  ref.data = count == 0 ? nullptr : array.raw_data();
  ref.dtype = array.dtype();
  ref.present = true;
  ref.dense = !gaps || count == 0;
  ref.rank = rank;
  ref.dims = dims;
  ref.strides = strides;
  const Buffer* const buffer = array.buffer().get();
  const bool keyed = buffer != nullptr && !buffer->MayBeWrittenOutside();
  ref.buffer_id = keyed ? buffer->id : 0;
  ref.version = keyed ? buffer->version.load(std::memory_order_relaxed) : 0;
  ref.readable_tail = buffer == nullptr || buffer->readable_tail;
  return count;
}

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_CALL_OPERANDS_H_
