// An HTTP server that reads digits: a model, a predictor for each worker thread, a budget.
//
//   POST /digits    a PNG, or raw grey bytes of one or more images -> {"digits": [{"digit": 7,
//                   "probability": 0.998}]}
//   GET  /memory    who owns what, and the ledger, as text
//   GET  /metrics   all that the runtime counts, for Prometheus
//   GET  /health    "ok"
//
// Answers: 400 for what is no image of the model's size, 503 where all workers are busy for as long
// as a request may take, 507 for a request that exceeds the memory budget (the next one is served
// again), 500 for anything else, such as a model whose outputs are not finite; those of
// bounded_server.h for what exceeds the limits. The body is {"error": "..."} then.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_SERVER_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "tidepool/examples/digit_server/connection.h"
#include "tidepool/nn/model.h"

namespace tidepool {

struct DigitServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;                             // 0: any that is free
  int workers = 2;                          // requests that the model computes at once
  int64_t budget_bytes = int64_t{8} << 20;  // what a worker's requests may own at once
  HttpLimits limits;
};

class DigitServer {
 public:
  // The model, of images [height, width, 1], outlives the server. Throws kInvalidArgument for one
  // that takes something else, and for options out of range: ports of 0 to 65535, 1 to 256 workers,
  // limits and a budget of at least 1.
  DigitServer(nn::Model& model, const DigitServerOptions& options);
  ~DigitServer();  // Stop()

  // Listens on a thread of its own. Throws kFailedPrecondition naming host and port if it cannot,
  // kResourceExhausted where the system refuses threads.
  void Start();
  int port() const;
  // Answers the request that each connection has brought, for limits.stop_time at most; what is
  // still being sent is not waited for, what is computed then only to the end of its part: images
  // of 2^32 operations, or one that takes more (LoadModel limits those). Idempotent.
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
