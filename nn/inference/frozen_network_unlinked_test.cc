#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/nn/inference/frozen_network.h"
#include "tidepool/nn/models.h"

namespace tidepool::nn {
namespace {

TEST(FrozenNetworkUnlinked, FreezingSaysWhatToLink) {
  const Network network({28, 28, 1}, LeNetLayers(10), 3);
  try {
    const FrozenNetwork frozen(network);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(error.what(), testing::HasSubstr("add //backends/cpu to deps"));
  }
}

}  // namespace
}  // namespace tidepool::nn
