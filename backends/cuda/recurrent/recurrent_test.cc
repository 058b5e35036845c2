#include "gtest/gtest.h"
#include "tidepool/backends/cuda/testing/kernel_check.h"

namespace tidepool::cuda {
namespace {

class Recurrent : public CudaKernelTest {};

TEST_F(Recurrent, RandomCasesOfLstmCells) {
  CheckRandomCases(OpCode::kLstmCell, 40);
  CheckRandomCases(OpCode::kLstmCellGrad, 40);
}
TEST_F(Recurrent, RandomCasesOfGruCells) {
  CheckRandomCases(OpCode::kGruCell, 40);
  CheckRandomCases(OpCode::kGruCellGrad, 40);
}

TEST_F(Recurrent, StatesAroundBlocks) {
  for (const int64_t hidden : {1, 85, 256, 257}) {
    const DType f32 = DType::kFloat32;
    OpCase c{OpCode::kLstmCell,
             f32,
             {RandomOperand(f32, {3, 4 * hidden}, 1), RandomOperand(f32, {3, hidden}, 2)},
             {ResultOperand(f32, {3, hidden}), ResultOperand(f32, {3, hidden}),
              ResultOperand(f32, {3, 4 * hidden})},
             {},
             2};
    CheckCase(c);
  }
}

// Gates far out, where the exponential overflows.
TEST_F(Recurrent, SaturatedGates) {
  const DType f32 = DType::kFloat32;
  OpCase c{
      OpCode::kGruCell,
      f32,
      {RandomOperand(f32, {2, 9}, 1), RandomOperand(f32, {2, 9}, 2), RandomOperand(f32, {2, 3}, 3)},
      {ResultOperand(f32, {2, 3}), ResultOperand(f32, {2, 9})},
      {},
      2};
  for (double& gate : c.inputs[0].reals) gate = gate > 0 ? 500 : -500;
  CheckCase(c);
}

}  // namespace
}  // namespace tidepool::cuda
