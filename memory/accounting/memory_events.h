// Tells a service that memory runs short, while it can still do something about it.
//
//   const MemoryEventCallback watch([&](const MemoryEvent& event) {
//     if (event.kind == MemoryEvent::Kind::kLevel) accepts = event.level != MemoryLevel::kCritical;
//     if (event.kind == MemoryEvent::Kind::kRefused) std::puts(event.ToString().c_str());
//   });
//
// What is told:
// - kLevel: a budget (memory_budget.h) has reached another level: 80 % and 95 % of its limit.
// - kReclaimBegins, kReclaimEnds: the Reclaimer takes memory back for a request that a budget, the
//   system or a device has refused: how much is wanted, by whom; then how much came. A pair for
//   each request.
// - kRefused: OutOfMemoryError is about to be thrown. The runtime may do without what was refused
//   (a workspace that does not grow goes on spilling), as may whoever catches the error.
//
// Callbacks are called on the thread that makes the request, in the middle of it, and several at
// once where several threads make requests. They may throw (nothing becomes of it), make arrays,
// which go to the heap whatever workspace is current and are the process's whatever owner is, let
// go of arrays, make and let go of containers and raw bytes (memory/pmr; those of ResourceHere()
// are the process's), set limits, register and unregister callbacks, trim and destroy
// workspaces and pools. They may not enter a workspace, nor trim or change one that is in the
// middle of something (a cycle, a Trim(), a run of the Reclaimer, on any thread):
// kFailedPrecondition. What they destroy in the middle of something ends when that is over; a
// pool's Trim() and a run of the Reclaimer leave to other threads what these are giving back. They
// may not wait for a thread that needs memory or what this one holds. What is reclaimed and refused
// within a callback, on its thread, is not told; levels that change there are told when the callbacks
// of all events that are told at once (a request may change the levels of several budgets) have
// returned, each budget once, as it is then, and likewise what the callbacks of that change (eight
// times; what changes then is told with the thread's next event, beside the level before it). Events of
// several threads may come in another order than they happened in: BudgetUsage::level is what holds.
//
// What callbacks make room for, by a higher limit or by arrays they let go of, serves the request:
// it is tried again after kReclaimBegins and after kReclaimEnds. After kRefused it is too late.
//
// Threads: any. fork(): a child has the callbacks, and a callback may fork. Cost: nothing on the way of a request that is
// served from what a workspace or pool has; else a load where nobody listens, a lock and the call
// for each callback and event otherwise.
//
// Nothing is told of memory that neither a budget nor the system refuses.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_EVENTS_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_EVENTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "tidepool/memory/accounting/memory_level.h"
#include "tidepool/memory/device.h"

namespace tidepool {

class MemoryOwner;

// Who needs how much.
struct MemoryRequest {
  // Whose memory.
  Device device;

  const MemoryOwner* owner =
      nullptr;            // never freed; null, until it is told: the thread's current one
  int64_t bytes = 0;      // negative: given back
  const char* what = "";  // "pages", "a heap array"
};

struct MemoryEvent {
  // A budget has reached another level; the Reclaimer begins and has ended; a request is refused.
  enum class Kind : uint8_t { kLevel, kReclaimBegins, kReclaimEnds, kRefused };
  Kind kind;              // says which of the groups below is filled
  MemoryRequest request;  // what it is about

  // kLevel:
  MemoryLevel level = MemoryLevel::kNormal;
  MemoryLevel previous = MemoryLevel::kNormal;
  // Whose budget, on the request's device; MemoryOwner::Process(): the device's; null: the process's.
  const MemoryOwner* budget = nullptr;

  // Of that budget, now.
  int64_t taken_bytes = 0;
  int64_t limit_bytes = 0;

  // kReclaimBegins, kReclaimEnds:
  int64_t wanted_bytes = 0;     // at the beginning
  int64_t reclaimed_bytes = 0;  // 0 at the beginning
  // Still. At the end 0: the request is served; else it is tried once more when all were told.
  int64_t missing_bytes = 0;

  // kRefused; they live as long as the call:
  std::string_view policy;   // what refused: "policy_spill kFail", "a budget"
  std::string_view message;  // of the error
  std::string_view report;   // the ledger, as the error has it

  std::string ToString() const;  // one line
};

// Calls `callback` from its construction until its destruction, which waits for calls on other
// threads to return; not where it is itself within a callback, of the Reclaimer too.
class [[nodiscard]] MemoryEventCallback {
 public:
  explicit MemoryEventCallback(std::function<void(const MemoryEvent&)> callback);
  ~MemoryEventCallback();
  MemoryEventCallback(const MemoryEventCallback&) = delete;
  MemoryEventCallback& operator=(const MemoryEventCallback&) = delete;

 private:
  uint64_t number_;
};

// Tells of the refusal and throws OutOfMemoryError.
[[noreturn]] void ThrowOutOfMemory(const MemoryRequest& request, std::string_view policy,
                                   std::string message, std::string report);

// ---- for the runtime --------------------------------------------------------------------------

namespace internal {

extern std::atomic<int> memory_event_callbacks;
extern thread_local constinit bool in_memory_event;  // on this thread

void TellMemoryEventSlowly(const MemoryEvent& event) noexcept;

// Of the budget, which knows its levels: keeps a change within a callback of this thread; tells of what was kept by `call`. Null
// where there is no budget.
extern std::atomic<void (*)(const MemoryEvent& event) noexcept> keep_level;
extern std::atomic<void (*)(void (*call)(const MemoryEvent&) noexcept) noexcept> tell_kept_levels;

}  // namespace internal

// Whether TellMemoryEvent on this thread has anybody to tell.
inline bool MemoryEventsAreTold() noexcept {
  return internal::memory_event_callbacks.load(std::memory_order_relaxed) > 0 &&
         !internal::in_memory_event;
}

// Without locks of the runtime held.
inline void TellMemoryEvent(const MemoryEvent& event) noexcept {
  if (internal::memory_event_callbacks.load(std::memory_order_relaxed) > 0) {
    internal::TellMemoryEventSlowly(event);
  }
}

}  // namespace tidepool

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_MEMORY_EVENTS_H_
