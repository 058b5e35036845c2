#include "scaled_length.h"

#include <cmath>

#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/registry.h"

using tidepool::DeviceType;
using tidepool::DType;
using tidepool::KernelCall;
using tidepool::NDArray;
using tidepool::OpCode;

namespace {

// Dispatch has made the operands dense and checked that the attributes are ScaledLengthAttributes.
template <typename T>
void Run(const KernelCall& call) {
  const T* const x = call.inputs[0].as<T>();
  const T* const y = call.inputs[1].as<T>();
  T* const z = call.outputs[0].as<T>();
  const double scale = call.attrs<ScaledLengthAttributes>().scale;
  for (int64_t i = 0; i < call.outputs[0].NumElements(); ++i) {
    z[i] = static_cast<T>(std::hypot(static_cast<double>(x[i]), static_cast<double>(y[i])) * scale);
  }
}

// What every other provider is compared with, and what runs where no other one is linked.
const tidepool::KernelRegistrar registrar({
    {ScaledLengthOp(), DeviceType::kHost, DType::kFloat32, "reference", 0, &Run<float>},
    {ScaledLengthOp(), DeviceType::kHost, DType::kFloat64, "reference", 0, &Run<double>},
});

}  // namespace

OpCode ScaledLengthOp() {
  static const OpCode op = tidepool::AddOperator(
      {.name = "scaled_length",
       .inputs = "X,Y",
       .outputs = "Z",
       .attributes = tidepool::AttributesType::Of<ScaledLengthAttributes>(),
       .flags = tidepool::operator_list::kInPlace,
       .types = static_cast<tidepool::DTypeSet>(SetOf(DType::kFloat32) | SetOf(DType::kFloat64)),
       .shape = tidepool::ShapeRule::kLikeFirst,
       .cost = tidepool::operator_list::Each(13)});
  return op;
}

NDArray ScaledLength(const NDArray& x, const NDArray& y, double scale) {
  tidepool::CheckOperands(ScaledLengthOp(), {&x, &y});
  if (!(x.shape() == y.shape()) || x.dtype() != y.dtype()) {
    tidepool::ThrowInvalidArgument("Op [scaled_length]: X and Y differ in shape or type");
  }
  NDArray z(x.shape(), x.dtype(), tidepool::ResultPlace(ScaledLengthOp(), {&x, &y}));
  const ScaledLengthAttributes attributes{scale};
  Dispatch(ScaledLengthOp(), {&x, &y}, {&z}, &attributes);
  return z;
}
