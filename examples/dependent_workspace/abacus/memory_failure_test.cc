// The abacus while the host's memory is refused: what was refused is done when it is asked for again.
#include "tidepool/memory/testing/failing_new.h"

#include <algorithm>
#include <cstddef>

#include "abacus/abacus_device.h"
#include "gtest/gtest.h"
#include "tidepool/memory/provider/device_provider.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/host_view.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace abacus {
namespace {

using namespace tidepool;

const Device kDevice{kAbacus, 0};

// The first use is in here.
TEST(AbacusFailures, ADeviceThatCouldNotBeMadeIsMadeAtTheNextUse) {
  for (int n = 0;; ++n) {
    ASSERT_LT(n, 50);
    until_fault = n;
    if (!Try([] { FindDeviceProvider(kDevice); })) continue;
    EXPECT_GT(n, 1);
    break;
  }
  EXPECT_NE(FindDeviceProvider(kDevice), nullptr);
}

TEST(AbacusFailures, MemoryGoesBackWithoutTakingAny) {
  DeviceProvider& device = GetDeviceProvider(kDevice, "test");
  constexpr size_t kBytes = 100'000, kMost = size_t{32} << 30;
  for (int n = 0; n < 10; ++n) {
    std::byte* blocks[5] = {};
    until_fault = n;
    Try([&] {
      for (std::byte*& block : blocks) block = device.Allocate(kBytes, 128);
    });
    // Each with the next request of memory refused, in an order that makes holes and fills them.
    for (const int i : {1, 3, 2, 0, 4}) {
      if (blocks[i] == nullptr) continue;
      until_fault = 0;
      Try([&] { device.Release(blocks[i], kBytes); });
    }
    std::byte* const most = device.Reserve(kMost);
    ASSERT_NE(most, nullptr) << n;
    device.Unreserve(most, kMost);
  }
}

// Also where the card could not be told to wait for a copy.
TEST(AbacusFailures, AnOperatorIsDoneAgain) {
  constexpr int64_t kElements = 1 << 20;
  NDArray x = Full({kElements}, 1, DType::kFloat32, Place::On(kDevice)), z = x + x;
  for (int n = 0; n < 40; ++n) {
    {
      HostView<float> host(x, ViewContents::kOverwritten);
      std::fill_n(host.data(), kElements, static_cast<float>(n));
    }
    until_fault = n;
    if (!Try([&] { AddInto(x, x, z); })) AddInto(x, x, z);
    ASSERT_EQ(z.At<float>({kElements - 1}), 2 * n);
  }
}

}  // namespace
}  // namespace abacus
