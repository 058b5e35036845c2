// BatchStream: batches made ahead of their use, on a thread of its own.
//
//   BatchStream stream(batches.size(), [&](int64_t i) { return batches.Make(i); });
//   while (std::optional<Batch> batch = stream.Next()) trainer.Step([&] { return std::move(*batch); });
//
// Each batch is made in a slot of a ring, so that from the second round on it comes from memory the
// stream has; a batch is valid as long as it is kept, after the stream's end too. At most `prefetch`
// batches wait to be taken, the one being made among them. The stream has slots for these and for `kept`
// more, which the reader is expected to keep at a time. A reader may keep more, or collect them all: each
// batch beyond takes fresh memory from the system, every time, and gives it back when it goes. Leaving a loop early is fine: the end of the stream stops its thread
// after the batch it is making and frees what nobody took.
//
// What `make` returns may come from another stream: the batch keeps its slots there as well.
//
// A maker that waits (for a file, a socket, another thread) takes the stream's stop token as well,
// waits with it, and comes back when a stop is requested, by whatever batch or exception: nobody
// sees either. The end of the stream waits for the maker, and so for ever for one that waits
// without looking at it.
//
//   BatchStream stream(n, [&](int64_t i, const std::stop_token& stop) { return Receive(i, stop);
//   });
//
// Ownership: `make` and what it uses outlive the stream. Errors: an exception of `make` comes out
// of Next(), as it is, after the batches before it; then again at each call. Threads: `make` runs
// on the stream's; Next on any, one at a time.
#ifndef TIDEPOOL_NN_DATA_BATCH_STREAM_H_
#define TIDEPOOL_NN_DATA_BATCH_STREAM_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>
#include <utility>

#include "tidepool/memory/workspace/ring.h"
#include "tidepool/nn/data/batch.h"

namespace tidepool::nn {

class BatchStream {
 public:
  using Make = std::function<Batch(int64_t index)>;
  using StoppableMake = std::function<Batch(int64_t index, const std::stop_token& stop)>;

  static constexpr int kMostSlots = 65536;  // a ring's

  // Batches make(0) to make(count - 1), in that order. Throws kInvalidArgument for a negative count, for a
  // prefetch or kept below 1, and where these two are more than kMostSlots together.
  BatchStream(int64_t count, StoppableMake make, int prefetch = 2, int kept = 1);
  BatchStream(int64_t count, Make make, int prefetch = 2, int kept = 1)
      : BatchStream(
            count,
            [make = std::move(make)](int64_t index, const std::stop_token&) { return make(index); },
            prefetch, kept) {}
  ~BatchStream();

  // Waits for the next one; none after the last.
  std::optional<Batch> Next();
  // Made and not taken.
  int64_t waiting() const;
  RingStats ring_stats() const { return ring_.stats(); }

 private:
  void Produce(const std::stop_token& stop);

  const int64_t count_;
  const size_t prefetch_;
  const StoppableMake make_;
  RingWorkspace ring_;
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_:
  std::deque<Batch> ready_;
  bool done_ = false;
  std::exception_ptr error_;

  std::jthread producer_;  // last: it uses all of the above
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_BATCH_STREAM_H_
