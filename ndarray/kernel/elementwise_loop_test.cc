#include "tidepool/ndarray/kernel/elementwise_loop.h"

#include <vector>

#include "gtest/gtest.h"

namespace tidepool {
namespace {

TEST(ForEachElement, TakesStridesAndBroadcasts) {
  const std::vector<int64_t> dims = {2, 3}, row = {3}, dense = {3, 1}, transposed = {1, 2},
                             one = {1}, gaps = {6, 2};
  double x[] = {1, 4, 2, 5, 3, 6}, y[] = {10, 20, 30};  // x is [[1, 2, 3], [4, 5, 6]]
  double z[12] = {};
  const TensorRef inputs[] = {{.data = x,
                               .dtype = DType::kFloat64,
                               .present = true,
                               .rank = 2,
                               .dims = dims.data(),
                               .strides = transposed.data()},
                              {.data = y,
                               .dtype = DType::kFloat64,
                               .present = true,
                               .rank = 1,
                               .dims = row.data(),
                               .strides = one.data()}};
  TensorRef output = {.data = z,
                      .dtype = DType::kFloat64,
                      .present = true,
                      .rank = 2,
                      .dims = dims.data(),
                      .strides = gaps.data()};
  const KernelCall call{
      .op = OpCode::kAdd, .inputs = inputs, .outputs = absl::MakeConstSpan(&output, 1)};
  ForEachElement<double, 2>(call, [](double a, double b, double& sum) { sum = a + b; });
  EXPECT_EQ(std::vector<double>(z, z + 12),
            (std::vector<double>{11, 0, 22, 0, 33, 0, 14, 0, 25, 0, 36, 0}));
  output.strides = dense.data();
  ForEachElement<double, 1>(call, [](double a, double& result) { result = -a; });
  EXPECT_EQ(std::vector<double>(z, z + 6), (std::vector<double>{-1, -2, -3, -4, -5, -6}));
  ForEachElement<double, 0>(call, [](double& result) { result = 7; });
  EXPECT_EQ(std::vector<double>(z, z + 6), std::vector<double>(6, 7));
}

}  // namespace
}  // namespace tidepool
