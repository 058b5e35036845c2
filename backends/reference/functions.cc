// Functions of one operand, activations and the gradients that those have.
#include <cmath>

#include "tidepool/backends/reference/element_words.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"

namespace tidepool::reference {
namespace {

using namespace operator_list;  // NOLINT: the rows' words

struct ClipKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    const auto& a = call.attrs<ClipAttributes>();
    const T low = ClipBound<T>(a.low), high = ClipBound<T>(a.high);
    ForEachElement<T, T>(call, [&](T x) { return x < low ? low : x > high ? high : x; });
  }
};

// Formulas with a parameter, of (x) and of (x, gradient).
template <typename Formula>
struct AlphaKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    const Wide<T> alpha = call.attrs<AlphaAttributes>().alpha;
    ForEachElement<T, T>(call, [=](T x) { return Narrow<T>(Formula()(Wide<T>(x), alpha)); });
  }
};
template <typename Formula>
struct AlphaGradientKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    const Wide<T> alpha = call.attrs<AlphaAttributes>().alpha;
    ForEachElement<T, T, T>(
        call, [=](T x, T dz) { return Narrow<T>(Formula()(Wide<T>(x), Wide<T>(dz), alpha)); });
  }
};
struct GeluKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    call.attrs<GeluAttributes>().tanh_form ? RunFormula<GeluTanhFormula, T, T, T>(call)
                                           : RunFormula<GeluErfFormula, T, T, T>(call);
  }
};
struct GeluGradKernel {
  template <typename T>
  static void Run(const KernelCall& call) {
    call.attrs<GeluAttributes>().tanh_form ? RunFormula<GeluTanhGradFormula, T, T, T, T>(call)
                                           : RunFormula<GeluErfGradFormula, T, T, T, T>(call);
  }
};

const bool registered = [] {
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddFunction<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/functions.inc"
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, inputs, outputs, attributes, flags, types, ...) \
  AddFunctionOfTwo<Name##Formula, types>(OpCode::k##Name);
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
#undef TIDEPOOL_OPERATOR
  RegisterReference<ClipKernel>(OpCode::kClip, NumberTypes());
  RegisterReference<AlphaKernel<LeakyReluFormula>>(OpCode::kLeakyRelu, FloatTypes());
  RegisterReference<AlphaKernel<EluFormula>>(OpCode::kElu, FloatTypes());
  RegisterReference<GeluKernel>(OpCode::kGelu, FloatTypes());
  RegisterReference<AlphaGradientKernel<LeakyReluGradFormula>>(OpCode::kLeakyReluGrad,
                                                               FloatTypes());
  RegisterReference<AlphaGradientKernel<EluGradFormula>>(OpCode::kEluGrad, FloatTypes());
  RegisterReference<GeluGradKernel>(OpCode::kGeluGrad, FloatTypes());
  return true;
}();

}  // namespace
}  // namespace tidepool::reference
