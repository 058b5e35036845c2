// Queued copies, their order with kernels, memory that goes under them, and several threads.
#include <algorithm>
#include <exception>
#include <memory>
#include <thread>

#include "tidepool/memory/testing/device_contract_check.h"

namespace tidepool {
namespace {

constexpr size_t kKiB = size_t{1} << 10, kMiB = size_t{1} << 20;

}  // namespace

void CheckPoints(DeviceCheck& check) {
  DeviceProvider& device = check.device;
  constexpr int kLanes = 5, kSteps = 6;
  for (const size_t bytes : {size_t{1000}, 200 * kKiB + 1}) {
    struct Lane {
      std::unique_ptr<TestBlock> block;
      Bytes sent[kSteps], seen[kSteps];
      QueuePoint last;
      int steps = 0;
    };
    Lane lanes[kLanes];
    for (Lane& lane : lanes) {
      lane.block = std::make_unique<TestBlock>(device, bytes);
      for (int step = 0; step < kSteps; ++step) {
        lane.sent[step] = check.NewPattern(bytes);
        lane.seen[step].resize(bytes);
      }
    }
    Busy busy(check);
    WaitAtEnd wait(check);
    // A lane's copies go there and back one behind the other; lanes have nothing to do with each
    // other.
    for (int queued = 0; queued < kLanes * kSteps;) {
      Lane& lane = lanes[check.Below(kLanes)];
      if (lane.steps == kSteps) continue;
      const int step = lane.steps++;
      std::byte* const data = lane.block->data();
      lane.last = device.QueueCopyFromHost(data, lane.sent[step].data(), bytes, lane.last);
      lane.last = device.QueueCopyToHost(lane.seen[step].data(), data, bytes, lane.last);
      ++queued;
    }
    for (const Lane& lane : lanes) {
      if (!device.HasPassed(lane.last)) continue;
      check.ExpectSame(lane.seen[kSteps - 1], lane.sent[kSteps - 1],
                       "a queued copy whose point has passed");
    }
    for (Lane& lane : lanes) {
      device.WaitFor(lane.last);
      check.Expect(device.HasPassed(lane.last), "a point has been waited for and has not passed");
      for (int step = 0; step < kSteps; ++step) {
        check.ExpectSame(
            lane.seen[step], lane.sent[step],
            absl::StrCat("queued copy ", step, " of ", bytes, " bytes to the device and back"));
      }
    }
    // The functions without a point come behind what was queued, waited for or not.
    Lane& lane = lanes[0];
    busy.Copies();
    device.QueueCopyFromHost(lane.block->data(), lane.sent[0].data(), bytes, {});
    check.ExpectOnDevice(lane.block->data(), lane.sent[0], "CopyToHost behind a queued copy");
    const QueuePoint out =
        device.QueueCopyToHost(lane.seen[1].data(), lane.block->data(), bytes, {});
    check.Write(lane.block->data(), lane.sent[2]);
    device.WaitFor(out);
    check.ExpectSame(lane.seen[1], lane.sent[0], "a queued copy to the host before CopyFromHost");
  }
}

void CheckOrderWithKernels(DeviceCheck& check) {
  const auto queue_fill = check.contract.queue_fill;
  if (queue_fill == nullptr) return;
  DeviceProvider& device = check.device;
  constexpr size_t kBytes = 256 * kKiB, kHalf = kBytes / 2;
  TestBlock a(device, kBytes), b(device, kBytes);
  Busy busy(check);
  const auto all = [&](int value) { return Bytes(kBytes, static_cast<std::byte>(value)); };
  const auto halves = [&](const Bytes& first, int second) {
    Bytes bytes = first;
    std::fill(bytes.begin() + kHalf, bytes.end(), static_cast<std::byte>(second));
    return bytes;
  };
  const auto fill = [&](TestBlock& block, int value) {
    queue_fill(block.data(), static_cast<std::byte>(value), kBytes);
  };
  const Bytes sent = check.NewPattern(kBytes);
  Bytes seen(kBytes);
  WaitAtEnd wait(check);
  for (int round = 0; round < 6; ++round) {
    busy.LongKernels();
    fill(a, 10 + round);
    QueuePoint point =
        device.QueueCopyToHost(seen.data(), a.data(), kBytes, device.ComputePoint(0));
    device.WaitFor(point);
    check.ExpectSame(seen, all(10 + round), "a copy to the host behind ComputePoint()");

    // The copy waits for a late kernel, a kernel for a late copy.
    for (const bool late_copy : {false, true}) {
      if (!late_copy) busy.LongKernels();
      fill(a, 20);
      if (late_copy) busy.Copies();
      point = device.QueueCopyFromHost(a.data(), sent.data(), kBytes, device.ComputePoint(0));
      device.ComputeAfter(0, point);
      queue_fill(a.data() + kHalf, std::byte{30}, kHalf);
      device.WaitFor(
          device.ComputePoint(0));  // the kernel is wanted, the copy only if it is before it
      check.ExpectOnDevice(a.data(), halves(sent, 30), "a kernel behind ComputeAfter()");
      check.Expect(device.HasPassed(point),
                   "a copy has not passed that a kernel was ordered behind which is done");
    }

    busy.Kernels();
    fill(a, 40);
    fill(a, 41);
    device.CopyOnDevice(b.data(), a.data(), kBytes);
    fill(a, 42);
    check.ExpectOnDevice(b.data(), all(41), "CopyOnDevice between kernels");
    busy.Kernels();
    fill(a, 43);
    device.Fill(a.data() + kHalf, std::byte{44}, kHalf);
    check.ExpectOnDevice(a.data(), halves(all(43), 44), "Fill behind a kernel");
    busy.Kernels();
    fill(a, 45);
    check.Write(a.data(), sent);
    check.ExpectOnDevice(a.data(), sent, "CopyFromHost behind a kernel");
    busy.Kernels();
    fill(a, 46);
    device.WaitFor(device.ComputePoint(0));
    point = device.QueueCopyToHost(seen.data(), a.data(), kBytes, {});
    device.WaitFor(point);
    check.ExpectSame(seen, all(46),
                     "a copy to the host after the host has waited for ComputePoint()");
  }
}

void CheckGivingBackInFlight(DeviceCheck& check) {
  DeviceProvider& device = check.device;
  const size_t bytes = check.Granules(128 * kKiB);
  const auto queue_fill = check.contract.queue_fill;
  Busy busy(check);
  const Bytes first = check.NewPattern(bytes), second = check.NewPattern(bytes);
  Bytes seen(bytes);
  WaitAtEnd wait(check);
  enum Way { kRelease, kDecommit, kUnreserve };
  enum Use { kRead, kWrite, kKernel };
  for (int round = 0; round < 3; ++round) {
    for (const Way way : {kRelease, kDecommit, kUnreserve}) {
      for (const Use use : {kRead, kWrite, kKernel}) {
        if (use == kKernel && queue_fill == nullptr) continue;
        // As many of them as are likely to get the memory that was given back.
        std::unique_ptr<TestBlock> block, later[3];
        std::unique_ptr<TestRange> range = std::make_unique<TestRange>(device, bytes);
        if (way == kRelease) block = std::make_unique<TestBlock>(device, bytes);
        std::byte* const data = way == kRelease ? block->data() : range->Commit(0, bytes);
        check.Write(data, first);
        QueuePoint point;
        if (use == kKernel) {
          busy.LongKernels();
          queue_fill(data, std::byte{9}, bytes);
        } else {
          busy.Copies();
          point = use == kRead ? device.QueueCopyToHost(seen.data(), data, bytes, {})
                               : device.QueueCopyFromHost(data, first.data(), bytes, {});
        }
        bool gone = true;
        if (way == kRelease) block->Release();
        if (way == kUnreserve) range->Unreserve();
        if (way == kDecommit) gone = device.Decommit(data, bytes);
        // In one round nothing takes its place: then a kernel that is late finds no memory.
        const bool stays_gone = use == kKernel && round == 1;
        std::byte* targets[4] = {};
        int count = 0;
        for (std::unique_ptr<TestBlock>& other : later) {
          if (stays_gone) break;
          other = std::make_unique<TestBlock>(device, bytes);
          targets[count++] = other->data();
        }
        if (way == kUnreserve) range = std::make_unique<TestRange>(device, bytes);
        if (way != kRelease && gone && !stays_gone) targets[count++] = range->Commit(0, bytes);
        // Kernels use what was given back under copies. Copies use what was given back under
        // kernels, behind those queued so far: it may have been given back in their order.
        const bool by_kernels = use != kKernel && queue_fill != nullptr;
        QueuePoint points[4];
        for (int i = 0; i < count; ++i) {
          if (by_kernels) {
            queue_fill(targets[i], std::byte{7}, bytes);
          } else {
            points[i] =
                device.QueueCopyFromHost(targets[i], second.data(), bytes, device.ComputePoint(0));
          }
        }
        for (int i = 0; i < count; ++i) device.WaitFor(points[i]);
        if (by_kernels) device.WaitFor(device.ComputePoint(0));
        device.WaitFor(point);
        const std::string what = absl::StrCat("memory ",
                                              way == kRelease    ? "released"
                                              : way == kDecommit ? "decommitted"
                                                                 : "unreserved",
                                              " under a ",
                                              use == kKernel ? "kernel"
                                              : use == kRead ? "copy to the host"
                                                             : "copy from the host");
        if (use == kRead) check.ExpectSame(seen, first, absl::StrCat(what, ": what was copied"));
        for (int i = 0; i < count; ++i) {
          check.ExpectOnDevice(targets[i], by_kernels ? Bytes(bytes, std::byte{7}) : second,
                               absl::StrCat(what, ": what has its place"));
        }
      }
    }
  }
}

void CheckThreads(DeviceCheck& check) {
  constexpr int kThreads = 4, kRounds = 25;
  const auto work = [&](uint64_t seed) {
    std::mt19937_64 random(seed);
    DeviceProvider& device = check.device;
    for (int round = 0; round < kRounds; ++round) {
      const size_t bytes = 1 + random() % (round % 5 == 0 ? 200 * kKiB : 5 * kKiB);
      const Bytes sent = PatternOf(random(), bytes);
      TestRange range(device, 2 * check.Granules(bytes));
      std::byte* const there = range.Commit(0, check.Granules(bytes));
      TestBlock block(device, bytes);
      const QueuePoint point =
          device.QueueCopyFromHost(there, sent.data(), bytes, device.ComputePoint(0));
      device.WaitFor(point);
      device.CopyOnDevice(block.data(), there, bytes);
      device.Fill(there, std::byte{3}, bytes);
      check.ExpectOnDevice(block.data(), sent, "beside other threads");
      check.ExpectOnDevice(there, Bytes(bytes, std::byte{3}), "beside other threads");
      if (check.contract.queue_fill != nullptr) {
        check.contract.queue_fill(there, std::byte{4}, bytes);
        Bytes seen(bytes);
        device.WaitFor(device.QueueCopyToHost(seen.data(), there, bytes, device.ComputePoint(0)));
        check.ExpectSame(seen, Bytes(bytes, std::byte{4}), "a kernel beside other threads");
      }
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, seed = check.random()] {
      try {
        work(seed);
      } catch (const std::exception& error) {
        check.Expect(false, absl::StrCat("a thread ended early: ", error.what()));
      }
    });
  }
}

}  // namespace tidepool
