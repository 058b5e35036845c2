// AsyncDataSetIterator and AsyncMultiDataSetIterator: batches made ahead of their use, on threads
// of their own.
//
//   AsyncDataSetIterator ahead(batches, {.prefetch = 4, .producers = 2});
//   for (int epoch = 0; epoch < 3; ++epoch, ahead.Reset()) trainer.Fit(ahead);
//
// Each batch is made in a slot of a ring, by the iterator that reads or decodes it: nothing is
// copied afterwards, and once each kind of batch came a few times memory is what the ring has;
// batches of other sizes make its slots grow. With a device the slots are page-locked host memory, where its
// provider has such. A batch is valid as long as it is kept, after a Reset() and the iterator's end
// too. Order is that of `base`, whatever the number of producers. Those of an iterator that goes by
// index make batches at the same time; any other is asked by one of them at a time.
//
// At most `prefetch` batches wait to be taken, those being made among them. There are slots for
// these and for `kept` more, which the reader is expected to keep at a time. Each batch beyond
// takes fresh memory from the system, and gives it back when it goes, so that nothing ever waits
// for the reader to let go of one.
//
// An iterator that allows no prefetching (a shield, or one that is made ahead already) is asked by
// Next() itself, on the caller's thread and in its current place; there are no threads then. (Around an
// AsyncIterator it is written with its options, AsyncDataSetIterator(ahead, {}): without them that
// would be a copy.)
//
// Reset(), the destructor and a batch that nobody wants any more request a stop of what is being
// made and wait for it: for ever where a source waits without looking at its stop token.
//
// Errors: an exception of `base` comes out of Next() with its type, after the batches before it,
// and again at each call until Reset(); an Error (but of a type derived by others) is a copy that says
// in front of its message which batch it was, failed_batch() does of any exception. What base.Reset() throws comes out of Reset(), and of Next()
// until a Reset() succeeds. Where slots cannot be had it is OutOfMemoryError, where the system
// has no thread for a producer kResourceExhausted, of the constructor. Ownership: `base` outlives it, and is nobody else's meanwhile; afterwards it
// is ahead of what was taken. Threads: one at a time; waiting() and ring_stats() any.
#ifndef TIDEPOOL_NN_DATA_ASYNC_ITERATOR_H_
#define TIDEPOOL_NN_DATA_ASYNC_ITERATOR_H_

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "tidepool/memory/device.h"
#include "tidepool/memory/workspace/ring.h"
#include "tidepool/nn/data/data_set_iterator.h"

namespace tidepool::nn {

// How far ahead, by how many threads, and for whom.
struct AsyncOptions {
  static constexpr int kMostSlots = 65536;     // a ring's
  static constexpr int kMostProducers = 1024;  // and threads

  int prefetch = 2;        // batches made or being made and not taken, at most
  int producers = 1;       // threads that make them
  int kept = 1;            // batches that the reader keeps at a time, for which there is memory
  Device device = Host();  // that batches will be copied to
  std::string name = "batches";  // the ring's, and in messages
  int64_t first_epoch = 0;       // in messages
  // That batches are made in, of one iterator after the other, which it outlives: made by
  // RingConfig(), of these options or others: one that producers would wait in is refused, as they
  // could wait for ever. Null: each has its own.
  RingWorkspace* ring = nullptr;

  // Of a ring with slots for what is made ahead and what is kept.
  WorkspaceConfig RingConfig() const;
};

template <typename Set>
class AsyncIterator final : public Iterator<Set> {
 public:
  // Begins where `base` is. Throws kInvalidArgument for prefetch, producers or kept below 1 or
  // beyond the limits above (prefetch and kept together) and for a ring that is full at some time
  // (policy_ring_full, ring_max_temporary, ring_max_kept), and as said above.
  explicit AsyncIterator(Iterator<Set>& base, const AsyncOptions& options = {});
  ~AsyncIterator() override;

  void Reset() override;
  bool allows_prefetch() const override { return false; }

  // Made and not taken.
  int64_t waiting() const;
  // The batch of this epoch, from 0, whose exception the next Next() throws, be it again; -1 of Reset()'s.
  // None as long as batches before it are to come.
  std::optional<int64_t> failed_batch() const;
  // Nothing but zeros without threads.
  RingStats ring_stats() const;

 protected:
  std::optional<Set> NextBatch(const std::stop_token& stop) override;

 private:
  std::optional<Set> AskBase(const std::stop_token& stop);
  void Produce();
  void MakeOne(std::unique_lock<std::mutex>& lock);
  std::optional<Set> MakeBatch(const std::stop_token& stop, bool& asks);
  void StopMaking(std::unique_lock<std::mutex>& lock);
  void EndThreads();

  static constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();

  Iterator<Set>& base_;
  const AsyncOptions options_;
  const bool by_index_;
  std::optional<RingWorkspace> own_ring_;
  RingWorkspace* ring_ = nullptr;  // null: no prefetching

  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  // Guarded by mutex_:
  std::vector<std::optional<Set>> ready_;  // a circle: batch n at n % prefetch
  int64_t begun_ = 0;                      // batches, in this epoch
  int64_t taken_ = 0;
  int64_t end_ = kNoEnd;      // no batch from there on
  std::exception_ptr error_;  // of batch end_
  int64_t failed_batch_ = 0;
  int64_t epoch_;
  int making_ = 0;           // producers that are at a batch
  bool asking_ = false;      // one of them is asking base_ for it
  bool is_stopped_ = false;  // no new batch begins
  bool is_ending_ = false;
  std::stop_source stop_;  // of what is being made

  std::vector<std::thread> producers_;
};

// Of batches of one input and label, and of several.
using AsyncDataSetIterator = AsyncIterator<DataSet>;
using AsyncMultiDataSetIterator = AsyncIterator<MultiDataSet>;

extern template class AsyncIterator<DataSet>;
extern template class AsyncIterator<MultiDataSet>;

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DATA_ASYNC_ITERATOR_H_
