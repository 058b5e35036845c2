#include "tidepool/nn/finite.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/accounting/peak_scope.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/subscript.h"
#include "tidepool/nn/model_file.h"

namespace tidepool::nn {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

TEST(Finite, NamesTheFirstElementThatIsNot) {
  for (const WorkspaceMode mode : {WorkspaceMode::kEnabled, WorkspaceMode::kNone}) {
    Model model = MakeModel("mlp", {2, 3, 1}, 4, 1, mode);
    Network& network = *model.network;
    EXPECT_EQ(FindNotFinite(network), "");
    // The largest number is one, though sums of it are not.
    NDArray weight = network.named_parameters()[0].value;
    weight.mutable_data<float>()[0] = weight.mutable_data<float>()[1] =
        std::numeric_limits<float>::max();
    EXPECT_EQ(FindNotFinite(network), "");
    RequireFinite(network, "file");

    NDArray last = network.named_parameters().back().value;
    last.mutable_data<float>()[last.NumElements() - 1] = -kInfinity;
    EXPECT_EQ(FindNotFinite(network), "parameter \"2.dense.bias\" holds -inf at [3]");
    NDArray middle = network.named_parameters()[2].value;
    ASSERT_EQ(middle.shape().rank(), 2);
    middle.mutable_data<float>()[middle.dim(1) * 5 + 7] = kNan;
    EXPECT_EQ(FindNotFinite(network), "parameter \"1.dense.weight\" holds nan at [5, 7]");
    EXPECT_THAT(
        ErrorOf([&] { RequireFinite(network, "a\nfile"); }),
        IsError(absl::StatusCode::kDataLoss,
                {"a\\nfile: parameter \"1.dense.weight\" holds nan at [5, 7], expected finite"}));
  }
}

TEST(Finite, OfAnyArrayWithoutOneOfItsSize) {
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16}) {
    EXPECT_TRUE(AllFinite(Zeros({0}, type))) << DTypeName(type);
    for (const int64_t size : {1, 7, 4099}) {
      for (const float bad : {kInfinity, -kInfinity, kNan}) {
        for (const int64_t at : {int64_t{0}, size / 2, size - 1}) {
          NDArray x = Cast(RandomNormal({size}, 0, 1, 3), type);
          EXPECT_TRUE(AllFinite(x));
          x(at) = bad;
          EXPECT_FALSE(AllFinite(x))
              << DTypeName(type) << " " << size << " " << bad << " at " << at;
          // The other infinity does not make up for it.
          if (size > 1) {
            x((at + 1) % size) = -bad;
            EXPECT_FALSE(AllFinite(x));
          }
        }
      }
    }
  }
  // Numbers at the ends of the range are finite, and so are those beside 0.
  NDArray ends = Zeros({4});
  ends(0) = std::numeric_limits<float>::max();
  ends(1) = std::numeric_limits<float>::lowest();
  ends(2) = std::numeric_limits<float>::denorm_min();
  EXPECT_TRUE(AllFinite(ends));
  const NDArray large = Ones({1 << 20});
  PeakScope peak;
  const int64_t before = peak.peak_in_use_bytes();
  EXPECT_TRUE(AllFinite(large));
  EXPECT_LT(peak.peak_in_use_bytes() - before, 1 << 16);
}

}  // namespace
}  // namespace tidepool::nn
