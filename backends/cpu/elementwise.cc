// Registers every elementwise operator: its loop, what its operands are, what an element costs.
#include <cmath>
#include <cstdint>

#include "tidepool/backends/cpu/pointwise.h"
#include "tidepool/backends/cpu/pointwise_loops.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/attributes_elementwise.h"
#include "tidepool/ndarray/kernel/registry.h"

namespace tidepool::cpu {
namespace {

constexpr int kPriority = 10;

PointwiseOp operators[kOpCodes][kDTypes];

// The call's operator and type, of its result unless the list keys it by its input.
void Run(const KernelCall& call) {
  const DType dtype = Info(call.op).key_is_input() ? call.inputs[0].dtype : call.outputs[0].dtype;
  RunPointwise(call, operators[static_cast<int>(call.op)][static_cast<int>(dtype)]);
}

void Register(OpCode op, DType dtype, const PointwiseOp& pointwise) {
  operators[static_cast<int>(op)][static_cast<int>(dtype)] = pointwise;
  KernelRegistry::Global().Add({op, DeviceType::kHost, dtype, "cpu", kPriority, &Run, nullptr,
                                nullptr, /*strided=*/true});
}

LoopType LoopTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64: return kLoopF64;
    case DType::kInt8: return kLoopI8;
    case DType::kUInt8:
    case DType::kBool: return kLoopU8;
    case DType::kInt32: return kLoopI32;
    case DType::kInt64: return kLoopI64;
    default: return kLoopF32;  // 16-bit floats are converted
  }
}

PointwiseLoop Converter(DType from, DType to) {
  return ThisMachine().conversions->convert[static_cast<int>(from)][static_cast<int>(to)];
}

bool Is16Bit(DType dtype) { return dtype == DType::kFloat16 || dtype == DType::kBFloat16; }

PointwiseOperand InputOf(DType dtype) {
  return {static_cast<int>(DTypeBytes(dtype)),
          Is16Bit(dtype) ? Converter(dtype, DType::kFloat32) : nullptr};
}

PointwiseOperand OutputOf(DType dtype) {
  return {static_cast<int>(DTypeBytes(dtype)),
          Is16Bit(dtype) ? Converter(DType::kFloat32, dtype) : nullptr};
}

}  // namespace

void RegisterPointwise(OpCode op, const PointwiseLoop* loops, int inputs, int work,
                       ReadPointwiseAttributes read_attributes, bool to_bool) {
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (!Contains(Info(op).types, dtype)) continue;
    PointwiseOp pointwise;
    pointwise.loop = loops[LoopTypeOf(dtype)];
    pointwise.inputs = inputs;
    for (int input = 0; input < inputs; ++input) pointwise.in[input] = InputOf(dtype);
    pointwise.out = OutputOf(to_bool ? DType::kBool : dtype);
    pointwise.read_attributes = read_attributes;
    pointwise.work = work;
    pointwise.converts = Is16Bit(dtype);
    Register(op, dtype, pointwise);
  }
}

namespace {

void ReadClip(const KernelCall& call, LoopParameters* p) {
  const auto& a = call.attrs<ClipAttributes>();
  const DType dtype = call.outputs[0].dtype;
  for (int i = 0; i < 2; ++i) {
    VisitDType(dtype, [&](auto t) {
      const auto bound = ClipBound<decltype(t)>(i == 0 ? a.low : a.high);
      p->reals[i] = ConvertElement<double>(bound);
      p->wholes[i] = ConvertElement<int64_t>(bound);
    });
  }
}

void ReadScaleShift(const KernelCall& call, LoopParameters* p) {
  const auto& a = call.attrs<ScaleShiftAttributes>();
  p->reals[0] = a.scale;
  p->reals[1] = a.shift;
  auto is_whole = [](double value) {
    return value >= -0x1p63 && value < 0x1p63 && value == std::trunc(value);
  };
  p->use_wholes = is_whole(a.scale) && is_whole(a.shift);
  if (!p->use_wholes) return;
  p->wholes[0] = static_cast<int64_t>(a.scale);
  p->wholes[1] = static_cast<int64_t>(a.shift);
}

void ReadAlpha(const KernelCall& call, LoopParameters* p) {
  p->reals[0] = call.attrs<AlphaAttributes>().alpha;
}

void ReadGelu(const KernelCall& call, LoopParameters* p) {
  p->tanh_form = call.attrs<GeluAttributes>().tanh_form;
}

void RegisterLogic(OpCode op, PointwiseLoop loop, int inputs) {
  const PointwiseOperand boolean = {1, nullptr};
  Register(op, DType::kBool, {loop, inputs, {boolean, boolean}, boolean});
}

void RegisterWhere(const ArithmeticLoops& loops) {
  for (int i = 0; i < kDTypes; ++i) {
    const int bytes = static_cast<int>(DTypeBytes(static_cast<DType>(i)));
    PointwiseOp where;
    where.loop = loops.Where[bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3];
    where.inputs = 3;
    where.in[0] = {1, nullptr};
    where.in[1] = where.in[2] = where.out = {bytes, nullptr};
    Register(OpCode::kWhere, static_cast<DType>(i), where);
  }
}

// Copy converts to any type: its results are not those of the kernel's type.
void RunCopy(const KernelCall& call) {
  const DType from = call.inputs[0].dtype, to = call.outputs[0].dtype;
  PointwiseOp copy;
  copy.loop = Converter(from, to);
  copy.inputs = 1;
  copy.in[0] = {static_cast<int>(DTypeBytes(from)), nullptr};
  copy.out = {static_cast<int>(DTypeBytes(to)), nullptr};
  RunPointwise(call, copy);
}

void RegisterCopy() {
  for (int i = 0; i < kDTypes; ++i) {
    KernelRegistry::Global().Add({OpCode::kCopy, DeviceType::kHost, static_cast<DType>(i), "cpu",
                                  kPriority, &RunCopy, nullptr, nullptr, /*strided=*/true});
  }
}

bool RegisterAll() {
  const ArithmeticLoops& a = *ThisMachine().arithmetic;
  const FunctionLoops& f = *ThisMachine().functions;
#define TIDEPOOL_REGISTER(loops, Name, ...) RegisterPointwise(OpCode::k##Name, loops.Name, __VA_ARGS__)
  TIDEPOOL_REGISTER(a, Add, 2, 1);
  TIDEPOOL_REGISTER(a, Subtract, 2, 1);
  TIDEPOOL_REGISTER(a, Multiply, 2, 1);
  TIDEPOOL_REGISTER(a, Divide, 2, 2);
  TIDEPOOL_REGISTER(a, Maximum, 2, 1);
  TIDEPOOL_REGISTER(a, Minimum, 2, 1);
  TIDEPOOL_REGISTER(a, Power, 2, 16);
  TIDEPOOL_REGISTER(a, Remainder, 2, 8);
  TIDEPOOL_REGISTER(a, ScaleShift, 1, 1, &ReadScaleShift);
  TIDEPOOL_REGISTER(a, Negate, 1, 1);
  TIDEPOOL_REGISTER(a, Abs, 1, 1);
  TIDEPOOL_REGISTER(a, Sign, 1, 1);
  TIDEPOOL_REGISTER(a, Square, 1, 1);
  TIDEPOOL_REGISTER(a, Clip, 1, 1, &ReadClip);
#define TIDEPOOL_REGISTER_COMPARISON(Name) TIDEPOOL_REGISTER(a, Name, 2, 1, nullptr, true);
  TIDEPOOL_CPU_COMPARISONS(TIDEPOOL_REGISTER_COMPARISON)
#undef TIDEPOOL_REGISTER_COMPARISON
#define TIDEPOOL_REGISTER_LOGIC(Name) \
  RegisterLogic(OpCode::k##Name, a.Name, OpCode::k##Name == OpCode::kLogicalNot ? 1 : 2);
  TIDEPOOL_CPU_LOGIC(TIDEPOOL_REGISTER_LOGIC)
#undef TIDEPOOL_REGISTER_LOGIC
  TIDEPOOL_REGISTER(f, IsNan, 1, 1, nullptr, true);
  TIDEPOOL_REGISTER(f, IsFinite, 1, 1, nullptr, true);
  TIDEPOOL_REGISTER(f, Sqrt, 1, 2);
  TIDEPOOL_REGISTER(f, Rsqrt, 1, 3);
  TIDEPOOL_REGISTER(f, Reciprocal, 1, 2);
  TIDEPOOL_REGISTER(f, Exp, 1, 5);
  TIDEPOOL_REGISTER(f, Expm1, 1, 10);
  TIDEPOOL_REGISTER(f, Log, 1, 5);
  TIDEPOOL_REGISTER(f, Log1p, 1, 6);
  TIDEPOOL_REGISTER(f, Sin, 1, 12);
  TIDEPOOL_REGISTER(f, Cos, 1, 12);
  TIDEPOOL_REGISTER(f, Tanh, 1, 10);
  TIDEPOOL_REGISTER(f, Sigmoid, 1, 8);
  TIDEPOOL_REGISTER(f, Erf, 1, 10);
  TIDEPOOL_REGISTER(f, Floor, 1, 1);
  TIDEPOOL_REGISTER(f, Ceil, 1, 1);
  TIDEPOOL_REGISTER(f, Round, 1, 1);
  TIDEPOOL_REGISTER(f, Softplus, 1, 16);
  TIDEPOOL_REGISTER(f, Relu, 1, 1);
  TIDEPOOL_REGISTER(f, LeakyRelu, 1, 1, &ReadAlpha);
  TIDEPOOL_REGISTER(f, Elu, 1, 10, &ReadAlpha);
  TIDEPOOL_REGISTER(f, Gelu, 1, 16, &ReadGelu);
  TIDEPOOL_REGISTER(f, Swish, 1, 8);
  TIDEPOOL_REGISTER(f, ReluGrad, 2, 1);
  TIDEPOOL_REGISTER(f, SigmoidGrad, 2, 1);
  TIDEPOOL_REGISTER(f, TanhGrad, 2, 1);
  TIDEPOOL_REGISTER(f, LeakyReluGrad, 2, 1, &ReadAlpha);
  TIDEPOOL_REGISTER(f, EluGrad, 2, 6, &ReadAlpha);
  TIDEPOOL_REGISTER(f, GeluGrad, 2, 16, &ReadGelu);
  TIDEPOOL_REGISTER(f, SwishGrad, 2, 10);
  TIDEPOOL_REGISTER(f, SoftplusGrad, 2, 8);
#undef TIDEPOOL_REGISTER
  RegisterWhere(a);
  RegisterCopy();
  return true;
}

const bool registered = RegisterAll();

}  // namespace
}  // namespace tidepool::cpu
