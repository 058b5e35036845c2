// A request that waits for a worker or is computed, and the computing of several as one batch. See
// parallel_inference.h.
#ifndef TIDEPOOL_NN_PARALLEL_WAITING_REQUEST_H_
#define TIDEPOOL_NN_PARALLEL_WAITING_REQUEST_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <optional>
#include <string>

#include "absl/types/span.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/ndarray/manager/nd_manager.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

// On its caller's stack, who waits for kDone.
struct WaitingRequest {
  using Clock = std::chrono::steady_clock;
  using Deadline = std::optional<Clock::time_point>;
  enum class State : uint8_t { kWaiting, kRunning, kDone };

  const Arrays* inputs;
  const Arrays* masks;
  Arrays* outputs;  // where the results go
  int64_t examples;
  Deadline deadline;
  Clock::time_point called = Clock::now();
  State state = State::kWaiting;
  std::exception_ptr error;
  std::condition_variable done;
  WaitingRequest* next = nullptr;  // behind it
};

// In the order in which they came. Threads: one.
class WaitingQueue {
 public:
  WaitingRequest* first() const { return first_; }
  void Add(WaitingRequest& request);
  // Null: it is the first.
  WaitingRequest* Before(const WaitingRequest& request) const;
  // The one behind `before`, or the first where that is null.
  void RemoveBehind(WaitingRequest* before);

 private:
  WaitingRequest *first_ = nullptr, *last_ = nullptr;
};

// From now on. One of centuries is none.
WaitingRequest::Deadline DeadlineOf(const std::optional<std::chrono::nanoseconds>& wanted);

// Whether the two can be rows of one batch.
bool FitTogether(const WaitingRequest& a, const WaitingRequest& b);

// Where a batch is computed: in a cycle of the pool, and by a manager below `manager` if there is
// one, which may own so many bytes.
struct BatchPlace {
  WorkspacePool& pool;
  NDManager* manager = nullptr;
  int64_t budget_bytes = 0;
  const void* service = nullptr;  // whose batch it is
};

// One batch of at least one request. Where several together fail each is
// computed alone; `error` is that of each. Throws nothing.
void ComputeRequests(const Network& network, const BatchPlace& place,
                     absl::Span<WaitingRequest* const> batch);

// Throws kFailedPrecondition where the calling thread computes a request of that service (BatchPlace),
// which `name` calls: whoever waits for its requests there would wait for itself.
void CheckComputesNothingOf(const void* service, const std::string& name);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_WAITING_REQUEST_H_
