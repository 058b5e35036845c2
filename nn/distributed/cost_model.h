// What collectives cost by the latency and bandwidth of links, and what of that a backward pass
// hides.
//
// A message of s bytes takes alpha + beta s. Of n ranks and S bytes, as collectives.h does it:
//   all-reduce beyond kTreeBytes   2 (n - 1) (p alpha + beta S / n), p = ceil(S / n / kPieceBytes)
//   reduce-scatter, all-gather     half of that
//   all-reduce of less             2 ceil(log2 n) (alpha + beta S)
//   broadcast                      the pieces one behind the other:
//                                  (p - 1 + ceil(log2 n)) (alpha + beta S / p),
//                                  p = ceil(S / kPieceBytes), where a rank's link sends to several
//                                  at a time; up to ceil(log2 n) times that where it does not
// Adding up is not counted: memory is read faster than links send. For jobs that are planned;
// nothing decides by it.
#ifndef TIDEPOOL_NN_DISTRIBUTED_COST_MODEL_H_
#define TIDEPOOL_NN_DISTRIBUTED_COST_MODEL_H_

#include <cstdint>

#include "absl/types/span.h"
#include "tidepool/nn/distributed/collective.h"

namespace tidepool::nn {

struct LinkCost {
  double alpha = 0;  // seconds a message
  double beta = 0;   // seconds a byte
};

// Of one rank, all of which begin at once. `bytes` of the whole array.
double SecondsOf(CollectiveKind kind, int64_t bytes, int ranks, const LinkCost& link);

// A bucket of gradients, in the order of their sums: when it is complete, from the backward pass's
// beginning.
struct BucketTime {
  double complete = 0;  // seconds
  int64_t bytes = 0;
};

struct Overlap {
  double communication = 0;  // seconds, of all buckets
  double exposed = 0;        // behind the backward pass's end
  double hidden() const { return communication > 0 ? 1 - exposed / communication : 1; }  // share
};

// Sums run one behind the other, each begun when its bucket is complete. `backward`: seconds of the
// whole pass.
Overlap OverlapOf(absl::Span<const BucketTime> buckets, double backward, int ranks,
                  const LinkCost& link);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_COST_MODEL_H_
