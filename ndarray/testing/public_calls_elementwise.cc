#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/bitwise.h"
#include "tidepool/ndarray/ops/comparison.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/elementwise_chain.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/public_calls.h"

namespace tidepool {
namespace {

using A = std::vector<NDArray>&;
using Unary = NDArray (*)(const NDArray&);
using UnaryInto = void (*)(const NDArray&, NDArray&);
using Binary = NDArray (*)(const NDArray&, const NDArray&);
using BinaryInto = void (*)(const NDArray&, const NDArray&, NDArray&);

const Shape m{2, 2};

// Both forms of a function of one array and of two.
void Append(std::vector<PublicCall>* calls, const char* op, Unary function, UnaryInto into,
            DType x = DType::kFloat32, DType z = DType::kFloat32) {
  calls->push_back({op, {{"X", m, x}}, [=](A a) { function(a[0]); }});
  calls->push_back({op, {{"X", m, x}, {"Z", m, z}}, [=](A a) { into(a[0], a[1]); }});
}
void Append(std::vector<PublicCall>* calls, const char* op, Binary function, BinaryInto into,
            DType x = DType::kFloat32, DType z = DType::kFloat32) {
  calls->push_back({op, {{"X", m, x}, {"Y", m, x}}, [=](A a) { function(a[0], a[1]); }});
  calls->push_back(
      {op, {{"X", m, x}, {"Y", m, x}, {"Z", m, z}}, [=](A a) { into(a[0], a[1], a[2]); }});
}
void AppendGradient(std::vector<PublicCall>* calls, const char* op, const char* first,
                    Binary function, BinaryInto into) {
  calls->push_back({op, {{first, m}, {"dZ", m}}, [=](A a) { function(a[0], a[1]); }});
  calls->push_back(
      {op, {{first, m}, {"dZ", m}, {"dX", m}}, [=](A a) { into(a[0], a[1], a[2]); }});
}

}  // namespace

void AppendElementwiseCalls(std::vector<PublicCall>* calls) {
  const DType f32 = DType::kFloat32, boolean = DType::kBool;
  calls->push_back({"elementwise_chain", {{"X", m}, {"Y", m}, {"W", m}}, [](A a) {
                      ElementwiseChain().Add(kChainY).Multiply(kChainW).Apply(a[0], &a[1], &a[2]);
                    }});
  calls->push_back({"elementwise_chain", {{"X", m}, {"Z", m}}, [](A a) {
                      ElementwiseChain().Relu().ApplyInto(a[0], nullptr, nullptr, a[1]);
                    }});
  Append(calls, "maximum", &Maximum, &MaximumInto);
  Append(calls, "minimum", &Minimum, &MinimumInto);
  Append(calls, "power", &Power, &PowerInto);
  Append(calls, "remainder", &Remainder, &RemainderInto);
  Append(calls, "fmod", &FMod, &FModInto);
  Append(calls, "floor_divide", &FloorDivide, &FloorDivideInto);
  Append(calls, "atan2", &Atan2, &Atan2Into);
  Append(calls, "hypot", &Hypot, &HypotInto);
  Append(calls, "copysign", &CopySign, &CopySignInto);
  const DType i32 = DType::kInt32;
  Append(calls, "bitwise_and", &BitwiseAnd, &BitwiseAndInto, i32, i32);
  Append(calls, "bitwise_or", &BitwiseOr, &BitwiseOrInto, i32, i32);
  Append(calls, "bitwise_xor", &BitwiseXor, &BitwiseXorInto, i32, i32);
  Append(calls, "shift_left", &ShiftLeft, &ShiftLeftInto, i32, i32);
  Append(calls, "shift_right", &ShiftRight, &ShiftRightInto, i32, i32);
  Append(calls, "equal", &Equal, &EqualInto, f32, boolean);
  Append(calls, "not_equal", &NotEqual, &NotEqualInto, f32, boolean);
  Append(calls, "less", &Less, &LessInto, f32, boolean);
  Append(calls, "less_equal", &LessEqual, &LessEqualInto, f32, boolean);
  Append(calls, "greater", &Greater, &GreaterInto, f32, boolean);
  Append(calls, "greater_equal", &GreaterEqual, &GreaterEqualInto, f32, boolean);
  Append(calls, "logical_and", &LogicalAnd, &LogicalAndInto, boolean, boolean);
  Append(calls, "logical_or", &LogicalOr, &LogicalOrInto, boolean, boolean);
  Append(calls, "logical_xor", &LogicalXor, &LogicalXorInto, boolean, boolean);
  Append(calls, "logical_not", &LogicalNot, &LogicalNotInto, boolean, boolean);
  Append(calls, "is_nan", &IsNan, &IsNanInto, f32, boolean);
  Append(calls, "is_inf", &IsInf, &IsInfInto, f32, boolean);
  Append(calls, "is_finite", &IsFinite, &IsFiniteInto, f32, boolean);
  calls->push_back({"where",
                    {{"condition", m, boolean}, {"X", m}, {"Y", m}},
                    [](A a) { Where(a[0], a[1], a[2]); }});
  calls->push_back({"where",
                    {{"condition", m, boolean}, {"X", m}, {"Y", m}, {"Z", m}},
                    [](A a) { WhereInto(a[0], a[1], a[2], a[3]); }});

  Append(calls, "negate", &Negate, &NegateInto);
  Append(calls, "abs", &Abs, &AbsInto);
  Append(calls, "sign", &Sign, &SignInto);
  Append(calls, "square", &Square, &SquareInto);
  Append(calls, "sqrt", &Sqrt, &SqrtInto);
  Append(calls, "rsqrt", &Rsqrt, &RsqrtInto);
  Append(calls, "reciprocal", &Reciprocal, &ReciprocalInto);
  Append(calls, "exp", &Exp, &ExpInto);
  Append(calls, "expm1", &Expm1, &Expm1Into);
  Append(calls, "log", &Log, &LogInto);
  Append(calls, "log1p", &Log1p, &Log1pInto);
  Append(calls, "sin", &Sin, &SinInto);
  Append(calls, "cos", &Cos, &CosInto);
  Append(calls, "tanh", &Tanh, &TanhInto);
  Append(calls, "sigmoid", &Sigmoid, &SigmoidInto);
  Append(calls, "erf", &Erf, &ErfInto);
  Append(calls, "floor", &Floor, &FloorInto);
  Append(calls, "ceil", &Ceil, &CeilInto);
  Append(calls, "round", &Round, &RoundInto);
  Append(calls, "tan", &Tan, &TanInto);
  Append(calls, "asin", &Asin, &AsinInto);
  Append(calls, "acos", &Acos, &AcosInto);
  Append(calls, "atan", &Atan, &AtanInto);
  Append(calls, "sinh", &Sinh, &SinhInto);
  Append(calls, "cosh", &Cosh, &CoshInto);
  Append(calls, "asinh", &Asinh, &AsinhInto);
  Append(calls, "acosh", &Acosh, &AcoshInto);
  Append(calls, "atanh", &Atanh, &AtanhInto);
  Append(calls, "log2", &Log2, &Log2Into);
  Append(calls, "log10", &Log10, &Log10Into);
  Append(calls, "exp2", &Exp2, &Exp2Into);
  Append(calls, "cbrt", &Cbrt, &CbrtInto);
  Append(calls, "trunc", &Trunc, &TruncInto);
  Append(calls, "softplus", &Softplus, &SoftplusInto);
  Append(calls, "swish", &Swish, &SwishInto);
  calls->push_back({"clip", {{"X", m}}, [](A a) { Clip(a[0], 0, 1); }});
  calls->push_back({"clip", {{"X", m}, {"Z", m}}, [](A a) { ClipInto(a[0], 0, 1, a[1]); }});
  calls->push_back({"leaky_relu", {{"X", m}}, [](A a) { LeakyRelu(a[0]); }});
  calls->push_back(
      {"leaky_relu", {{"X", m}, {"Z", m}}, [](A a) { LeakyReluInto(a[0], 0.1, a[1]); }});
  calls->push_back({"elu", {{"X", m}}, [](A a) { Elu(a[0]); }});
  calls->push_back({"elu", {{"X", m}, {"Z", m}}, [](A a) { EluInto(a[0], 1, a[1]); }});
  calls->push_back({"gelu", {{"X", m}}, [](A a) { Gelu(a[0]); }});
  calls->push_back(
      {"gelu", {{"X", m}, {"Z", m}}, [](A a) { GeluInto(a[0], GeluForm::kTanh, a[1]); }});

  AppendGradient(calls, "sigmoid_grad", "Z", &SigmoidGrad, &SigmoidGradInto);
  AppendGradient(calls, "tanh_grad", "Z", &TanhGrad, &TanhGradInto);
  AppendGradient(calls, "swish_grad", "X", &SwishGrad, &SwishGradInto);
  AppendGradient(calls, "softplus_grad", "X", &SoftplusGrad, &SoftplusGradInto);
  calls->push_back({"leaky_relu_grad",
                    {{"X", m}, {"dZ", m}, {"dX", m}},
                    [](A a) { LeakyReluGradInto(a[0], a[1], 0.1, a[2]); }});
  calls->push_back({"elu_grad",
                    {{"X", m}, {"dZ", m}, {"dX", m}},
                    [](A a) { EluGradInto(a[0], a[1], 1, a[2]); }});
  calls->push_back({"gelu_grad",
                    {{"X", m}, {"dZ", m}, {"dX", m}},
                    [](A a) { GeluGradInto(a[0], a[1], GeluForm::kErf, a[2]); }});
}

}  // namespace tidepool
