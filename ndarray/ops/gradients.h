// Gradients of a call of any operator, as its row says: by the operators that compute them, or made up of others.
//
//   NDArray z = Hypot(x, y);
//   std::vector<NDArray> d = Gradients(OpCode::kHypot, {&x, &y}, {&z}, {&dz});  // d[0]: dX, d[1]: dY
//
// Nothing is recorded: who calls keeps what the call had. Layers of nn call gradient operators themselves, with results in
// place; this is for programs that go through operators they do not know, and for those that add their own.
#ifndef TIDEPOOL_NDARRAY_OPS_GRADIENTS_H_
#define TIDEPOOL_NDARRAY_OPS_GRADIENTS_H_

#include <vector>

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
                               absl::Span<const NDArray* const> output_gradients, AttributesRef attributes = {});

// A call, and the gradient with respect to its first output.
struct GradientCall {
  OpCode op;
  absl::Span<const NDArray* const> inputs, outputs;
  const NDArray& dz;
  const void* attributes;

  const NDArray& x(int input = 0) const { return *inputs[static_cast<size_t>(input)]; }
  const NDArray& z() const { return *outputs[0]; }
  template <typename T>
  const T& attrs() const {
    return *static_cast<const T*>(attributes);
  }
};
// By input; those left undefined have none. Gradients of broadcast inputs may be of the result's shape: they are summed.
using GradientFunction = std::vector<NDArray> (*)(const GradientCall& call);

// For an operator of one's own whose row says kComposed. Always true. Throws kInvalidArgument for other rows and where
// there is one. Any thread; never taken back.
bool AddGradient(OpCode op, GradientFunction function);

}  // namespace tidepool

#endif  // TIDEPOOL_NDARRAY_OPS_GRADIENTS_H_
