// Transcendental functions, and activations made of them.
#include "tidepool/backends/cuda/elementwise/activation_functions.h"
#include "tidepool/backends/cuda/elementwise/register.h"
#include "tidepool/backends/cuda/framework/math.h"

namespace tidepool::cuda {
namespace {

#define TIDEPOOL_FUNCTION(Name, expression)  \
  struct Name {                              \
    template <typename T>                    \
    __device__ T operator()(T x) const {     \
      return expression;                     \
    }                                        \
  };
TIDEPOOL_FUNCTION(ExpFunction, Exp(x))
TIDEPOOL_FUNCTION(Expm1Function, Expm1(x))
TIDEPOOL_FUNCTION(LogFunction, Log(x))
TIDEPOOL_FUNCTION(Log1pFunction, Log1p(x))
TIDEPOOL_FUNCTION(SinFunction, Sin(x))
TIDEPOOL_FUNCTION(CosFunction, Cos(x))
TIDEPOOL_FUNCTION(TanhFunction, Tanh(x))
TIDEPOOL_FUNCTION(ErfFunction, Erf(x))
TIDEPOOL_FUNCTION(SigmoidFunction, Sigmoid(x))
TIDEPOOL_FUNCTION(SoftplusFunction, (x > T(0) ? x : T(0)) + Log1p(Exp(-Fabs(x))))
TIDEPOOL_FUNCTION(SwishFunction, x * Sigmoid(x))
#undef TIDEPOOL_FUNCTION

const bool registered[] = {
    AddUnary<ExpFunction>(OpCode::kExp, FloatTypes()),
    AddUnary<Expm1Function>(OpCode::kExpm1, FloatTypes()),
    AddUnary<LogFunction>(OpCode::kLog, FloatTypes()),
    AddUnary<Log1pFunction>(OpCode::kLog1p, FloatTypes()),
    AddUnary<SinFunction>(OpCode::kSin, FloatTypes()),
    AddUnary<CosFunction>(OpCode::kCos, FloatTypes()),
    AddUnary<TanhFunction>(OpCode::kTanh, FloatTypes()),
    AddUnary<ErfFunction>(OpCode::kErf, FloatTypes()),
    AddUnary<SigmoidFunction>(OpCode::kSigmoid, FloatTypes()),
    AddUnary<SoftplusFunction>(OpCode::kSoftplus, FloatTypes()),
    AddUnary<SwishFunction>(OpCode::kSwish, FloatTypes()),
    AddUnary<LeakyReluFunction>(OpCode::kLeakyRelu, FloatTypes()),
    AddUnary<EluFunction>(OpCode::kElu, FloatTypes()),
    AddUnary<GeluFunction>(OpCode::kGelu, FloatTypes()),
};

}  // namespace
}  // namespace tidepool::cuda
