#include "tidepool/ndarray/ops/updaters.h"

#include <initializer_list>

#include "tidepool/ndarray/capture/step_capture.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/update_numbers.h"
#include "tidepool/ndarray/ops/checks.h"

namespace tidepool {
namespace {

void Update(OpCode op, const NDArray& gradient, absl::Span<NDArray* const> outputs,
            AttributesRef attributes, const NDArray* numbers) {
  const char* const op_name = Info(op).name;
  CheckOperands(op, {&gradient, numbers});
  if (gradient.dtype() != DType::kFloat64)
    CheckDType(op_name, "gradient", gradient, DType::kFloat32);
  int index = 0;
  for (const NDArray* output : outputs) {
    const std::string name = OperandName(Info(op).outputs, index++);
    output->CheckAlive(op_name, name.c_str());
    CheckShape(op_name, name.c_str(), *output, gradient.shape());
    CheckDType(op_name, name.c_str(), *output, gradient.dtype());
  }
  if (numbers != nullptr) {
    CheckShape(op_name, "numbers", *numbers, {kUpdateNumbers});
    CheckDType(op_name, "numbers", *numbers, gradient.dtype());
  }
  Dispatch(op, {&gradient, numbers}, outputs, attributes);
}

}  // namespace

void SgdUpdate(const NDArray& gradient, NDArray& parameters, const SgdAttributes& attributes,
               const NDArray* numbers) {
  Update(OpCode::kSgdUpdate, gradient, {&parameters}, &attributes, numbers);
}

void NesterovsUpdate(const NDArray& gradient, NDArray& parameters, NDArray& velocity,
                     const NesterovsAttributes& attributes, const NDArray* numbers) {
  Update(OpCode::kNesterovsUpdate, gradient, {&parameters, &velocity}, &attributes, numbers);
}

void AdaGradUpdate(const NDArray& gradient, NDArray& parameters, NDArray& sum,
                   const AdaGradAttributes& attributes, const NDArray* numbers) {
  Update(OpCode::kAdaGradUpdate, gradient, {&parameters, &sum}, &attributes, numbers);
}

void RmsPropUpdate(const NDArray& gradient, NDArray& parameters, NDArray& mean_square,
                   const RmsPropAttributes& attributes, const NDArray* numbers) {
  Update(OpCode::kRmsPropUpdate, gradient, {&parameters, &mean_square}, &attributes, numbers);
}

void AdamUpdate(const NDArray& gradient, NDArray& parameters, NDArray& first_moment,
                NDArray& second_moment, const AdamAttributes& attributes, const NDArray* numbers) {
  if (numbers == nullptr) {
    RefuseWhileCapturing("adam_update",
                         "its step number would be the same in each replay; give it "
                         "the array of numbers");
  }
  Update(OpCode::kAdamUpdate, gradient, {&parameters, &first_moment, &second_moment}, &attributes,
         numbers);
}

}  // namespace tidepool
