// Gradients of a call of any operator, as its row says: by the operators that compute them, or made up of others.
//
//   NDArray z = Hypot(x, y);
//   std::vector<NDArray> d = Gradients(OpCode::kHypot, {&x, &y}, {&z}, {&dz});  // d[0]: dX, d[1]: dY
//
// Nothing is recorded: who calls keeps what the call had; ndarray/gradient/gradient_tape.h records. Layers of nn call
// gradient operators themselves, with results in place; this is for programs that go through operators they do not know,
// and for those that add their own.
#ifndef TIDEPOOL_NDARRAY_OPS_GRADIENTS_H_
#define TIDEPOOL_NDARRAY_OPS_GRADIENTS_H_

#include <cstdint>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/ndarray.h"

namespace tidepool {

// Whether Gradients() can: the row names operators, or there is a function for it.
bool HasGradients(OpCode op);

// By input: the gradient of the loss with respect to it, of its shape and type, in the current place; undefined for absent
// inputs and for those that nothing flows to (integers, labels). `inputs`, `outputs` and `attributes`: of the call, as
// Dispatch took them. `output_gradients`: of the loss with respect to each output; null is none. Where a function
// has a corner (maximum of equals, 0 of an absolute value) one of the sides.
// Throws kUnimplemented for operators without gradients, saying which of the reasons of operator_list.inc it is;
// kInvalidArgument for other numbers of operands than it has, and for the gradient of an output that nothing flows from;
// what the operators throw.
std::vector<NDArray> Gradients(OpCode op, absl::Span<const NDArray* const> inputs,
                               absl::Span<const NDArray* const> outputs,
                               absl::Span<const NDArray* const> output_gradients,
                               AttributesRef attributes = {});

// Operands of a call, a bit each.
using OperandSet = uint32_t;
constexpr OperandSet InputBit(int input) { return OperandSet{1} << input; }
constexpr OperandSet OutputBit(int output) { return OperandSet{1} << (kMostInputs + output); }
inline constexpr OperandSet kEveryOperand = ~OperandSet{0};

// A call, and the gradient with respect to its first output. Operands that the function has not said it needs (AddGradient)
// may be without elements: they have shape, type and device, and reading them is an error.
struct GradientCall {
  // The call as Dispatch took it, attributes as KernelCall's; dz: of the loss with respect to
  // outputs[0].
  OpCode op;
  absl::Span<const NDArray*const> inputs, outputs;
  const NDArray& dz;
  const void* attributes;

  OperandSet wanted = kEveryOperand;  // by input; what is given beside these is thrown away
  // By input: where the gradient is to lie, of the input's shape and type. One that is returned elsewhere is copied there.
  absl::Span<NDArray* const> destinations = {};
  // dz where nobody else needs its bytes any more and the function may write over them, else null.
  NDArray* spare = nullptr;
  // Tells that an operand's elements are not read any more: memory of one that was kept for this call goes.
  void (*release)(const GradientCall& call, OperandSet operands) = nullptr;
  void* released_by = nullptr;  // what `release` goes by

  // An input, which is there, and the first output; unchecked.
  const NDArray& x(int input = 0) const { return *inputs[static_cast<size_t>(input)]; }
  const NDArray& z() const { return *outputs[0]; }
  // The attributes, unchecked: T is the operator's struct.
  template <typename T>
  const T& attrs() const {
    return *static_cast<const T*>(attributes);
  }
  // Whether the gradient with respect to that input is asked for.
  bool wants(int input) const { return (wanted & InputBit(input)) != 0; }
  // Where it is to lie; null: anywhere.
  NDArray* destination(int input) const {
    return destinations.empty() ? nullptr : destinations[static_cast<size_t>(input)];
  }
  // The function reads the elements of these operands no more.
  void Done(OperandSet operands) const {
    if (release != nullptr) release(*this, operands);
  }
};
// By input; those left undefined have none. Of the input's shape and device and a floating type, which is cast to the input's.
// Gradients of broadcast inputs may be of the result's shape: they are summed. What a program's own function returns otherwise
// is kInvalidArgument. Views whose elements repeat may be given, and dz itself.
// No memory is taken for as many as most operators have.
using GradientResults = absl::InlinedVector<NDArray, 3>;
using GradientFunction = GradientResults (*)(const GradientCall& call);

// For an operator of one's own whose row says kComposed. `needs`: whose elements the function reads; others are not kept for
// it by a tape (gradient/gradient_tape.h). Always true. Throws kInvalidArgument for other rows and where
// there is one. Any thread; never taken back.
bool AddGradient(OpCode op, GradientFunction function, OperandSet needs = kEveryOperand);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_GRADIENTS_H_
