// ParallelInference: requests of any number of threads to one network, computed by a few workers,
// several together where they wait.
//
//   ParallelInference service(std::make_shared<Network>(std::move(network)),
//                             {.workers = 2, .batch_limit = 32});
//   NDArray y = service.Output(x);   // on any thread: x [n] + input_shape
//   service.UpdateModel(newer);      // requests from here on are computed by it
//
//   kBatched      a worker that becomes free takes the oldest request and what waits behind it of
//                 the same shapes, up to batch_limit examples, computes them as one batch and gives
//                 each caller its rows. Nobody waits for a batch to fill.
//   kSequential   a worker takes one request at a time
//   kInPlace      the caller's thread computes; nothing waits
//
// Results are those of Network::Run of the request alone, to the rounding by which products of more
// rows differ; the same bits in kSequential and kInPlace. They are of the network's type
// (Network::dtype) and made by the caller's thread in its current place, and nothing of a request
// is kept. Masks are requests' inputs like others.
//
// Bounds. At most queue_limit requests wait. One that finds no room waits for it (WhenFull::kWait),
// or is refused at once with a QueueFullError, which is kResourceExhausted; room that becomes free
// is for those who wait for it. A request that no worker has begun by its deadline ends with
// kDeadlineExceeded; one that has begun is finished.
//
// Memory: workers' cycles are of one WorkspacePool, whose plans all share, by the sizes of batches;
// a request of a shape seen before allocates nothing but its results. With a budget each batch is a
// manager's, below one of the worker (NDManager::System() shows them): what is beyond it is
// kResourceExhausted where it is made.
//
// Ownership: the network is shared; nobody may write its parameters while it serves: UpdateModel is
// for that, with a replica that has its own (Network::NewReplica). Threads: any, for every call.
// Errors: a request that the network refuses is refused on its own thread before it waits. Where
// computing several together fails, each is computed alone, so that only those that fail alone
// fail. Shutdown lets what waits, also for room, be computed; requests after it are
// kFailedPrecondition. Cancel ends
// what waits, and what comes, with kCancelled. A layer that it computes may call all of these but
// Shutdown, which would wait for itself.
#ifndef TIDEPOOL_NN_PARALLEL_PARALLEL_INFERENCE_H_
#define TIDEPOOL_NN_PARALLEL_PARALLEL_INFERENCE_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/parallel/inference_stats.h"  // IWYU pragma: export

namespace tidepool::nn {

// As the head of this header says.
enum class InferenceMode : uint8_t { kBatched, kSequential, kInPlace };
enum class WhenFull : uint8_t { kWait, kRefuse };

// A request that found no room where it was not to wait for it.
class QueueFullError final : public Error {
 public:
  explicit QueueFullError(std::string message)
      : Error(absl::StatusCode::kResourceExhausted, std::move(message)) {}
};

// How requests are served.
struct ParallelInferenceConfig {
  InferenceMode mode = InferenceMode::kBatched;  // who computes, and how many at once
  int workers = 2;  // threads that compute; in kInPlace there are none, whatever it says, 0 too
  int64_t batch_limit = 32;              // examples; a request of more is a batch of its own
  int64_t queue_limit = 64;              // requests that wait
  WhenFull when_full = WhenFull::kWait;  // what becomes of one more
  std::optional<std::chrono::nanoseconds>
      deadline;                             // of requests that bring none, from their call on
  int threads_of_worker = 1;                // that its kernels use
  int64_t budget_bytes = 0;                 // that computing a batch may own at once; 0: no limit
  std::string name = "parallel inference";  // of its pool and managers, and in messages
};

class ParallelInference {
 public:
  // Throws kInvalidArgument for a null network, numbers below 1 (of workers in kInPlace below 0), a
  // negative budget and a deadline that is not positive; kResourceExhausted where the system has no
  // thread for a worker.
  explicit ParallelInference(std::shared_ptr<const Network> network,
                             const ParallelInferenceConfig& config = {});
  // Shutdown.
  ~ParallelInference();
  ParallelInference(const ParallelInference&) = delete;
  ParallelInference& operator=(const ParallelInference&) = delete;

  // What a caller asks for.
  struct Request {
    Arrays inputs;                                     // by input of the network, [n] + its shape
    Arrays masks;                                      // by input; fewer or undefined: none
    std::optional<std::chrono::nanoseconds> deadline;  // instead of the configuration's
    std::optional<WhenFull> when_full;                 // likewise
  };
  // By output of the network, [n] + its shape, in the calling thread's current place. Waits. Throws
  // kInvalidArgument as Network::Run, kResourceExhausted, kDeadlineExceeded, kFailedPrecondition
  // (see above), what computing throws.
  Arrays Run(const Request& request);
  // Of one input and one output.
  NDArray Output(const NDArray& features);

  // Requests that no worker has begun are computed by it. Throws kInvalidArgument for a null
  // network and for one of other inputs or outputs; nothing has changed then.
  void UpdateModel(std::shared_ptr<const Network> network);
  std::shared_ptr<const Network> network() const;

  // Waits until all requests are answered and the workers have gone. Idempotent. Throws
  // kFailedPrecondition where the calling thread computes a request of this service; nothing has
  // changed then.
  void Shutdown();
  // What waits is not computed; what has begun is, and nobody waits for it here. Idempotent, also
  // after Shutdown.
  void Cancel();

  // As constructed, and what there was so far; from any thread. Of all services: inference_metrics.h.
  const ParallelInferenceConfig& config() const;
  ParallelInferenceStats stats() const;
  // That of the workers, for its statistics.
  WorkspacePool& workspaces();

 private:
  class Core;
  std::unique_ptr<Core> core_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_PARALLEL_PARALLEL_INFERENCE_H_
