#include "tidepool/nn/layers/step_products.h"

#include <cstring>
#include <string>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel_scopes.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"

namespace tidepool::nn {
namespace {

std::string BitsOf(const NDArray& array) {
  return std::string(reinterpret_cast<const char*>(array.raw_data()),
                     static_cast<size_t>(array.NumElements()) * DTypeBytes(array.dtype()));
}

// Of one row, of few and of many, of weights as they lie and turned: kernels add up in several ways among these. A dry run of the same
// sizes comes first, and what is found out in it holds for the step behind it.
TEST(StepProducts, HaveTheBitsOfEachStepByItself) {
  constexpr int64_t kSteps = 9, kInner = 37, kColumns = 64;
  for (const DType dtype : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    for (const int64_t batch : {1, 2, 5, 8, 32, 100}) {
      for (const bool transposed : {false, true}) {
        for (const bool accumulates : {false, true}) {
          SCOPED_TRACE(std::string(DTypeName(dtype)) + " of " + std::to_string(batch) +
                       (transposed ? " transposed" : "") + (accumulates ? " accumulates" : ""));
          const NDArray x = RandomUniform({kSteps, batch, kInner}, -1, 1, dtype, 11),
                        y = RandomUniform(
                            transposed ? Shape{kColumns, kInner} : Shape{kInner, kColumns}, -1, 1,
                            dtype, 12),
                        bias = RandomUniform({kColumns}, -1, 1, dtype, 13);
          const NDArray* const added = accumulates ? nullptr : &bias;
          const MatMulAttributes attributes{.transpose_y = transposed, .accumulate = accumulates};
          NDArray expected = RandomUniform({kSteps, batch, kColumns}, -1, 1, dtype, 14);
          NDArray found = expected.Dup();
          for (int64_t i = 0; i < kSteps; ++i) {
            NDArray at = expected.Index(0, i);
            MatMulInto(x.Index(0, i), y, at, attributes, added);
          }
          {
            const KernelsOffScope dry;
            NDArray nothing = found.Dup();
            MultiplySteps(x, y, nothing, attributes, added);
          }
          MultiplySteps(x, y, found, attributes, added);
          EXPECT_EQ(BitsOf(found), BitsOf(expected));
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidepool::nn
