// Whose bytes a device waits for: what is copied from one device to another without the host is only as good as the
// device that it comes from. Where that is lost before the copy has ended, the target keeps what was there, work of
// its own device that was queued behind the copy goes on with it, and that device's interface tells nobody. So what
// is copied that way is noted here, and until the copy has been seen to end while its source worked, the loss of
// the source is the loss of the target's device as well (device_loss.h), with the cause of the first.
//
//   PrepareToDepend(target, source);               // before anything is queued
//   DependOnQueued(target, source, [&] { return QueueCopy(...); });
//   ...
//   device.WaitFor(point);                    // the host waited for work of the target
//   CheckSources(target, "copy to the host"); // and may look at what it left
//
// A device tells late that it is lost. So whoever has waited for the target asks its sources, and theirs: one that still
// works has not failed before.
//
// Threads: any. Cost: a load where no copy is under way, else a lock and a question to each source.
#ifndef TIDEPOOL_MEMORY_PROVIDER_DEVICE_DEPENDENCE_H_
#define TIDEPOOL_MEMORY_PROVIDER_DEVICE_DEPENDENCE_H_

#include <atomic>
#include <mutex>

#include "tidepool/memory/device.h"
#include "tidepool/memory/provider/device_loss.h"
#include "tidepool/memory/provider/device_provider.h"

namespace tidepool {

// Makes what DependOn notes things in. Throws std::bad_alloc, and as CheckDevice.
void PrepareToDepend(Device target, Device source);
// The target has bytes from here on that come behind `point` of the source. Of the same two a later point passes later, so who
// calls this makes sure that points come here in their order.
void DependOn(Device target, Device source, QueuePoint point) noexcept;
// The same of the point that queue() returns, in the order of those calls: copies between the two are queued one at a time.
// Throws as queue().
template <typename Queue>
QueuePoint DependOnQueued(Device target, Device source, const Queue& queue);

namespace internal {
extern std::atomic<int> dependences_under_way;
std::mutex& OrderOfDependences(Device target, Device source) noexcept;  // after PrepareToDepend
void AskSources(Device target) noexcept;
// `source` is lost. Several may tell so at a time: when this returns, all that depended on it is lost.
void LoseDependents(Device source) noexcept;
void ForgetDependencesForTesting(Device device) noexcept;
}  // namespace internal

template <typename Queue>
QueuePoint DependOnQueued(Device target, Device source, const Queue& queue) {
  const std::lock_guard<std::mutex> order(internal::OrderOfDependences(target, source));
  const QueuePoint point = queue();
  DependOn(target, source, point);
  return point;
}

// Behind a wait for work of `target`: throws DeviceLostError of it when it is lost, by itself or because what it was copied
// from has been lost meanwhile.
inline void CheckSources(Device target, const char* who) {
  // What is not under way any more has passed, or has its target lost before.
  if (internal::dependences_under_way.load(std::memory_order_acquire) != 0)
    internal::AskSources(target);
  CheckNotLost(target, who);
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_PROVIDER_DEVICE_DEPENDENCE_H_
