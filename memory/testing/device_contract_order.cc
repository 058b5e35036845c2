// That the functions without a point come behind kernels and copies alike, and are done when they return; and that
// queued copies come behind the point they are told. Often, each in front of work that is late: a device may
// fail at it now and then.
#include "tidepool/memory/testing/device_contract_check.h"

namespace tidepool {
namespace {

constexpr size_t kBytes = size_t{64} << 10;
constexpr int kRounds = 60;

enum class Call { kFromHost, kToHost, kOnDevice, kFill, kQueueFromHost, kQueueToHost };
constexpr struct {
  Call call;
  const char* name;
} kCalls[] = {{Call::kFromHost, "CopyFromHost"},
              {Call::kToHost, "CopyToHost"},
              {Call::kOnDevice, "CopyOnDevice"},
              {Call::kFill, "Fill"},
              {Call::kQueueFromHost, "QueueCopyFromHost"},
              {Call::kQueueToHost, "QueueCopyToHost"}};

}  // namespace

void CheckOrderBehindAll(DeviceCheck& check) {
  DeviceProvider& device = check.device;
  const auto queue_fill = check.contract.queue_fill;
  TestBlock a(device, kBytes), b(device, kBytes);
  Busy busy(check);
  Bytes late(kBytes), other(kBytes), seen(kBytes);
  WaitAtEnd wait(check);
  const auto run = [&](Call call, const std::string& what, bool late_kernels) {
    QueuePoint after;
    if (late_kernels) {
      late.assign(kBytes, static_cast<std::byte>(check.Below(256)));
      busy.Kernels(kBytes * 8);
      queue_fill(a.data(), late[0], kBytes);
      after = device.ComputePoint(0);
    } else {
      late = check.NewPattern(kBytes);
      busy.Copies(1);
      after = device.QueueCopyFromHost(a.data(), late.data(), kBytes, {});
    }
    std::byte* written = a.data();
    Bytes expected = other = check.NewPattern(kBytes);
    switch (call) {
      case Call::kFromHost:
        device.CopyFromHost(a.data(), other.data(), kBytes);
        break;
      case Call::kOnDevice:
        written = b.data();
        expected = late;
        device.CopyOnDevice(b.data(), a.data(), kBytes);
        break;
      case Call::kFill:
        expected.assign(kBytes, other[0]);
        device.Fill(a.data(), other[0], kBytes);
        break;
      case Call::kQueueFromHost:
        device.WaitFor(device.QueueCopyFromHost(a.data(), other.data(), kBytes, after));
        break;
      case Call::kToHost:
      case Call::kQueueToHost:
        expected = late;
        if (call == Call::kToHost) {
          device.CopyToHost(seen.data(), a.data(), kBytes);
        } else {
          device.WaitFor(device.QueueCopyToHost(seen.data(), a.data(), kBytes, after));
        }
        if (!check.ExpectSame(seen, expected, what)) return false;
    }
    if (call == Call::kFromHost || call == Call::kOnDevice || call == Call::kFill) {
      // A copy that waits for nothing sees what is done.
      device.WaitFor(device.QueueCopyToHost(seen.data(), written, kBytes, {}));
      if (!check.ExpectSame(seen, expected, absl::StrCat(what, ": what is there when it returns"))) return false;
    }
    return check.ExpectOnDevice(written, expected, absl::StrCat(what, ": what is there when all is done"));
  };
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& [call, name] : kCalls) {
      for (const bool late_kernels : {false, true}) {
        if (late_kernels && queue_fill == nullptr) continue;
        const char* const before = late_kernels ? " behind a late kernel" : " behind a late copy";
        if (!run(call, absl::StrCat(name, before), late_kernels)) return;
      }
    }
  }
}

}  // namespace tidepool
