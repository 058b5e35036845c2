// Reads the digits of requests: pictures in, JSON out. Requests of any number of threads are
// computed a few at a time, several together, by a ParallelInference.
//
// The pictures of a request are computed in parts of a batch, each made when its turn comes: what a
// request takes beside its body is one part and its answer, and for these it asks its server for
// room beforehand.
//
// Threads: any, for every call.
#ifndef TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_READER_H_
#define TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_READER_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tidepool/examples/digit_server/bounded_server.h"
#include "tidepool/memory/workspace/workspace_pool.h"
#include "tidepool/nn/model.h"
#include "tidepool/nn/parallel/parallel_inference.h"

namespace tidepool {

struct DigitReaderOptions {
  int workers = 2;                             // batches computed at once
  int threads_of_worker = 1;                   // that its kernels use
  int64_t batch_limit = 32;                    // images
  int64_t queue_limit = 32;                    // requests that wait to be computed
  std::chrono::milliseconds deadline{10'000};  // for the last part of a request to be begun
  int64_t budget_bytes = int64_t{8} << 20;     // that computing a batch may own
};

class DigitReader {
 public:
  // `server` outlives it and is asked for room. Throws kInvalidArgument for a model of anything but
  // images [height, width, 1] and for options out of range, naming them.
  DigitReader(std::shared_ptr<nn::Model> model, const DigitReaderOptions& options,
              BoundedServer& server);

  // The answer to a body, as JSON. Throws kInvalidArgument for what is no image; kOutOfRange for
  // more images than an answer may have; nn::QueueFullError where too many wait, or too much for
  // what there is of memory for them; kDeadlineExceeded; kResourceExhausted beyond a limit of memory
  // that is the request's own; kCancelled once nobody is answered any more; kInternal where the
  // model's outputs are no numbers.
  std::string Answer(std::string_view body);
  // Requests that have not begun are computed by it, who stays as long as it is used. Throws
  // kInvalidArgument for one of other inputs or classes.
  void UpdateModel(std::shared_ptr<nn::Model> model);
  // Requests that wait, and later ones, are kCancelled.
  void Cancel() { service_.Cancel(); }

  const DigitReaderOptions& options() const { return options_; }

 private:
  struct Digit {
    int64_t digit = 0;
    float probability = 0;
  };

  // `images` are read behind those of `digits`.
  void ReadPart(std::string_view images, std::chrono::nanoseconds deadline,
                std::vector<Digit>& digits);
  static std::string JsonOf(const std::vector<Digit>& digits);

  const DigitReaderOptions options_;
  BoundedServer& server_;
  const int64_t height_, width_;
  std::atomic<int64_t> images_of_part_;  // of the model
  WorkspacePool pool_;                   // of the requests' threads
  nn::ParallelInference service_;
};

}  // namespace tidepool

#endif  // TIDEPOOL_EXAMPLES_DIGIT_SERVER_DIGIT_READER_H_
