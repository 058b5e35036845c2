// That the functions without a point come behind kernels and copies alike, and are done when they return; and that
// queued copies come behind the point they are told. Often, each in front of work that is late: a device may
// fail at it now and then.
#include <algorithm>
#include <memory>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/testing/device_contract_check.h"

namespace tidepool {
namespace {

constexpr size_t kBytes = size_t{64} << 10;
constexpr int kRounds = 60;

enum class Call { kFromHost, kToHost, kOnDevice, kFill, kQueueFromHost, kQueueToHost, kKernel };
constexpr struct {
  Call call;
  const char* name;
} kCalls[] = {{Call::kFromHost, "CopyFromHost"},
              {Call::kToHost, "CopyToHost"},
              {Call::kOnDevice, "CopyOnDevice"},
              {Call::kFill, "Fill"},
              {Call::kQueueFromHost, "QueueCopyFromHost"},
              {Call::kQueueToHost, "QueueCopyToHost"},
              {Call::kKernel, "a kernel behind ComputeAfter()"}};

}  // namespace

void CheckOrderBehindAll(DeviceCheck& check) {
  DeviceProvider& device = check.device;
  const auto queue_fill = check.contract.queue_fill;
  TestBlock a(device, kBytes), b(device, kBytes);
  Busy busy(check);
  Bytes late(kBytes), other(kBytes), seen(kBytes);
  WaitAtEnd wait(check);
  // Or it has passed by itself, which says the same.
  const auto wait_for = [&](QueuePoint point) {
    if (!device.HasPassed(point)) device.WaitFor(point);
    check.Expect(device.HasPassed(point), "a point has been waited for and has not passed");
  };
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
        wait_for(device.QueueCopyFromHost(a.data(), other.data(), kBytes, after));
        break;
      case Call::kKernel:
        expected = late;
        std::fill(expected.begin(), expected.begin() + kBytes / 2, other[0]);
        device.ComputeAfter(0, after);
        queue_fill(a.data(), other[0], kBytes / 2);
        wait_for(device.ComputePoint(0));
        check.Expect(device.HasPassed(after),
                     absl::StrCat(what, ": what it came behind has not passed when it is done"));
        break;
      case Call::kToHost:
      case Call::kQueueToHost:
        expected = late;
        if (call == Call::kToHost) {
          device.CopyToHost(seen.data(), a.data(), kBytes);
        } else {
          wait_for(device.QueueCopyToHost(seen.data(), a.data(), kBytes, after));
        }
        if (!check.ExpectSame(seen, expected, what)) return false;
    }
    if (call != Call::kToHost && call != Call::kQueueToHost) {
      // A copy that waits for nothing sees what is done.
      device.WaitFor(device.QueueCopyToHost(seen.data(), written, kBytes, {}));
      if (!check.ExpectSame(seen, expected, absl::StrCat(what, ": what is there when it returns")))
        return false;
    }
    return check.ExpectOnDevice(written, expected,
                                absl::StrCat(what, ": what is there when all is done"));
  };
  for (int round = 0; round < kRounds; ++round) {
    for (const auto& [call, name] : kCalls) {
      for (const bool late_kernels : {false, true}) {
        if ((late_kernels || call == Call::kKernel) && queue_fill == nullptr) continue;
        const char* const before = late_kernels ? " behind a late kernel" : " behind a late copy";
        if (!run(call, absl::StrCat(name, before), late_kernels)) return;
      }
    }
  }
}

// Often, as one in ten may go back too early.
void CheckBlocksInFlight(DeviceCheck& check) {
  DeviceProvider& device = check.device;
  const auto queue_fill = check.contract.queue_fill;
  const size_t bytes = check.Granules(kBytes);
  Busy busy(check);
  const Bytes first = check.NewPattern(bytes), second = check.NewPattern(bytes);
  Bytes seen(bytes);
  WaitAtEnd wait(check);
  enum Way { kRelease, kReleaseMany, kDecommit, kUnreserve };
  constexpr const char* kWays[] = {"Release()", "ReleaseMany()", "Decommit()", "Unreserve()"};
  for (int round = 0; round < 4 * kRounds; ++round) {
    const Way way = static_cast<Way>(round % 4);
    const bool in_range = way == kDecommit || way == kUnreserve;
    const bool kernel = queue_fill != nullptr && round / 4 % 2 == 0;
    std::byte* base =
        in_range ? device.Reserve(bytes) : device.Allocate(bytes, check.traits.alignment);
    if (base == nullptr || (in_range && !device.Commit(base, bytes, false))) {
      check.Expect(false, absl::StrCat(bytes, " bytes were refused"));
      return;
    }
    check.Write(base, first);
    QueuePoint point;
    if (kernel) {
      busy.Kernels(kBytes * 8);
      queue_fill(base, std::byte{9}, bytes);
    } else {
      busy.Copies(1);
      point = device.QueueCopyToHost(seen.data(), base, bytes, {});
    }
    const DeviceProvider::Block block = {base, bytes};
    bool gone = true;
    if (way == kRelease) device.Release(base, bytes);
    if (way == kReleaseMany) device.ReleaseMany(&block, 1);
    if (way == kDecommit) gone = device.Decommit(base, bytes);
    if (way == kUnreserve) device.Unreserve(base, bytes);
    // Whatever has the memory now, its first use is a copy, and then kernels.
    std::unique_ptr<TestBlock> next;
    std::unique_ptr<TestRange> next_range;
    std::byte* target = base;
    QueuePoint after;
    if (way == kDecommit) {
      if (gone && !device.Commit(base, bytes, false)) {
        check.Expect(false, "what was decommitted was refused again");
        device.Unreserve(base, bytes);
        return;
      }
      if (!gone) after = device.ComputePoint(0);  // the memory is still what is being used
      if (!gone) device.WaitFor(point);
    } else if (way == kUnreserve) {
      next_range = std::make_unique<TestRange>(device, bytes);
      target = next_range->Commit(0, bytes);
    } else {
      next = std::make_unique<TestBlock>(device, bytes);
      target = next->data();
      after = device.EarlierUses(target, bytes);
    }
    const QueuePoint written = device.QueueCopyFromHost(target, second.data(), bytes, after);
    const std::string what =
        absl::StrCat("memory after ", kWays[way], " under a ", kernel ? "kernel" : "copy");
    device.WaitFor(written);
    device.WaitFor(point);
    bool well = kernel || check.ExpectSame(seen, first, absl::StrCat(what, ": what was copied"));
    // All that was queued before may write now, if it has not.
    device.WaitFor(device.ComputePoint(0));
    well = check.ExpectOnDevice(target, second, absl::StrCat(what, ": what has its place")) && well;
    if (way == kDecommit) device.Unreserve(base, bytes);
    if (!well) return;
  }
}

namespace {

// Compute queues of the device, away from those that DeviceQueue may have made.
class CheckedQueues {
 public:
  explicit CheckedQueues(DeviceProvider& device) : device_(device) {}
  ~CheckedQueues() {
    for (int queue = 0; queue < kMostQueues; ++queue) {
      if (open_[queue]) device_.CloseQueue(queue);
    }
  }
  CheckedQueues(const CheckedQueues&) = delete;
  CheckedQueues& operator=(const CheckedQueues&) = delete;
  void Open(int queue) {
    device_.OpenQueue(queue, nullptr);
    open_[queue] = true;
  }
  void Close(int queue) {
    open_[queue] = false;
    device_.CloseQueue(queue);
  }

 private:
  DeviceProvider& device_;
  bool open_[kMostQueues] = {};
};

}  // namespace

void CheckQueues(DeviceCheck& check) {
  const auto fill_in = check.contract.queue_fill_in;
  if (fill_in == nullptr) return;
  constexpr int kOne = kMostQueues - 2, kOther = kMostQueues - 1;
  DeviceProvider& device = check.device;
  CheckedQueues queues(device);
  try {
    queues.Open(kOne);
  } catch (const Error& error) {
    if (error.code() == absl::StatusCode::kUnimplemented) return;
    throw;
  }
  queues.Open(kOther);
  const void* const natives[] = {device.NativeQueue(0), device.NativeQueue(kOne),
                                 device.NativeQueue(kOther)};
  check.Expect(natives[0] == nullptr || (natives[0] != natives[1] && natives[1] != natives[2] &&
                                         natives[0] != natives[2]),
               "two compute queues have one native queue");
  TestBlock a(device, kBytes), b(device, kBytes);
  Busy busy(check);
  Bytes seen(kBytes), other(kBytes);
  WaitAtEnd wait(check);
  // What is there for a copy that waits for nothing.
  const auto expect_there = [&](const std::byte* at, const Bytes& expected,
                                const std::string& what) {
    device.WaitFor(device.QueueCopyToHost(seen.data(), at, kBytes, {}));
    return check.ExpectSame(seen, expected, what);
  };
  const auto halves = [](int first, int second) {
    Bytes bytes(kBytes, static_cast<std::byte>(first));
    std::fill(bytes.begin() + kBytes / 2, bytes.end(), static_cast<std::byte>(second));
    return bytes;
  };
  const auto late = [&](int queue, int value) {
    busy.KernelsIn(queue, kBytes * 8);
    fill_in(queue, a.data(), static_cast<std::byte>(value), kBytes);
  };
  for (int round = 0; round < kRounds; ++round) {
    const int value = 1 + round % 200;
    late(kOne, value);
    device.WaitFor(device.ComputePoint(kOne));
    if (!expect_there(a.data(), halves(value, value),
                      "a kernel of another queue that was waited for"))
      return;

    // Behind what is queued in any queue.
    late(kOne, 201);
    device.CopyToHost(seen.data(), a.data(), kBytes);
    if (!check.ExpectSame(seen, halves(201, 201), "CopyToHost behind a kernel of another queue"))
      return;
    late(kOne, 202);
    other = check.NewPattern(kBytes);
    device.CopyFromHost(a.data(), other.data(), kBytes);
    if (!check.ExpectOnDevice(a.data(), other, "CopyFromHost behind a kernel of another queue"))
      return;
    late(kOne, 203);
    device.CopyOnDevice(b.data(), a.data(), kBytes);
    if (!expect_there(b.data(), halves(203, 203), "CopyOnDevice behind a kernel of another queue"))
      return;
    late(kOne, 204);
    device.Fill(a.data(), std::byte{205}, kBytes / 2);
    if (!expect_there(a.data(), halves(205, 204), "Fill behind a kernel of another queue")) return;

    // One queue behind the other, in each direction, and a copy between them.
    for (const auto& [from, to] : {std::pair(kOne, kOther), std::pair(kOther, kOne),
                                   std::pair(kOne, 0), std::pair(0, kOther)}) {
      late(from, 206);
      const QueuePoint point = device.ComputePoint(from);
      device.ComputeAfter(to, point);
      fill_in(to, a.data(), std::byte{207}, kBytes / 2);
      device.WaitFor(device.ComputePoint(to));
      check.Expect(device.HasPassed(point),
                   "the end of a queue has not passed that another one's done kernel came behind");
      if (!expect_there(a.data(), halves(207, 206), "a kernel behind another queue's")) return;
    }
    late(kOne, 208);
    device.ComputeAfter(
        kOther, device.QueueCopyToHost(other.data(), a.data(), kBytes, device.ComputePoint(kOne)));
    fill_in(kOther, a.data(), std::byte{209}, kBytes);
    device.WaitFor(device.ComputePoint(kOther));
    if (!check.ExpectSame(other, halves(208, 208), "a copy between kernels of two queues")) return;

    // A block that another queue used goes back, and the first queue and copies use it.
    TestBlock block(device, kBytes);
    device.ComputeAfter(kOne, device.ComputePoint(0));  // where it was allocated
    busy.KernelsIn(kOne, kBytes * 8);
    fill_in(kOne, block.data(), std::byte{210}, kBytes);
    if (!device.NoteUsers(block.data(), 1u << kOne))
      device.ComputeAfter(0, device.ComputePoint(kOne));
    block.Release();
    TestBlock next(device, kBytes);
    if (round % 2 == 0) {
      fill_in(0, next.data(), std::byte{211}, kBytes);
    } else {
      other.assign(kBytes, std::byte{211});
      device.ComputeAfter(0, device.QueueCopyFromHost(next.data(), other.data(), kBytes,
                                                      device.EarlierUses(next.data(), kBytes)));
    }
    device.WaitFor(device.ComputePoint(0));
    device.WaitFor(device.ComputePoint(kOne));
    if (!expect_there(next.data(), halves(211, 211),
                      "memory released under a kernel of another queue: what has its place")) {
      return;
    }

    // One that ends has done its work all the same.
    late(kOne, 212);
    const QueuePoint end = device.ComputePoint(kOne);
    queues.Close(kOne);
    if (round % 2 == 0) {
      device.WaitFor(end);
      if (!expect_there(a.data(), halves(212, 212),
                        "a kernel of a queue that was closed, whose end was waited for"))
        return;
    } else {
      device.CopyToHost(seen.data(), a.data(), kBytes);
      if (!check.ExpectSame(seen, halves(212, 212),
                            "CopyToHost behind a kernel of a queue that was closed"))
        return;
    }
    check.Expect(device.HasPassed(end), "the end of a queue that was closed has not passed");
    queues.Open(kOne);
    device.ComputeAfter(kOne, end);
  }
}

}  // namespace tidepool
