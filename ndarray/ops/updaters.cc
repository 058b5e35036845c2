#include "tidepool/ndarray/ops/updaters.h"

#include <initializer_list>

#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

void CheckUpdate(OpCode op, const NDArray& gradient, std::initializer_list<NDArray*> outputs) {
  CheckOperands(op, {&gradient});
  CheckDType(Info(op).name, "gradient", gradient, DType::kFloat32);
  int index = 0;
  for (const NDArray* output : outputs) {
    const std::string name = OperandName(Info(op).outputs, index++);
    output->CheckAlive(Info(op).name, name.c_str());
    CheckShape(Info(op).name, name.c_str(), *output, gradient.shape());
    CheckDType(Info(op).name, name.c_str(), *output, DType::kFloat32);
  }
}

}  // namespace

void SgdUpdate(const NDArray& gradient, NDArray& parameters, const SgdAttributes& attributes) {
  CheckUpdate(OpCode::kSgdUpdate, gradient, {&parameters});
  Dispatch(OpCode::kSgdUpdate, {&gradient}, {&parameters}, &attributes);
}

void NesterovsUpdate(const NDArray& gradient, NDArray& parameters, NDArray& velocity,
                     const NesterovsAttributes& attributes) {
  CheckUpdate(OpCode::kNesterovsUpdate, gradient, {&parameters, &velocity});
  Dispatch(OpCode::kNesterovsUpdate, {&gradient}, {&parameters, &velocity}, &attributes);
}

void AdamUpdate(const NDArray& gradient, NDArray& parameters, NDArray& first_moment,
                NDArray& second_moment, const AdamAttributes& attributes) {
  CheckUpdate(OpCode::kAdamUpdate, gradient, {&parameters, &first_moment, &second_moment});
  Dispatch(OpCode::kAdamUpdate, {&gradient}, {&parameters, &first_moment, &second_moment},
           &attributes);
}

}  // namespace tidepool
