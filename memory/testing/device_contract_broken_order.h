// Devices that break one promise of DeviceProvider each, always or one time in ten: of copies, orders, queues and page-locked
// memory.
#ifndef TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_BROKEN_ORDER_H_
#define TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_BROKEN_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <string>

#include "tidepool/memory/device_copy.h"
#include "tidepool/memory/testing/device_contract_broken_memory.h"
#include "tidepool/memory/testing/device_contract_faults.h"

namespace tidepool {

// ---- copies ----

// Of what is copied in pieces the last one.
inline size_t WithoutTheRest(size_t bytes) {
  constexpr size_t kPiece = size_t{4} << 20;
  return bytes > kPiece ? bytes / kPiece * kPiece : bytes;
}
struct CopyFromHostLosesARest : Faulty {
  using Faulty::Faulty;
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    Wrapper::CopyFromHost(to, from, WithoutTheRest(bytes));
  }
};
struct CopyToHostLosesARest : Faulty {
  using Faulty::Faulty;
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    Wrapper::CopyToHost(to, from, WithoutTheRest(bytes));
  }
};
struct CopyOnDeviceLosesARest : Faulty {
  using Faulty::Faulty;
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    Wrapper::CopyOnDevice(to, from, WithoutTheRest(bytes));
  }
};
struct FillLosesARest : Faulty {
  using Faulty::Faulty;
  void Fill(std::byte* to, std::byte value, size_t bytes) override {
    Wrapper::Fill(to, value, WithoutTheRest(bytes));
  }
};
struct QueuedCopyLosesARest : Faulty {
  using Faulty::Faulty;
  QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from, size_t bytes,
                               QueuePoint after) override {
    return Wrapper::QueueCopyFromHost(to, from, WithoutTheRest(bytes), after);
  }
};
struct QueuedCopyToHostLosesARest : Faulty {
  using Faulty::Faulty;
  QueuePoint QueueCopyToHost(std::byte* to, const std::byte* from, size_t bytes,
                             QueuePoint after) override {
    return Wrapper::QueueCopyToHost(to, from, WithoutTheRest(bytes), after);
  }
};

// ---- orders ----

struct QueuedCopyPassesEarly : Faulty {
  using Faulty::Faulty;
  QueuePoint QueueCopyFromHost(std::byte* to, const std::byte* from, size_t bytes,
                               QueuePoint after) override {
    const QueuePoint point = Wrapper::QueueCopyFromHost(to, from, bytes, after);
    return now() ? QueuePoint{} : point;
  }
};
struct QueuedCopyToHostPassesEarly : Faulty {
  using Faulty::Faulty;
  QueuePoint QueueCopyToHost(std::byte* to, const std::byte* from, size_t bytes,
                             QueuePoint after) override {
    const QueuePoint point = Wrapper::QueueCopyToHost(to, from, bytes, after);
    return now() ? QueuePoint{} : point;
  }
};
struct ComputePointPassesEarly : Faulty {
  using Faulty::Faulty;
  QueuePoint ComputePoint(int queue) override {
    return now() ? QueuePoint{} : Wrapper::ComputePoint(queue);
  }
};
struct ComputeAfterIsForgotten : Faulty {
  using Faulty::Faulty;
  void ComputeAfter(int queue, QueuePoint point) override {
    if (!now()) Wrapper::ComputeAfter(queue, point);
  }
};
struct WaitForReturnsEarly : Faulty {
  using Faulty::Faulty;
  void WaitFor(QueuePoint point) override {
    if (!now()) Wrapper::WaitFor(point);
  }
};
struct HasPassedSaysSoEarly : Faulty {
  using Faulty::Faulty;
  bool HasPassed(QueuePoint point) override { return now() || Wrapper::HasPassed(point); }
};
struct HasPassedNeverSaysSo : Faulty {
  using Faulty::Faulty;
  bool HasPassed(QueuePoint point) override { return Wrapper::HasPassed(point) && !now(); }
};

// ---- copies to peers ----

// In the place of the simulated devices' own.
struct FaultyPeers : Faulty, PeerCopies {
  explicit FaultyPeers(bool always)
      : Faulty(always), peers(SwapPeerCopiesForTesting(SimulatedDevice::kDevice.type, this)) {}
  void Finish() override { SwapPeerCopiesForTesting(SimulatedDevice::kDevice.type, peers); }
  std::string WhyNot(Device from, Device to) override { return peers->WhyNot(from, to); }
  PeerCopies* const peers;
};
// One that waits for nothing is done before those that wait.
struct PeerCopiesPassInAnyOrder : FaultyPeers {
  using FaultyPeers::FaultyPeers;
  QueuePoint Queue(const PeerCopy& copy) override {
    if (copy.after.value != 0 || !now()) return peers->Queue(copy);
    std::memcpy(SimulatedDevice::Get(copy.to_device.index).Hidden(copy.to, copy.bytes),
                BytesOf(copy.from, copy.bytes), copy.bytes);
    return {};
  }
};
struct PeerCopiesPassEarly : FaultyPeers {
  using FaultyPeers::FaultyPeers;
  QueuePoint Queue(const PeerCopy& copy) override {
    const QueuePoint point = peers->Queue(copy);
    return now() ? QueuePoint{} : point;
  }
};

// ---- several queues ----

// Only of the first one.
struct OtherQueuesPassEarly : Faulty {
  using Faulty::Faulty;
  QueuePoint ComputePoint(int queue) override {
    return queue != 0 && now() ? QueuePoint{} : Wrapper::ComputePoint(queue);
  }
};
struct OtherQueuesAreNotOrdered : Faulty {
  using Faulty::Faulty;
  void ComputeAfter(int queue, QueuePoint point) override {
    if (queue == 0 || !now()) Wrapper::ComputeAfter(queue, point);
  }
};
// A copy that comes behind the first queue and the copies alone.
struct BesideOtherQueues : Faulty {
  using Faulty::Faulty;
  enum class Call { kFromHost, kToHost, kOnDevice, kFill };
  template <typename Work>
  void Do(Call call, size_t bytes, const Work& ordered, const Work& beside) {
    if (bytes == 0 || call != which || !now()) return ordered();
    Wrapper::WaitFor(Wrapper::ComputePoint(0));
    beside();
  }
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    Do<std::function<void()>>(
        Call::kFromHost, bytes, [=, this] { Wrapper::CopyFromHost(to, from, bytes); },
        [=] { std::memcpy(BytesOf(to, bytes), from, bytes); });
  }
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    Do<std::function<void()>>(
        Call::kToHost, bytes, [=, this] { Wrapper::CopyToHost(to, from, bytes); },
        [=] { std::memcpy(to, BytesOf(from, bytes), bytes); });
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    Do<std::function<void()>>(
        Call::kOnDevice, bytes, [=, this] { Wrapper::CopyOnDevice(to, from, bytes); },
        [=] { std::memcpy(BytesOf(to, bytes), BytesOf(from, bytes), bytes); });
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override {
    Do<std::function<void()>>(
        Call::kFill, bytes, [=, this] { Wrapper::Fill(to, value, bytes); },
        [=] { std::memset(BytesOf(to, bytes), static_cast<int>(value), bytes); });
  }
  Call which = Call::kFromHost;
};
template <BesideOtherQueues::Call kCall>
struct CopyBesideOtherQueues : BesideOtherQueues {
  explicit CopyBesideOtherQueues(bool always) : BesideOtherQueues(always) { which = kCall; }
};
struct OneNativeForAll : Faulty {
  using Faulty::Faulty;
  void* NativeQueue(int) override { return this; }
};
// The work of a queue that is closed is another's, which nobody waits for.
struct PointsOfClosedQueuesAreForgotten : Faulty {
  using Faulty::Faulty;
  QueuePoint ComputePoint(int queue) override {
    const QueuePoint point = Wrapper::ComputePoint(queue);
    ends[queue] = point.value;
    return point;
  }
  void CloseQueue(int queue) noexcept override {
    Wrapper::CloseQueue(queue);
    if (now()) forgotten = ends[queue];
  }
  void WaitFor(QueuePoint point) override {
    if (point.value == 0 || point.value != forgotten) Wrapper::WaitFor(point);
  }
  bool HasPassed(QueuePoint point) override {
    return (point.value != 0 && point.value == forgotten) || Wrapper::HasPassed(point);
  }
  uint64_t ends[kMostQueues] = {}, forgotten = 0;
};

// ---- page-locked memory ----

// Passes on to the device's.
struct PinnedWrapper : DeviceProvider {
  explicit PinnedWrapper(Sometimes& when) : now(when) {}
  static DeviceProvider& of() { return *Wrapper::base().PinnedHost(); }
  std::string name() const override { return of().name(); }
  Device device() const override { return of().device(); }
  MemoryTraits traits() const override { return of().traits(); }
  std::byte* Reserve(size_t bytes) noexcept override { return of().Reserve(bytes); }
  void Unreserve(std::byte* at, size_t bytes) noexcept override { of().Unreserve(at, bytes); }
  bool Commit(std::byte* at, size_t bytes, bool large) noexcept override {
    return of().Commit(at, bytes, large);
  }
  bool Decommit(std::byte* at, size_t bytes) noexcept override { return of().Decommit(at, bytes); }
  // Two blocks in one.
  std::byte* Allocate(size_t bytes, size_t alignment) noexcept override {
    if (last != nullptr && bytes <= sizes[last] && shared == nullptr && now()) return shared = last;
    last = of().Allocate(bytes, alignment);
    sizes[last] = bytes;
    return last;
  }
  void Release(std::byte* data, size_t) noexcept override {
    if (data == shared) return void(shared = nullptr);
    if (data == last) last = nullptr;
    of().Release(data, sizes[data]);
  }
  void CopyFromHost(std::byte* to, const std::byte* from, size_t bytes) override {
    of().CopyFromHost(to, from, bytes);
  }
  void CopyToHost(std::byte* to, const std::byte* from, size_t bytes) override {
    of().CopyToHost(to, from, bytes);
  }
  void CopyOnDevice(std::byte* to, const std::byte* from, size_t bytes) override {
    of().CopyOnDevice(to, from, bytes);
  }
  void Fill(std::byte* to, std::byte value, size_t bytes) override { of().Fill(to, value, bytes); }
  Sometimes& now;
  std::byte *last = nullptr, *shared = nullptr;
  std::map<std::byte*, size_t> sizes;
};
struct PinnedBlocksOverlap : Faulty {
  explicit PinnedBlocksOverlap(bool always) : Faulty(always), pinned(now) {
    base().set_has_pinned_host(true);
  }
  DeviceProvider* PinnedHost() override { return &pinned; }
  PinnedWrapper pinned;
};

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_TESTING_DEVICE_CONTRACT_BROKEN_ORDER_H_
