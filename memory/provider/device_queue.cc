#include "tidepool/memory/provider/device_queue.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tidepool/memory/device_check.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/provider/device_dependence.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/provider_calls.h"
#include "tidepool/memory/provider/value_faults.h"
#include "tidepool/memory/sync/queue_numbers.h"

namespace tidepool {
namespace {

thread_local constinit const QueueScope* newest_scope = nullptr;
thread_local constinit bool in_turn = false;

// For queues whose last handle has gone. A device that is lost tells no end, and nobody waits there for any: its queues end
// at once, so that their numbers are not lost with it.
class EndsOfQueues {
 public:
  explicit EndsOfQueues(DeviceProvider& provider) : provider_(provider) {}
  QueuePoint ComputePoint(int queue) const {
    try {
      return provider_.ComputePoint(queue);
    } catch (...) {
      if (!IsLost(provider_.device())) throw;
      return {};
    }
  }
  void CloseQueue(int queue) const noexcept { provider_.CloseQueue(queue); }

 private:
  DeviceProvider& provider_;
};

void* NativeOf(DeviceProvider& provider, int queue) {
  return AskProvider("DeviceQueue", provider.device(), [&] { return provider.NativeQueue(queue); });
}

}  // namespace

constinit std::atomic<bool> queues_in_use{false};

// Which numbers of one device are in use.
class DeviceQueues {
 public:
  // Never destroyed: queues end in static destructors, too.
  static DeviceQueues& Of(Device device) {
    static constinit std::atomic<DeviceQueues*> all[kDevicePlaces] = {};
    std::atomic<DeviceQueues*>& known = all[DevicePlace("DeviceQueue", device)];
    DeviceQueues* found = known.load(std::memory_order_acquire);
    if (found != nullptr) return *found;
    auto made = std::make_unique<DeviceQueues>();
    return known.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)
               ? *made.release()
               : *found;
  }

  DeviceQueue Open(Device device, void* native) {
    DeviceProvider& provider = GetDeviceProvider(device, "DeviceQueue");
    CheckNotLost(device, "DeviceQueue");
    if (native != nullptr && native == NativeOf(provider, 0)) return DeviceQueue::First(device);
    if (native != nullptr) CheckNoOtherDevices(device, native);
    using State = std::shared_ptr<const DeviceQueue::State>;
    const auto find = [&](int number, const Handles& handles) {
      return native != nullptr && provider.NativeQueue(number) == native ? handles.lock() : State();
    };
    const auto make = [&](int number, Handles& handles) {
      NoteOperation(device, number, nullptr);
      // Before there is a handle, which would close what is not open yet.
      void* const ours = native == nullptr ? provider.NativeQueue(number) : nullptr;
      auto made = std::make_shared<const DeviceQueue::State>(device, number, native);
      if (native == nullptr) ours_[number].store(ours, std::memory_order_relaxed);
      handles = made;
      return State(std::move(made));
    };
    State state = AskProvider("DeviceQueue", device,
                              [&] { return numbers_.Open(provider, native, find, make); });
    if (state != nullptr) return DeviceQueue(std::move(state));
    ThrowResourceExhausted(
        absl::StrCat("DeviceQueue: ", DeviceName(device), " has ", kMostQueues,
                     " queues in use, which is as many as there may be: the first, ", WhoHolds()));
  }

  void Close(Device device, int number) noexcept {
    ours_[number].store(nullptr, std::memory_order_relaxed);  // another may get the address then
    const EndsOfQueues ends(*FindDeviceProvider(device));
    numbers_.Close(ends, number);
  }
  void CountCycle(int number, int change) noexcept {
    cycles_[number].fetch_add(change, std::memory_order_relaxed);
  }
  QueuePoint End(Device device, int number) {
    CheckQueueNumber(device, number);
    DeviceProvider& provider = GetDeviceProvider(device, "DeviceQueue");
    return AskProvider("DeviceQueue", device, [&] { return numbers_.End(provider, number); });
  }
  uint32_t All() noexcept { return numbers_.All(); }
  uint32_t Open() noexcept { return numbers_.Open(); }
  std::shared_mutex& turns() { return turns_; }

 private:
  using Handles = std::weak_ptr<const DeviceQueue::State>;

  std::string WhoHolds() {
    int of_handles = 0, of_cycles = 0, untold = 0;
    long handles = 0;
    numbers_.ForEachOpen([&](int number, bool has_owner, const Handles& kept) {
      const int cycles = cycles_[number].load(std::memory_order_relaxed);
      const long others = kept.use_count() - cycles;
      of_handles += has_owner && others > 0;
      of_cycles += has_owner && others <= 0;
      untold += !has_owner;
      handles += std::max(others, 0l);
    });
    return absl::StrCat(of_handles, " that have handles (", handles,
                        " of DeviceQueue, QueueScope and tensors given by DLPack), ", of_cycles,
                        " that open cycles of workspaces alone hold, ", untold,
                        " whose end the device has not told");
  }

  // As far as it can be told: the caller's own have no name that says whose they are.
  static void CheckNoOtherDevices(Device device, void* native) {
    for (int index = 0; index < kMaxDevicesPerType; ++index) {
      const Device other{device.type, static_cast<uint8_t>(index)};
      if (other == device) continue;
      const int number = Of(other).NumberOf(native);
      if (number < 0) continue;
      ThrowInvalidArgument(absl::StrCat("DeviceQueue: found queue ", number, " of ",
                                        DeviceName(other), ", expected one of ", DeviceName(device),
                                        " to adopt"));
    }
  }
  // Of ours; -1: it is none.
  int NumberOf(const void* native) const noexcept {
    for (int number = 1; number < kMostQueues; ++number) {
      if (ours_[number].load(std::memory_order_relaxed) == native) return number;
    }
    return -1;
  }

  std::atomic<void*> ours_[kMostQueues] = {};  // what the device calls those that it made
  std::atomic<int> cycles_[kMostQueues] = {};  // of workspaces, which are open in them
  QueueNumbers<StdSync, QueuePoint, Handles, kMostQueues> numbers_{queues_in_use};
  std::shared_mutex turns_;
};

DeviceQueue::State::~State() {
  if (number != 0) DeviceQueues::Of(device).Close(device, number);
}

DeviceQueue DeviceQueue::First(Device device) {
  CheckDevice("DeviceQueue", device);
  return DeviceQueue(std::make_shared<const State>(device, 0, nullptr));
}

DeviceQueue DeviceQueue::Here(Device device) {
  for (const QueueScope* scope = newest_scope; scope != nullptr; scope = scope->outer_) {
    if (scope->queue_.device() == device) return scope->queue_;
  }
  return First(device);
}

DeviceQueue DeviceQueue::New(Device device) {
  CheckDevice("DeviceQueue", device);
  return DeviceQueues::Of(device).Open(device, nullptr);
}

DeviceQueue DeviceQueue::Adopt(Device device, void* native) {
  CheckDevice("DeviceQueue", device);
  if (native == nullptr) {
    ThrowInvalidArgument(absl::StrCat("DeviceQueue: adopts a null queue of ", DeviceName(device),
                                      ", expected one of the device's interface (cudaStream_t)"));
  }
  return DeviceQueues::Of(device).Open(device, native);
}

void* DeviceQueue::native() const {
  return NativeOf(GetDeviceProvider(device(), "DeviceQueue"), number());
}

void DeviceQueue::Wait() const {
  DeviceProvider& provider = GetDeviceProvider(device(), "DeviceQueue");
  CheckNotLost(device(), "DeviceQueue");
  const QueuePoint end = EndOfQueue(device(), number());
  AskProvider("DeviceQueue", device(), [&] { provider.WaitFor(end); });
  CheckSources(device(), "DeviceQueue");
  ThrowValueFaults(device(), 1u << number());
}

void DeviceQueue::After(const DeviceQueue& other) const {
  if (device() != other.device()) {
    ThrowInvalidArgument(absl::StrCat("DeviceQueue: a queue of ", DeviceName(device()),
                                      " cannot begin behind one of ", DeviceName(other.device())));
  }
  CheckNotLost(device(), "DeviceQueue");
  if (number() != other.number()) OrderQueueAfter(device(), number(), 1u << other.number());
}

QueueScope::QueueScope(DeviceQueue queue) : queue_(std::move(queue)), outer_(newest_scope) {
  newest_scope = this;
}

// Also one that does not end in the order of blocks.
QueueScope::~QueueScope() {
  const QueueScope** link = &newest_scope;
  while (*link != nullptr && *link != this) link = &const_cast<QueueScope*>(*link)->outer_;
  if (*link == nullptr) {
    std::fprintf(stderr, "tidepool: a QueueScope ends on another thread than it began on\n");
    std::abort();
  }
  *link = outer_;
}

QueueOfCycle::QueueOfCycle(Device device) {
  DeviceQueue here = DeviceQueue::Here(device);
  if (here.number() == 0) return;
  DeviceQueues::Of(device).CountCycle(here.number(), 1);
  queue_.emplace(std::move(here));
}

QueueOfCycle::~QueueOfCycle() {
  if (queue_.has_value()) DeviceQueues::Of(queue_->device()).CountCycle(queue_->number(), -1);
}

int QueueHereSlowly(Device device) noexcept {
  for (const QueueScope* scope = newest_scope; scope != nullptr; scope = scope->outer_) {
    if (scope->queue_.device() == device) return scope->queue_.number();
  }
  return 0;
}

QueuePoint EndOfQueue(Device device, int queue) {
  return DeviceQueues::Of(device).End(device, queue);
}

void ThrowNoSuchQueue(Device device, int queue) {
  ThrowInvalidArgument(absl::StrCat("DeviceQueue: found queue ", queue, " of ", DeviceName(device),
                                    ", expected 0 to ", kMostQueues - 1));
}

void OrderQueueAfter(Device device, int queue, uint32_t others) {
  CheckQueueNumber(device, queue);
  if (others >> kMostQueues != 0) [[unlikely]]
    ThrowNoSuchQueue(device, std::bit_width(others) - 1);
  DeviceProvider& provider = GetDeviceProvider(device, "DeviceQueue");
  if (provider.IsCapturing(queue)) return;
  for (int other = 0; others != 0; ++other, others >>= 1) {
    if ((others & 1) != 0 && other != queue) {
      ComputeAfterOrWait(provider, queue, EndOfQueue(device, other));
    }
  }
}

void ContinueQueueAfter(Device device, int queue, uint32_t others) noexcept {
  try {
    OrderQueueAfter(device, queue, others);
  } catch (...) {
    // The device refuses to wait: the host does, else it has lost its work. One that is not there has none.
    DeviceProvider* const provider = FindDeviceProvider(device);
    for (int other = 0; other < kMostQueues; ++other) {
      try {
        if (provider != nullptr && (others >> other & 1) != 0)
          provider->WaitFor(EndOfQueue(device, other));
      } catch (...) {
      }
    }
  }
}

void ContinueHereAfterAll(Device device) noexcept {
  if (device == Host() || !queues_in_use.load(std::memory_order_relaxed)) return;
  ContinueQueueAfter(device, QueueHere(device), AllQueues(device));
}

bool& DeviceTurns::in_turn() noexcept { return tidepool::in_turn; }

std::shared_mutex& DeviceTurns::mutex() const { return DeviceQueues::Of(device).turns(); }

void DeviceTurns::WaitForFirst() const noexcept {
  try {
    DeviceProvider& provider = GetDeviceProvider(device, "DeviceQueue");
    if (!provider.IsCapturing(0)) provider.WaitFor(EndOfQueue(device, 0));
  } catch (...) {  // the device has failed: there is nothing to wait for
  }
}

template class BasicQueueTurn<StdSync, DeviceTurns>;

uint32_t AllQueues(Device device) noexcept {
  if (!MayBeDevice(device)) return 0;
  return queues_in_use.load(std::memory_order_relaxed) ? DeviceQueues::Of(device).All() : 1;
}

uint32_t OpenQueues(Device device) noexcept {
  if (!MayBeDevice(device)) return 0;
  return queues_in_use.load(std::memory_order_relaxed) ? DeviceQueues::Of(device).Open() : 1;
}

}  // namespace tidepool
