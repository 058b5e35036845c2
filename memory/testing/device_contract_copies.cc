// Copies that are done when they return, and through page-locked memory.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>

#include "tidepool/memory/testing/device_contract_check.h"

namespace tidepool {
namespace {

constexpr size_t kKiB = size_t{1} << 10, kMiB = size_t{1} << 20;

}  // namespace

void CheckCopies(DeviceCheck& check) {
  constexpr size_t kBytes = 3 * kMiB + 17;
  TestBlock first(check.device, kBytes), second(check.device, kBytes);
  Bytes models[2] = {check.NewPattern(kBytes), check.NewPattern(kBytes)};
  std::byte* const data[2] = {first.data(), second.data()};
  for (int i : {0, 1}) check.Write(data[i], models[i]);
  constexpr size_t kSizes[] = {1,  2,  3,   5,   7,    8,    15,   31,    63,
                               64, 65, 127, 511, 4095, 4096, 4097, 65537, kMiB + 1};
  for (int i = 0; i < 240; ++i) {
    const size_t bytes =
        kSizes[i % 12 == 0 ? std::size(kSizes) - 1 : check.Below(std::size(kSizes) - 1)];
    const int side = static_cast<int>(check.Below(2));
    Bytes& model = models[side];
    const size_t at = check.Below(kBytes - bytes), from = check.Below(kBytes - bytes),
                 odd = check.Below(64);
    switch (i % 4) {
      case 0: {
        Bytes host = check.NewPattern(bytes + odd);
        check.device.CopyFromHost(data[side] + at, host.data() + odd, bytes);
        std::copy(host.begin() + odd, host.end(), model.begin() + at);
        break;
      }
      case 1: {
        Bytes host(bytes + odd + 64, std::byte{7}), expected = host;
        check.device.CopyToHost(host.data() + odd, data[side] + at, bytes);
        std::copy_n(model.begin() + at, bytes, expected.begin() + odd);
        check.ExpectSame(host, expected,
                         absl::StrCat("CopyToHost of ", bytes, " bytes from offset ", at));
        break;
      }
      case 2: {
        check.device.CopyOnDevice(data[side] + at, data[1 - side] + from, bytes);
        std::copy_n(models[1 - side].begin() + from, bytes, model.begin() + at);
        break;
      }
      default: {
        const auto value = static_cast<std::byte>(check.Below(256));
        check.device.Fill(data[side] + at, value, bytes);
        std::fill_n(model.begin() + at, bytes, value);
      }
    }
    // What it wrote and what lies beside it.
    const size_t begin = at < 100 ? 0 : at - 100, end = std::min(kBytes, at + bytes + 100);
    if (!check.ExpectOnDevice(data[side] + begin, Bytes(model.begin() + begin, model.begin() + end),
                              absl::StrCat("around operation ", i,
                                           " (0: from the host, 2: on the device, 3: fill: ", i % 4,
                                           ") of ", bytes, " bytes at offset ", at))) {
      return;
    }
  }
  for (int i : {0, 1}) check.ExpectOnDevice(data[i], models[i], "after many copies");
  // Larger than what a device may do them in.
  const size_t bytes = 9 * kMiB + 5;
  TestBlock from(check.device, bytes), to(check.device, bytes);
  const Bytes sent = check.NewPattern(bytes);
  check.Write(from.data(), sent);
  check.device.CopyOnDevice(to.data(), from.data(), bytes);
  check.ExpectOnDevice(to.data(), sent, "a large CopyOnDevice");
  check.device.Fill(to.data(), std::byte{0xa5}, bytes);
  check.ExpectOnDevice(to.data(), Bytes(bytes, std::byte{0xa5}), "a large Fill");
  QueuePoint point = check.device.QueueCopyFromHost(to.data(), sent.data(), bytes, {});
  Bytes seen(bytes);
  point = check.device.QueueCopyToHost(seen.data(), to.data(), bytes, point);
  check.device.WaitFor(point);
  check.ExpectSame(seen, sent, "large queued copies");
}

void CheckCopiesAreDone(DeviceCheck& check) {
  for (const size_t bytes : {size_t{100}, 64 * kKiB, 2 * kMiB}) {
    TestBlock block(check.device, bytes), other(check.device, bytes);
    const Bytes first = check.NewPattern(bytes);
    Bytes host = first;
    check.device.CopyFromHost(block.data(), host.data(), bytes);
    std::fill(host.begin(), host.end(), std::byte{0});  // the caller's again
    check.device.CopyOnDevice(other.data(), block.data(), bytes);
    check.device.CopyToHost(host.data(), other.data(), bytes);
    check.ExpectSame(host, first, "after CopyFromHost, CopyOnDevice and CopyToHost");
    check.device.Fill(block.data(), std::byte{5}, bytes);
    check.device.CopyToHost(host.data(), block.data(), bytes);
    check.ExpectSame(host, Bytes(bytes, std::byte{5}), "after Fill and CopyToHost");
  }
}

void CheckCopiesOfNothing(DeviceCheck& check) {
  DeviceProvider& device = check.device;
  TestBlock block(device, 64);
  const Bytes kept = check.NewPattern(64);
  check.Write(block.data(), kept);
  Bytes host = kept;
  for (std::byte* const to : {static_cast<std::byte*>(nullptr), block.data() + 64}) {
    device.CopyFromHost(to, nullptr, 0);
    device.CopyToHost(nullptr, to, 0);
    device.CopyOnDevice(to, nullptr, 0);
    device.Fill(to, std::byte{1}, 0);
    QueuePoint point = device.QueueCopyFromHost(to, host.data(), 0, {});
    point = device.QueueCopyToHost(nullptr, to, 0, point);
    device.ComputeAfter(0, point);
    device.WaitFor(point);
    check.Expect(device.HasPassed(point),
                 "the point behind a copy of 0 bytes has been waited for and has not passed");
  }
  check.Expect(device.HasPassed({}), "the point of value 0 has not passed");
  device.WaitFor({});
  check.ExpectOnDevice(block.data(), kept, "beside copies of 0 bytes");
}

void CheckPinnedHost(DeviceCheck& check) {
  DeviceProvider* const pinned = check.device.PinnedHost();
  if (pinned == nullptr) return;
  check.Expect(check.device.PinnedHost() == pinned, "PinnedHost() is another one each time");
  check.Expect(
      pinned->device() == Host(),
      absl::StrCat(pinned->name(), " is of ", DeviceName(pinned->device()), ", expected host"));
  if (!check.Expect(pinned->traits().host_readable,
                    absl::StrCat(pinned->name(), " is not host_readable")))
    return;
  // Blocks of it are apart, and stay what they are while others come and go.
  std::vector<std::unique_ptr<TestBlock>> blocks;
  std::vector<Bytes> written;
  for (int i = 0; i < 60; ++i) {
    if (blocks.size() > 8) {
      const size_t gone = check.Below(blocks.size());
      blocks.erase(blocks.begin() + static_cast<ptrdiff_t>(gone));
      written.erase(written.begin() + static_cast<ptrdiff_t>(gone));
    }
    blocks.push_back(
        std::make_unique<TestBlock>(*pinned, 1 + check.Below(i % 9 == 0 ? 70 * kKiB : 900)));
    const TestBlock& block = *blocks.back();
    check.Expect(
        reinterpret_cast<uintptr_t>(block.data()) % pinned->traits().alignment == 0,
        absl::StrCat(pinned->name(), ": a block is not aligned to ", pinned->traits().alignment));
    written.push_back(check.NewPattern(block.bytes()));
    std::memcpy(block.data(), written.back().data(), block.bytes());
    for (size_t k = 0; k < blocks.size(); ++k) {
      check.ExpectSame(Bytes(blocks[k]->data(), blocks[k]->data() + blocks[k]->bytes()), written[k],
                       "a block of page-locked memory beside others");
    }
  }
  for (const size_t bytes : {size_t{1}, size_t{4097}, kMiB + 1}) {
    TestBlock host(*pinned, bytes), block(check.device, bytes);
    const Bytes sent = check.NewPattern(bytes);
    std::memcpy(host.data(), sent.data(), bytes);
    QueuePoint point = check.device.QueueCopyFromHost(block.data(), host.data(), bytes, {});
    check.device.WaitFor(point);
    std::memset(host.data(), 0, bytes + kReadableTailBytes);
    point = check.device.QueueCopyToHost(host.data(), block.data(), bytes, point);
    check.device.WaitFor(point);
    check.ExpectSame(Bytes(host.data(), host.data() + bytes), sent, "through page-locked memory");
  }
}

}  // namespace tidepool
