// Checks of a CUDA kernel against the reference backend's, without arrays and devices of the library:
// operands are copied to the current CUDA device, the registered kernel is called as the dispatcher
// would, results are compared within the tolerance of the operator list. For tests that run on
// devices and emulated alike.
//
// Layouts are drawn: for kernels that take strides, permuted, reversed and stretched axes. What lies
// between the elements must stay as it was. Every call is made twice, the second time with the
// emulated threads in another order, and must give the same bits; where the operator may work in
// place it is also called so.
#ifndef TIDEPOOL_BACKENDS_CUDA_TESTING_KERNEL_CHECK_H_
#define TIDEPOOL_BACKENDS_CUDA_TESTING_KERNEL_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/dtype.h"
#include "tidepool/ndarray/kernel/op_code.h"
#include "tidepool/ndarray/testing/op_case.h"

namespace tidepool::cuda {

// Why the kernel of the provider "cuda" is wrong; empty when it is right.
std::string KernelProblem(const OpCase& c, uint64_t layout_seed);

// Random cases of the contract suite's generator, for each type of the operator; failures are
// reported with seed and case.
void CheckRandomCases(OpCode op, int cases_per_type);

// Uniform in [-1, 1], or integers within 100, from a seed.
OperandValues RandomOperand(DType dtype, const Shape& shape, uint64_t seed);
// A result: nothing that a kernel may read.
OperandValues ResultOperand(DType dtype, const Shape& shape);
// Reports a failure with the case's shapes.
void CheckCase(const OpCase& c);

// Skips its cases where there is no device.
class CudaKernelTest : public testing::Test {
 protected:
  void SetUp() override;
};

}  // namespace tidepool::cuda

#endif  // TIDEPOOL_BACKENDS_CUDA_TESTING_KERNEL_CHECK_H_
