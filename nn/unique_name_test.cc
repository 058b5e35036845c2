#include "tidepool/nn/unique_name.h"

#include <optional>
#include <utility>

#include "gtest/gtest.h"

namespace tidepool::nn {
namespace {

TEST(UniqueName, IsThatOfNoOtherHoweverOthersCameByTheirs) {
  const UniqueName first("mlp"), second("mlp"), called_so("mlp 2");
  EXPECT_EQ(first.text(), "mlp");
  EXPECT_EQ(second.text(), "mlp 2");
  EXPECT_EQ(called_so.text(), "mlp 2 2");
  const UniqueName before("net 2"), one("net"), other("net");
  EXPECT_EQ(before.text(), "net 2");
  EXPECT_EQ(one.text(), "net");
  EXPECT_EQ(other.text(), "net 3");
}

TEST(UniqueName, IsGivenAgainWhenItIsGone) {
  std::optional<UniqueName> first(std::in_place, "cnn"), second(std::in_place, "cnn");
  first.reset();
  EXPECT_EQ(UniqueName("cnn").text(), "cnn");
  UniqueName moved = std::move(*second);
  second.reset();
  EXPECT_EQ(moved.text(), "cnn 2");
  first.emplace("cnn");
  EXPECT_EQ(UniqueName("cnn").text(), "cnn 3");
  UniqueName kept("other");
  kept = std::move(moved);
  EXPECT_EQ(kept.text(), "cnn 2");
}

}  // namespace
}  // namespace tidepool::nn
