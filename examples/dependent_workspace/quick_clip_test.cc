#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/kernel/registry.h"
#include "tidepool/ndarray/ops/unary.h"
#include "tidepool/ndarray/testing/op_contract_suite.h"

using namespace tidepool;

namespace {

const bool contract = RegisterOpContract(
    {.provider = "quick_clip", .only = {"clip f32"}, .may_refuse = {"clip f32"}, .cases = 0.3});

TEST(QuickClip, StandsFirstAndLeavesWhatItRefusesToTheNext) {
  const absl::Span<const Kernel> kernels =
      KernelRegistry::Find(OpCode::kClip, DeviceType::kHost, DType::kFloat32);
  ASSERT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[0].provider, std::string("quick_clip"));
  EXPECT_EQ(Clip(Full({16}, 7), -1, 2).ToVector<float>(), std::vector<float>(16, 2));
  EXPECT_EQ(Clip(Full({3}, 7), -1, 2).ToVector<float>(),
            std::vector<float>(3, 2));  // the reference's
}

}  // namespace
