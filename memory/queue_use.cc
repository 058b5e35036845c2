#include "tidepool/memory/queue_use.h"

#include "tidepool/memory/provider/value_faults.h"
#include "tidepool/memory/sync/queue_order.h"
#include "tidepool/memory/sync/queue_users.h"

namespace tidepool {
namespace {

using Users = QueueUsers<Buffer>;

}  // namespace

bool IsUnused(const Buffer& buffer) { return Users::IsUnused(buffer); }

OrderedUses::OrderedUses(Device device, int queue, absl::Span<const QueueUse> uses)
    : turn_(device, /*alone=*/false) {
  CheckQueueNumber(device, queue);
  if (turn_.has_others()) {
    OrderUsesInTurn<Buffer>(turn_, queue, uses,
                            [=](uint32_t others) { OrderQueueAfter(device, queue, others); });
  }
  for (const QueueUse& use : uses) {
    if (use.buffer != nullptr && !use.writes) Users::NoteFirstReader(*use.buffer);
  }
}

void OrderUsesAlone(const QueueTurn& turn, Device device, int queue, const QueueUse& use) {
  CheckQueueNumber(device, queue);
  if (!turn.has_others()) return;
  OrderUsesInTurnAlone<Buffer>(queue, absl::MakeConstSpan(&use, 1),
                               [=](uint32_t others) { OrderQueueAfter(device, queue, others); });
}

QueuePoint PointAfterUses(const Buffer& buffer) {
  const Device device = buffer.device;
  if (!queues_in_use.load(std::memory_order_relaxed)) return EndOfQueue(device, 0);
  return PointAfterUsesOf(
      buffer, [=](int queue) { return EndOfQueue(device, queue); },
      [=] { return QueueHere(device); },
      [=](int queue, uint32_t others) { OrderQueueAfter(device, queue, others); });
}

void ThrowValueFaultsOf(const Buffer& buffer) {
  if (buffer.device == Host() || !ChecksValues(buffer.device)) return;
  ThrowValueFaults(buffer.device, Users::Of(buffer) | 1u << QueueHere(buffer.device));
}

namespace internal {

void LeaveQueues(Buffer* buffer) noexcept {
  const QueueSet users = Users::Take(*buffer);
  // What a cycle left that has ended waits for nobody any more.
  if (users != 0 && buffer->IsAlive()) buffer->owner->GoesAfter(users);
}

void ReleaseHere(Buffer* buffer) noexcept {
  if (!queues_in_use.load(std::memory_order_relaxed) || buffer->device == Host()) return;
  const QueueSet users = Users::Of(*buffer);
  Users::Take(*buffer);
  if (FindDeviceProvider(buffer->device)->NoteUsers(buffer->data, users)) return;
  ContinueQueueAfter(buffer->device, QueueHere(buffer->device), users);
}

void ReleaseHome(Buffer* buffer, int home) noexcept {
  const QueueSet users = Users::Of(*buffer);
  Users::Take(*buffer);
  if (home != ImportedMemory::kNone) {
    return ContinueQueueAfter(buffer->device, home, users & ~uint32_t{SetOfQueue(home)});
  }
  for (int queue = 0; queue < kMostQueues; ++queue) {
    try {
      if ((users >> queue & 1) != 0) {
        FindDeviceProvider(buffer->device)->WaitFor(EndOfQueue(buffer->device, queue));
      }
    } catch (...) {  // the device has failed: there is nothing to wait for
    }
  }
}

}  // namespace internal

}  // namespace tidepool
