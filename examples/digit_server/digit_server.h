// An HTTP server that reads digits: a model, a queue, a few workers, a budget.
//
//   POST /digits    a PNG, or raw grey bytes of one or more images -> {"digits": [{"digit": 7,
//                   "probability": 0.998}]}
//   GET  /memory    who owns what, and the ledger, as text
//   GET  /metrics   what the service has answered and all that the runtime counts, for Prometheus
//   GET  /healthz   "ok", as long as it answers at all; /health likewise
//   GET  /readyz    "ok"; 503 once it drains or stops, so that nobody sends it more
//
// Requests of all connections wait in one queue and are computed several together
// (nn/parallel/parallel_inference.h).
//
// Answers: 400 for what is no image of the model's size; 413 for more images than an answer may
// have; 503 with Retry-After, at once, where as many requests wait as may, or as much of them as
// there is memory for, and once it is cut; 504 for a request that no worker could begin by its
// deadline; 507 for one that exceeds the memory budget (the next one is served again); 500 for
// anything else, such as a model whose outputs are not finite; those of bounded_server.h for what
// exceeds the limits. The body is {"error": "..."} then.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_SERVER_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tidepool/examples/digit_server/connection.h"
#include "tidepool/examples/digit_server/digit_reader.h"
#include "tidepool/nn/model.h"

namespace tidepool {

struct DigitServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any that is free
  DigitReaderOptions reader = {};
  HttpLimits limits = {};  // work_bytes: taken from the reader's, a budget for each worker
};

class DigitServer {
 public:
  // The model, of images [height, width, 1], outlives the server. Throws kInvalidArgument for one
  // that takes something else, and for options out of range, such as ports but for 0 to 65535.
  DigitServer(nn::Model& model, const DigitServerOptions& options);
  // The model stays as long as it is used.
  DigitServer(std::shared_ptr<nn::Model> model, const DigitServerOptions& options);
  ~DigitServer();  // Stop()

  // Listens on a thread of its own. Throws kFailedPrecondition naming host and port if it cannot,
  // kResourceExhausted where the system refuses threads.
  void Start();
  int port() const;
  // Requests that no worker has begun are computed by this one. Throws kInvalidArgument for one of
  // other inputs or outputs, and nothing has changed. Any thread.
  void UpdateModel(std::shared_ptr<nn::Model> model);
  // /readyz is 503 from here on; everything else goes on. Any thread.
  void Drain();
  // Answers the request that each connection has brought, for limits.stop_time at most; what is
  // still being sent is not waited for, what waits to be computed then is not, and what is computed
  // only to the end of its part: images of 2^32 operations, or one that takes more (LoadModel limits
  // those). Idempotent.
  void Stop();
  // As Stop, but false where a request is still computed limits.stop_time after that: without
  // waiting for it, as Stop and the destructor do.
  bool TryStop();
  bool is_listening() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_SERVER_H_
