// Einsum and TensorDot: what is refused, gradients, memory. That values are NumPy's is for numpy_judge_test.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/einsum.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/matmul.h"
#include "tidepool/ndarray/ops/reduction.h"
#include "tidepool/ndarray/testing/gradient_check.h"

namespace tidepool {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kInvalidArgument) << error.message();
    return std::string(error.message());
  }
  return "nothing was thrown";
}

NDArray Numbers(const Shape& shape) { return Arange(0, shape.NumElements()).Reshape(shape); }
std::vector<float> Values(const NDArray& x) { return x.ToVector<float>(); }

// What `call` asks of a workspace.
size_t RequestedBytes(const std::function<void()>& call) {
  Workspace workspace("REQUESTED");
  for (int cycle = 0; cycle < 4; ++cycle) {
    WorkspaceScope scope(workspace);
    call();
  }
  EXPECT_GT(workspace.stats().requested_bytes, 0u);
  return workspace.stats().requested_bytes;
}

TEST(Einsum, Refusals) {
  const NDArray a = Ones({2, 3}), b = Ones({4, 3});
  EXPECT_EQ(Refusal([&] {
              Einsum("ij,jk->ik", {a, b});
            }),
            "Op [einsum]: operand 1 of shape [4, 3] has 4 for label j, expected 3 as before, or 1");
  EXPECT_EQ(Refusal([&] { Einsum("ij->ik", {a}); }),
            "Op [einsum]: label k of the result in \"ij->ik\" is of no operand");
  EXPECT_EQ(Refusal([&] { Einsum("ij->ii", {a}); }),
            "Op [einsum]: label i of the result in \"ij->ii\" comes twice");
  EXPECT_EQ(Refusal([&] { Einsum("ij,jk", {a}); }),
            "Op [einsum]: \"ij,jk\" is of 2 operands, but there are 1");
  EXPECT_EQ(Refusal([&] {
              Einsum("ij", {a, b});
            }),
            "Op [einsum]: \"ij\" is of 1 operands, but there are 2");
  EXPECT_EQ(Refusal([&] { Einsum("", {}); }),
            "Op [einsum]: \"\" is of 1 operands, but there are 0");
  EXPECT_EQ(
      Refusal([&] { Einsum("ijk", {a}); }),
      "Op [einsum]: operand 0 has shape [2, 3], its subscripts \"ijk\" in \"ijk\" are of rank 3");
  EXPECT_EQ(Refusal([&] { Einsum("i", {a}); }),
            "Op [einsum]: operand 0 has shape [2, 3], its subscripts \"i\" in \"i\" are of rank 1");
  for (const char* text : {"i1", "i.j", "......", "ij->i->j", "i-j"}) {
    EXPECT_THAT(Refusal([&] { Einsum(text, {a}); }),
                HasSubstr("expected letters, one \"...\" an operand"))
        << text;
  }
  EXPECT_THAT(Refusal([&] {
                Einsum("...,...", {a, b});
              }),
              HasSubstr("has 4 for axis -2 of the ellipsis, expected 2"));
  EXPECT_THAT(Refusal([&] {
                Einsum("ij->", {Ones({2, 2}, DType::kBool)});
              }),
              HasSubstr("operands are bool"));
  EXPECT_THAT(Refusal([&] {
                Einsum("abcd,efghi->abcdefghi", {Ones({1, 1, 1, 1}), Ones({1, 1, 1, 1, 1})});
              }),
              HasSubstr("a result of rank 9, expected at most 8"));
}

TEST(Einsum, OfProductsThatAreNone) {
  EXPECT_THAT(Values(Einsum("ij,jk->ik", {Ones({2, 0}), Ones({0, 2})})), ElementsAre(0, 0, 0, 0));
  EXPECT_EQ(Einsum("ij,jk->ik", {Ones({0, 3}), Ones({3, 2})}).shape(), (Shape{0, 2}));
  EXPECT_EQ(Einsum(",", {Full({}, 2), Full({}, 3)}).Item<float>(), 6);
  const NDArray x = Numbers({2, 2});
  NDArray z = Einsum("ij->ji", {x});
  z *= 0;
  EXPECT_THAT(Values(x), ElementsAre(0, 1, 2, 3)) << "results share nothing";
}

TEST(Einsum, Gradients) {
  NDArray a = RandomUniform({2, 3, 4}, -1, 1, 1), b = RandomUniform({4, 3, 5}, -1, 1, 2);
  const NDArray dz = RandomUniform({5, 2}, -1, 1, 3);
  const auto loss = [&] { return WeightedSum(Einsum("ijk,kjl->li", {a, b}), dz); };
  EXPECT_EQ(GradientProblem(loss, a, Einsum("li,kjl->ijk", {dz, b})), "");
  EXPECT_EQ(GradientProblem(loss, b, Einsum("li,ijk->kjl", {dz, a})), "");
}

// Matrices that lie as MatMul wants them, turned round or not, are not copied, and nothing is made but the result.
TEST(Einsum, ProductsOfMatricesTakeNoScratch) {
  const NDArray a = Ones({64, 64}), b = Ones({64, 64}), u = Ones({8, 32, 16}),
                v = Ones({8, 16, 32});
  const size_t matmul = RequestedBytes([&] { MatMul(a, b); });
  for (const char* text : {"ij,jk->ik", "ij,kj->ik", "ji,jk->ik", "ji,kj->ki", "ij,jk->ki"}) {
    const size_t einsum = RequestedBytes([&] { Einsum(text, {a, b}); });
    EXPECT_LE(einsum, matmul + 64) << text;
  }
  EXPECT_EQ(Einsum("bij,bjk->bik", {u, v}).shape(), (Shape{8, 32, 32}));
}

TEST(TensorDot, Refusals) {
  const NDArray a = Ones({2, 3}), b = Ones({3, 4});
  EXPECT_EQ(Refusal([&] { TensorDot(a, b, 2); }),
            "Op [tensordot]: axis 0 of X of shape [2, 3] and axis 0 of Y of shape [3, 4] have "
            "sizes 2 and 3, "
            "expected equal ones");
  EXPECT_EQ(Refusal([&] { TensorDot(a, b, 3); }),
            "Op [tensordot]: 3 axes of X of shape [2, 3] and Y of shape [3, 4], expected 0 to 2");
  EXPECT_EQ(Refusal([&] {
              TensorDot(a, b, {1}, {0, 1});
            }),
            "Op [tensordot]: 1 axes of X and 2 of Y, expected as many");
  EXPECT_EQ(Refusal([&] {
              TensorDot(Ones({3, 3}), Ones({3, 3}), {0, 0}, {0, 1});
            }),
            "Op [tensordot]: axis 0 of X or 1 of Y comes twice");
  EXPECT_THAT(Refusal([&] { Inner(a, b); }), HasSubstr("have sizes 3 and 4"));
  EXPECT_THAT(Refusal([&] { Dot(a, a); }), HasSubstr("have sizes 3 and 2"));
  EXPECT_THAT(Refusal([&] {
                Kron(Ones({2, 2, 2, 2, 2}), Ones({2, 2, 2, 2}));
              }),
              HasSubstr("expected at most 8 axes that are not 1 together"));
  EXPECT_EQ(Kron(Ones({1, 2, 1, 2, 1, 2}), Ones({2, 1, 2, 1, 2, 1})).shape(),
            (Shape{2, 2, 2, 2, 2, 2}));
}

}  // namespace
}  // namespace tidepool
