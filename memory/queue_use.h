// Which compute queues of its device use a buffer, so that work in one begins behind the work in another
// that it needs, and memory is not handed out anew under either.
//
// A buffer has a home: the queue in whose order its owner uses the memory again (a workspace's is the one
// its cycle began in). Buffer::queues is the set of queues that agree on its bytes, which is those that
// wrote them last or have read them since; empty: the home. Who reads in a queue that is not in the set, or
// writes in any, begins behind those that are. When the bytes go, the home continues behind the set.
//
//   {
//     const OrderedUses ordered(device, queue, {{x, false}, {z, true}});
//     QueueKernel(...);                  // its work, before `ordered` goes
//   }
//
// Points are those of all that is queued in a queue by then, so that what is queued costs no point; a
// first use in another queue may wait for more than it needs.
//
// Threads: any, also of one buffer. Cost: two loads where there is one queue; else a shared lock of the device, and a
// load for each buffer that is used where it was before; for others the lock alone and a few driver calls for each queue.
#ifndef TIDEPOOL_MEMORY_QUEUE_USE_H_
#define TIDEPOOL_MEMORY_QUEUE_USE_H_

#include <initializer_list>

#include "absl/types/span.h"
#include "tidepool/memory/buffer.h"
#include "tidepool/memory/provider/device_queue.h"

namespace tidepool {

struct QueueUse {
  Buffer* buffer;  // null: none
  bool writes;     // false: reads alone
};

// Work that uses them is queued in `queue` while it lives. Throws kInternal when the device refuses, kInvalidArgument for a
// device or number that there cannot be; nothing is noted then.
class [[nodiscard]] OrderedUses {
 public:
  OrderedUses(Device device, int queue, absl::Span<const QueueUse> uses);
  OrderedUses(Device device, int queue, std::initializer_list<QueueUse> uses)
      : OrderedUses(device, queue, absl::MakeConstSpan(uses.begin(), uses.size())) {}

 private:
  QueueTurn turn_;
};
// The same in a turn of the caller's, alone, of the same device.
void OrderUsesAlone(const QueueTurn& turn, Device device, int queue, const QueueUse& use);

// A block of the heap that no queue was told to use since it was had.
bool IsUnused(const Buffer& buffer);
// Behind all that was queued to use it; where that is several queues the thread's continues behind them. Throws
// kInternal.
QueuePoint PointAfterUses(const Buffer& buffer);
// Behind a wait for that point, before the host reads the bytes: throws kInvalidArgument of faults that kernels have
// found in those queues or the thread's (provider/value_faults.h).
void ThrowValueFaultsOf(const Buffer& buffer);

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_QUEUE_USE_H_
