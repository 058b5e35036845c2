// What kernels keep of operands that are the same from call to call: packed weights, answers about them.
//
// A kernel knows such an operand by the id of its buffer (TensorRef::buffer_id), which tells it of writes and not of the
// end. So who owns operands that were declared constant says when they go, as networks do of their parameters; what is
// kept of others goes when it has not been used for some time.
#ifndef TIDEPOOL_NDARRAY_KERNEL_KEPT_OPERANDS_H_
#define TIDEPOOL_NDARRAY_KERNEL_KEPT_OPERANDS_H_

#include <cstdint>

namespace tidepool {

// Who keeps something; made at the start of the program and never destroyed. `forget` drops what is kept of the buffer of
// that id, from any thread; what runs with it meanwhile goes when it is done.
class OperandKeeper {
 public:
  using Forget = void (*)(uint64_t buffer_id) noexcept;
  explicit OperandKeeper(Forget forget) noexcept;
  OperandKeeper(const OperandKeeper&) = delete;
  OperandKeeper& operator=(const OperandKeeper&) = delete;

 private:
  friend void ForgetKeptOperand(uint64_t buffer_id) noexcept;

  const Forget forget_;
  const OperandKeeper* next_;
};

// The buffer of that id goes, or will not be an operand any more. Should it be one all the same, what is kept of it is made
// again. Any thread. O(what is kept).
void ForgetKeptOperand(uint64_t buffer_id) noexcept;

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_KERNEL_KEPT_OPERANDS_H_
