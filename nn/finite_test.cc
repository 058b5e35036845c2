#include "tidepool/nn/finite.h"

#include <limits>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/io/testing/error_of.h"
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

}  // namespace
}  // namespace tidepool::nn
