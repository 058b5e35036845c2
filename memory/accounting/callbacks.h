// What holds for all callbacks of the runtime, those of memory events and those of the Reclaimer.
//
// They are called in the middle of something: of a request, of a Trim(), of a run of the Reclaimer.
// So what a callback does on its thread happens outside of that: the scopes of the thread are
// hidden from it, and what it makes is the process's. What it asks of a workspace that is in the
// middle of something is refused, or left to whoever is at it, and not waited for: that may be its
// own thread, or one that waits for it.
//
// Threads: any; all is the calling thread's. Cost: a few words for each callback.
#ifndef TIDEPOOL_MEMORY_ACCOUNTING_CALLBACKS_H_
#define TIDEPOOL_MEMORY_ACCOUNTING_CALLBACKS_H_

#include <atomic>

#include "absl/functional/function_ref.h"

namespace tidepool::internal {

extern thread_local constinit int callbacks_here;
// Calls its argument where what the thread has open is hidden; null: nothing to hide.
extern std::atomic<void (*)(absl::FunctionRef<void()>)> around_callbacks;

// The calling thread is within a callback, so it may not wait.
inline bool InCallback() noexcept { return callbacks_here > 0; }

// How callbacks are called. What `call` throws ends here.
void CallBack(absl::FunctionRef<void()> call) noexcept;

}  // namespace tidepool::internal

#endif  // TIDEPOOL_MEMORY_ACCOUNTING_CALLBACKS_H_
