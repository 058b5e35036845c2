#include <deque>
#include <string>

#include "tidepool/ndarray/kernel/op_code.h"
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
// Operands by the names of the row.
void AppendOfTwo(std::vector<PublicCall>* calls, OpCode op, Binary function, BinaryInto into) {
  static auto* const names = new std::deque<std::string>;
  const auto name = [](const char* operands, int i) {
    return names->emplace_back(OperandName(operands, i)).c_str();
  };
  const OperatorInfo& info = Info(op);
  const Operand x{name(info.inputs, 0), m}, y{name(info.inputs, 1), m}, z{name(info.outputs, 0), m};
  calls->push_back({info.name, {x, y}, [=](A a) { function(a[0], a[1]); }});
  calls->push_back({info.name, {x, y, z}, [=](A a) { into(a[0], a[1], a[2]); }});
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
  // The families of the list: functions of the same names.
  const DType i32 = DType::kInt32;
#define TIDEPOOL_OPERATOR(Name, name, ...) Append(calls, name, &Name, &Name##Into);
#include "tidepool/ndarray/kernel/operators/arithmetic.inc"
#include "tidepool/ndarray/kernel/operators/functions.inc"
#include "tidepool/ndarray/kernel/operators/number_functions.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, inputs, ...) \
  AppendOfTwo(calls, OpCode::k##Name, &Name, &Name##Into);
#include "tidepool/ndarray/kernel/operators/function_gradients.inc"
#include "tidepool/ndarray/kernel/operators/real_arithmetic.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, ...) Append(calls, name, &Name, &Name##Into, i32, i32);
#include "tidepool/ndarray/kernel/operators/bits.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, ...) Append(calls, name, &Name, &Name##Into, f32, boolean);
#include "tidepool/ndarray/kernel/operators/classifiers.inc"
#include "tidepool/ndarray/kernel/operators/comparisons.inc"
#undef TIDEPOOL_OPERATOR
#define TIDEPOOL_OPERATOR(Name, name, ...) \
  Append(calls, name, &Name, &Name##Into, boolean, boolean);
#include "tidepool/ndarray/kernel/operators/logic.inc"
#undef TIDEPOOL_OPERATOR
  Append(calls, "logical_not", &LogicalNot, &LogicalNotInto, boolean, boolean);
  calls->push_back({"where", {{"condition", m, boolean}, {"X", m}, {"Y", m}}, [](A a) {
                      Where(a[0], a[1], a[2]);
                    }});
  calls->push_back({"where", {{"condition", m, boolean}, {"X", m}, {"Y", m}, {"Z", m}}, [](A a) {
                      WhereInto(a[0], a[1], a[2], a[3]);
                    }});

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

  calls->push_back({"leaky_relu_grad", {{"X", m}, {"dZ", m}, {"dX", m}}, [](A a) {
                      LeakyReluGradInto(a[0], a[1], 0.1, a[2]);
                    }});
  calls->push_back({"elu_grad", {{"X", m}, {"dZ", m}, {"dX", m}}, [](A a) {
                      EluGradInto(a[0], a[1], 1, a[2]);
                    }});
  calls->push_back({"gelu_grad", {{"X", m}, {"dZ", m}, {"dX", m}}, [](A a) {
                      GeluGradInto(a[0], a[1], GeluForm::kErf, a[2]);
                    }});
}

}  // namespace tidepool
