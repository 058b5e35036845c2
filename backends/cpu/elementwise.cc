// Registers every elementwise operator: its loop and what its operands are. What an element costs its row says.
#include <algorithm>
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
  KernelRegistry::Global().Add(
      {op, DeviceType::kHost, dtype, "cpu", kPriority, &Run, nullptr, nullptr, /*strided=*/true});
}

LoopType LoopTypeOf(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return kLoopF64;
    case DType::kInt8:
      return kLoopI8;
    case DType::kUInt8:
    case DType::kBool:
      return kLoopU8;
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kInt32:
      return kLoopI32;
    case DType::kUInt32:
    case DType::kInt64:
      return kLoopI64;
    case DType::kUInt64:
      return kLoopU64;
    default:
      return kLoopF32;  // 16-bit floats are converted
  }
}

// What a type is computed in; integers wrap to the same bits.
DType ComputedIn(DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return DType::kFloat32;
    case DType::kInt16:
    case DType::kUInt16:
      return DType::kInt32;
    case DType::kUInt32:
      return DType::kInt64;
    default:
      return dtype;
  }
}
bool IsConverted(DType dtype) { return ComputedIn(dtype) != dtype; }

// An older type that is as wide, for moves.
DType SameWidth(DType dtype) {
  switch (dtype) {
    case DType::kInt16:
    case DType::kUInt16:
      return DType::kFloat16;
    case DType::kUInt32:
      return DType::kInt32;
    case DType::kUInt64:
      return DType::kInt64;
    default:
      return dtype;
  }
}

// Null where there is no loop for it.
PointwiseLoop Converter(DType from, DType to) {
  const ConversionLoops& loops = *ThisMachine().conversions;
  if (from == to) from = to = SameWidth(from);
  switch (from) {
    case DType::kInt16:
      return to == DType::kInt32 ? loops.i16_to_i32 : nullptr;
    case DType::kUInt16:
      return to == DType::kInt32 ? loops.u16_to_i32 : nullptr;
    case DType::kUInt32:
      return to == DType::kInt64 ? loops.u32_to_i64 : nullptr;
    case DType::kUInt64:
      if (to == DType::kFloat32) return loops.u64_to_f32;
      if (to == DType::kFloat64) return loops.u64_to_f64;
      if (to == DType::kFloat16) return loops.u64_to_f16;
      if (to == DType::kBFloat16) return loops.u64_to_bf16;
      from = DType::kInt64;  // the same bits
      break;
    default:
      break;
  }
  switch (to) {
    case DType::kInt16:
    case DType::kUInt16:
      return from == DType::kInt32 ? loops.i32_to_16_bits : nullptr;
    case DType::kUInt32:
      to = DType::kInt32;
      break;
    case DType::kUInt64:
      if (from == DType::kFloat32) return loops.f32_to_u64;
      if (from == DType::kFloat64) return loops.f64_to_u64;
      if (IsFloating(from)) return nullptr;
      to = DType::kInt64;
      break;
    default:
      break;
  }
  return loops.convert[static_cast<int>(from)][static_cast<int>(to)];
}

PointwiseOperand OperandOf(DType dtype, PointwiseLoop convert, DType converted) {
  return {static_cast<int>(DTypeBytes(dtype)), static_cast<int>(DTypeBytes(converted)), convert};
}

PointwiseOperand InputOf(DType dtype) {
  const DType number = ComputedIn(dtype);
  return OperandOf(dtype, number != dtype ? Converter(dtype, number) : nullptr, number);
}

PointwiseOperand OutputOf(DType dtype) {
  const DType number = ComputedIn(dtype);
  return OperandOf(dtype, number != dtype ? Converter(number, dtype) : nullptr, number);
}

using ReadPointwiseAttributes = void (*)(const KernelCall&, LoopParameters*);

// For all types of the row; inputs have the kernel's, and the result, unless it is bool. `loops`: by LoopType.
void RegisterPointwise(OpCode op, const PointwiseLoop* loops,
                       ReadPointwiseAttributes read_attributes = nullptr, bool to_bool = false) {
  const int inputs = Info(op).input_count;
  for (int i = 0; i < kDTypes; ++i) {
    const DType dtype = static_cast<DType>(i);
    if (!Contains(Info(op).types, dtype)) continue;
    PointwiseOp pointwise;
    pointwise.loop = loops[LoopTypeOf(dtype)];
    pointwise.inputs = inputs;
    for (int input = 0; input < inputs; ++input) pointwise.in[input] = InputOf(dtype);
    pointwise.out = OutputOf(to_bool ? DType::kBool : dtype);
    pointwise.read_attributes = read_attributes;
    pointwise.work = std::max(1, static_cast<int>(Info(op).cost.each_output));
    pointwise.converts = IsConverted(dtype);
    Register(op, dtype, pointwise);
  }
}

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

void RegisterLogic(OpCode op, PointwiseLoop loop) {
  const PointwiseOperand boolean = {1, 1};
  Register(op, DType::kBool, {loop, Info(op).input_count, {boolean, boolean}, boolean});
}

void RegisterWhere(const ArithmeticLoops& loops) {
  for (int i = 0; i < kDTypes; ++i) {
    const int bytes = static_cast<int>(DTypeBytes(static_cast<DType>(i)));
    PointwiseOp where;
    where.loop = loops.Where[bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3];
    where.inputs = 3;
    where.in[0] = {1, 1};
    where.in[1] = where.in[2] = where.out = {bytes, bytes};
    Register(OpCode::kWhere, static_cast<DType>(i), where);
  }
}

// Copy converts to any type: its results are not those of the kernel's type.
void RunCopy(const KernelCall& call) {
  const DType from = call.inputs[0].dtype, to = call.outputs[0].dtype;
  PointwiseOp copy;
  copy.loop = Converter(from, to);
  copy.inputs = 1;
  copy.in[0] = OperandOf(from, nullptr, from);
  copy.out = OperandOf(to, nullptr, to);
  if (copy.loop ==
      nullptr) {  // by way of the types that are computed in; to 16-bit floats rounded once
    const bool halves = IsFloating(to) && IsConverted(to);
    const DType middle = halves ? DType::kFloat64 : ComputedIn(to);
    copy.in[0] = InputOf(from);
    copy.out = halves ? OperandOf(to, Converter(middle, to), middle) : OutputOf(to);
    copy.loop = Converter(ComputedIn(from), middle);
    copy.converts = true;
  }
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
#define TIDEPOOL_OPERATOR(Name, ...) RegisterPointwise(OpCode::k##Name, a.Name);
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#include "tidepool/ndarray/kernel/operators/bits.inc"
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, ...) \
  RegisterPointwise(OpCode::k##Name, a.Name, nullptr, /*to_bool=*/true);
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, ...) RegisterLogic(OpCode::k##Name, a.Name);
#include "tidepool/ndarray/kernel/operators/logic.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, ...) \
  RegisterPointwise(OpCode::k##Name, f.Name, nullptr, /*to_bool=*/true);
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, ...) RegisterPointwise(OpCode::k##Name, f.Name);
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
#include "tidepool/ndarray/kernel/operators/functions.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
#undef TIDEPOOL_OPERATOR
  RegisterLogic(OpCode::kLogicalNot, a.LogicalNot);
  RegisterPointwise(OpCode::kScaleShift, a.ScaleShift, &ReadScaleShift);
  RegisterPointwise(OpCode::kClip, a.Clip, &ReadClip);
  RegisterPointwise(OpCode::kLeakyRelu, f.LeakyRelu, &ReadAlpha);
  RegisterPointwise(OpCode::kElu, f.Elu, &ReadAlpha);
  RegisterPointwise(OpCode::kGelu, f.Gelu, &ReadGelu);
  RegisterPointwise(OpCode::kLeakyReluGrad, f.LeakyReluGrad, &ReadAlpha);
  RegisterPointwise(OpCode::kEluGrad, f.EluGrad, &ReadAlpha);
  RegisterPointwise(OpCode::kGeluGrad, f.GeluGrad, &ReadGelu);
  RegisterWhere(a);
  RegisterCopy();
  return true;
}

const bool registered = RegisterAll();

}  // namespace
}  // namespace tidepool::cpu
