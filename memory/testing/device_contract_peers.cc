// Copies to another device of the type, which are queued beside the kernels.
#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/testing/device_contract_check.h"

namespace tidepool {

// A device that waits for bytes of another waits for the last of their points alone
// (provider/device_dependence.h).
void CheckPeerCopies(DeviceCheck& check) {
  const Device here = check.contract.device, there = check.contract.peer;
  PeerCopies* const peers = FindPeerCopies(here.type);
  DeviceProvider* const peer = there != Host() ? FindDeviceProvider(there) : nullptr;
  if (peer == nullptr || peers == nullptr || !peers->WhyNot(here, there).empty()) return;
  constexpr size_t kBytes = 200'000;
  constexpr int kCopies = 6;
  DeviceProvider& device = check.device;
  Busy busy(check);
  std::vector<std::unique_ptr<TestBlock>> from, to;
  for (int i = 0; i < kCopies; ++i) {
    from.push_back(std::make_unique<TestBlock>(device, kBytes));
    to.push_back(std::make_unique<TestBlock>(*peer, kBytes));
  }
  Bytes seen(kBytes);
  WaitAtEnd wait(check);
  for (int round = 0; round < 16; ++round) {
    std::vector<Bytes> sent;
    for (int i = 0; i < kCopies; ++i) {
      sent.push_back(check.NewPattern(kBytes));
      check.Write(from[i]->data(), sent[i]);
    }
    // The first ones begin late.
    busy.LongKernels();
    const QueuePoint late = device.ComputePoint(0);
    const int late_copies = 1 + round % (kCopies - 1);
    std::vector<QueuePoint> points;
    for (int i = 0; i < kCopies; ++i) {
      const QueuePoint after = i < late_copies ? late : QueuePoint();
      points.push_back(
          peers->Queue({here, there, from[i]->data(), to[i]->data(), kBytes, after, {}, 0}));
    }
    const int last = kCopies - 1 - round % 2;
    const auto expect_in_order = [&](int passed) {
      for (int i = 0; i < passed; ++i) {
        check.Expect(device.HasPassed(points[i]),
                     absl::StrCat("copy ", i, " to ", DeviceName(there), " has not passed, copy ",
                                  passed, " has, which was queued later"));
      }
    };
    for (int i = kCopies - 1; i >= 0; --i) {
      if (device.HasPassed(points[i])) expect_in_order(i);
    }
    device.WaitFor(points[last]);
    check.Expect(device.HasPassed(points[last]),
                 "a copy to a peer that was waited for has not passed");
    expect_in_order(last);
    for (int i = 0; i <= last; ++i) {
      peer->WaitFor(peer->QueueCopyToHost(seen.data(), to[i]->data(), kBytes, {}));
      check.ExpectSame(seen, sent[i],
                       absl::StrCat("copy ", i, " to ", DeviceName(there), " behind its point"));
    }
    device.WaitFor(points.back());
    check.Expect(device.HasPassed(points.back()),
                 "a copy to a peer that was waited for has not passed");
  }
}

}  // namespace tidepool
