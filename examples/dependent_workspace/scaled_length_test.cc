// An operator that Tidepool does not have, with the contract that Tidepool's own have.
#include "scaled_length.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/dispatch.h"
#include "tidepool/ndarray/kernel/attributes.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/testing/op_contract_suite.h"
#include "tidepool/ndarray/testing/own_operator.h"

using namespace tidepool;

namespace {

const bool cases = AddOpCases(
    ScaledLengthOp(),
    [](CaseValues& values, OpCase& c) {
      const Shape shape = values.AnyShape(0, 4);
      c.inputs = {values.Floats(shape, false, c.dtype), values.Floats(shape, false, c.dtype)};
      c.outputs = {values.Floats(shape, false, c.dtype)};
      c.attributes = ScaledLengthAttributes{values.Real(1, 2)};
    },
    {Comparison::kClose, 2.5e-7, 0});
const bool contract =
    RegisterOpContract({.provider = "scaled_length_again", .only = {"scaled_length f32"}});

// A second provider of it, here of other arithmetic.
void RunAgain(const KernelCall& call) {
  for (int64_t i = 0; i < call.outputs[0].NumElements(); ++i) {
    const double x = call.inputs[0].as<float>()[i], y = call.inputs[1].as<float>()[i];
    call.outputs[0].as<float>()[i] =
        static_cast<float>(std::sqrt(x * x + y * y) * call.attrs<ScaledLengthAttributes>().scale);
  }
}
const KernelRegistrar registrar({
    {ScaledLengthOp(), DeviceType::kHost, DType::kFloat32, "scaled_length_again", 10, &RunAgain},
});

TEST(ScaledLength, RunsInAWorkspaceOnViewsOfAnyStrides) {
  Workspace workspace("scaled_length", WorkspaceConfig::Training());
  for (int cycle = 0; cycle < 3; ++cycle) {
    WorkspaceScope scope(workspace);
    const NDArray x = Full({2, 3}, 3), y = Full({3, 2}, 4);
    EXPECT_EQ(ScaledLength(x.Transpose(), y, 2).ToVector<float>(), std::vector<float>(6, 10));
    EXPECT_EQ(ScaledLength(Full({2}, 3, DType::kFloat64), Full({2}, 4, DType::kFloat64))
                  .ToVector<double>(),
              std::vector<double>(2, 5));
  }
  EXPECT_EQ(workspace.stats().misses, 0u);
}

TEST(ScaledLength, AttributesOfAnotherOperatorAreRefused) {
  const NDArray x = Ones({2});
  NDArray z = Ones({2});
  const MatMulAttributes wrong;
  EXPECT_EQ(CatchStatus([&] {
              Dispatch(ScaledLengthOp(), {&x, &x}, {&z}, &wrong);
            }).message(),
            "Op [scaled_length]: found attributes tidepool::MatMulAttributes, expected "
            "ScaledLengthAttributes");
}

}  // namespace
