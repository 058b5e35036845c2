// The card breaks under a kernel, and its provider says so: everything fails with that cause from
// there on.
#include <functional>
#include <string>
#include <vector>

#include "abacus/abacus_device.h"
#include "gtest/gtest.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_queue.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_fallback.h"
#include "tidepool/ndarray/ops/activation.h"
#include "tidepool/ndarray/ops/elementwise.h"
#include "tidepool/ndarray/ops/unary.h"

namespace abacus {
namespace {

using namespace tidepool;

const Device kDevice{kAbacus, 0};

NDArray Twos() { return Full({1000}, 2, DType::kFloat32, Place::On(kDevice)); }

void ExpectLost(const char* what, bool first, const std::string& who,
                const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << what << " did not fail";
  } catch (const DeviceLostError& error) {
    EXPECT_EQ(error.device(), kDevice) << what;
    EXPECT_EQ(error.is_first(), first) << what;
    EXPECT_EQ(error.message().find(
                  who + ": abacus:0 is lost: a bead has come off; the operator that failed is "
                        "[square]; "),
              0u)
        << what << ": " << error.message();
  } catch (const Error& error) {
    ADD_FAILURE() << what << ": " << error.message();
  }
}

TEST(AbacusLoss, IsToldWithItsOperatorAndNeverWorkedAround) {
  {
    NDArray x = Twos(), seen = Twos();
    EXPECT_EQ(seen.data<float>()[999], 2);  // the host has it, too
    Workspace workspace("step", WorkspaceConfig::Training(), kDevice);
    const NDArray squares = Square(x);
    // As the kernel of the square would find.
    AbacusDevice::Find(0)->QueueKernel(
        {}, [] { LoseDevice(kDevice, "a bead has come off", "square"); });
    EXPECT_THROW(DeviceQueue::First(kDevice).Wait(), DeviceLostError);
    ASSERT_TRUE(IsLost(kDevice));

    const std::string fallbacks = DescribeHostFallbacks();
    ExpectLost("a copy to the host", true, "copy", [&] { squares.ToVector<float>(); });
    ExpectLost("an operator", false, "Op [add]", [&] { Add(x, x); });
    ExpectLost("in place", false, "Op [add]", [&] { AddInto(seen, seen, seen); });
    ExpectLost("an operator that the host had done", false, "Op [exp]", [&] { x = Exp(x); });
    ExpectLost("a new array", false, "heap", [] { Twos(); });
    ExpectLost("one of a cycle", false, "workspace [step]", [&] {
      WorkspaceScope scope(workspace);
      Full({1000}, 1, DType::kFloat32, Place::CurrentOn(kDevice));
    });
    EXPECT_EQ(DescribeHostFallbacks(), fallbacks);
    EXPECT_EQ(seen.At<float>({999}), 2);
    EXPECT_EQ(Exp(Zeros({3})).At<float>({2}), 1);  // the host goes on
  }
  ForgetLossForTesting(kDevice);
  EXPECT_EQ(Add(Twos(), Twos()).ToVector<float>(), std::vector<float>(1000, 4));
}

}  // namespace
}  // namespace abacus
