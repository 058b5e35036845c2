// Collectives made of exchanges between two ranks at a time.
//
// Sums of more than kTreeBytes go round a ring, first each part's sum (reduce-scatter), then the
// parts (all-gather): each rank sends 2 (n - 1) / n of the bytes, whatever n is. Smaller ones go up
// a binomial tree and down again, 2 log2(n) messages long. Either way the order of each sum hangs
// on rank, size and count alone: the same operands give the same bits in each run, and all ranks
// have the same bits.
//
// Memory: kPieceBytes for what comes, made once. Threads: the transport's.
#ifndef TIDEPOOL_NN_DISTRIBUTED_COLLECTIVES_H_
#define TIDEPOOL_NN_DISTRIBUTED_COLLECTIVES_H_

#include <atomic>
#include <cstdint>

#include "tidepool/memory/buffer.h"
#include "tidepool/nn/distributed/collective.h"
#include "tidepool/nn/distributed/transport.h"

namespace tidepool::nn {

class Collectives {
 public:
  static constexpr size_t kTreeBytes = size_t{16} << 10;
  static constexpr size_t kPieceBytes = size_t{256}
                                        << 10;  // of a ring's part that is sent at a time

  // `transport` outlives it. Throws OutOfMemoryError.
  explicit Collectives(Transport& transport);

  // False: interrupted. Throws kInvalidArgument for a sum of bytes, and as Transport::Run.
  bool Run(const CollectiveCall& call);

  // What this rank has sent. Any thread.
  int64_t bytes_sent() const { return bytes_sent_.load(std::memory_order_relaxed); }
  int64_t messages_sent() const { return messages_sent_.load(std::memory_order_relaxed); }

 private:
  using Part = std::pair<int64_t, int64_t>;
  bool Exchange(int to, const void* out, size_t out_bytes, int from, void* in, size_t in_bytes);
  bool TreeReduce(const Elements& elements);  // to rank 0
  bool TreeBroadcast(const Elements& elements, int root);
  // Each round of the ring sends one part and takes another, which is added, or put there.
  bool RingReduceScatter(const Elements& elements);
  bool RingAllGather(const Elements& elements);
  bool PassOn(const Elements& elements, Part out, Part in, bool add);

  Transport& transport_;
  const int rank_, size_;
  BufferHandle scratch_;  // null: of one rank
  int tag_ = 0;           // of the call under way
  std::atomic<int64_t> bytes_sent_{0}, messages_sent_{0};
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_COLLECTIVES_H_
