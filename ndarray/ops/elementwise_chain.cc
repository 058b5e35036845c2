#include "tidepool/ndarray/ops/elementwise_chain.h"

#include "absl/strings/str_cat.h"
#include "tidepool/memory/error.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/ops/checks.h"
#include "tidepool/ndarray/ops/nn_checks.h"

namespace tidepool {
namespace {

constexpr OpCode kOp = OpCode::kElementwiseChain;
constexpr char kName[] = "elementwise_chain";

}  // namespace

ElementwiseChain& ElementwiseChain::Take(const ChainStep& step) {
  if (program_.count == kMaxChainSteps) {
    ThrowInvalidArgument(absl::StrCat("Op [", kName, "]: step ", Info(step.op).name,
                                      " would be number ", kMaxChainSteps + 1,
                                      "; a chain has at most ", kMaxChainSteps));
  }
  program_.steps[program_.count++] = step;
  return *this;
}

ElementwiseChain& ElementwiseChain::Clip(double low, double high) {
  if (!(low <= high)) {
    ThrowInvalidArgument(
        absl::StrCat("Op [", kName, "]: clip to [", low, ", ", high, "]; expected low <= high"));
  }
  return Take({OpCode::kClip, 0, false, low, high});
}

Shape ElementwiseChain::ResultShape(const NDArray& x, const NDArray* y, const NDArray* w) const {
  CheckOperands(kOp, {&x, y, w});
  if (program_.count == 0) {
    ThrowInvalidArgument(absl::StrCat("Op [", kName, "]: the chain is empty, expected a step"));
  }
  CheckFloating(kName, "X", x);
  bool uses[] = {true, false, false};
  for (int i = 0; i < program_.count; ++i) uses[program_.steps[i].operand] = true;
  if (uses[kChainW] && !uses[kChainY]) {
    ThrowInvalidArgument(absl::StrCat("Op [", kName,
                                      "]: W is used by a step and Y is not; expected "
                                      "one operand to be Y"));
  }
  Shape shape = x.shape();
  const NDArray* const operands[] = {nullptr, y, w};
  for (const int operand : {kChainY, kChainW}) {
    const char* const name = operand == kChainY ? "Y" : "W";
    const bool is_used = uses[operand];
    if (is_used != (operands[operand] != nullptr)) {
      ThrowInvalidArgument(absl::StrCat(
          "Op [", kName, "]: ", name,
          is_used ? " is used by a step and was not given" : " was given and no step uses it"));
    }
    if (!is_used) continue;
    CheckDType(kName, name, *operands[operand], x.dtype());
    shape = BroadcastShapes(kName, shape, operands[operand]->shape());
  }
  return shape;
}

NDArray ElementwiseChain::Apply(const NDArray& x, const NDArray* y, const NDArray* w) const {
  const Shape shape = ResultShape(x, y, w);
  NDArray z(shape, x.dtype(), ResultPlace(kOp, {&x, y, w}));
  Dispatch(kOp, {&x, y, w}, {&z}, &program_);
  return z;
}

void ElementwiseChain::ApplyInto(const NDArray& x, const NDArray* y, const NDArray* w,
                                 NDArray& z) const {
  const Shape shape = ResultShape(x, y, w);
  z.CheckAlive(kName, "Z");
  CheckDType(kName, "Z", z, x.dtype());
  CheckShape(kName, "Z", z, shape);
  Dispatch(kOp, {&x, y, w}, {&z}, &program_);
}

}  // namespace tidepool
