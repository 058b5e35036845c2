// Gradients of a network in buckets, whose sums over the ranks are begun while the backward pass
// goes on.
//
// A bucket is consecutive parameters of the flat array, which is summed up in place. A bucket is
// begun when the gradients of all its parameters are final and all buckets before it in the order
// have been begun; the order is the same on all ranks, whatever happens on each. At first it is
// from the array's end, where the last layers are; then, learned, that in which buckets became
// complete. What is complete last, with the pass, is hidden by nothing: of a bucket that goes round
// a ring the first parameters, up to a quarter of it, are one of their own that goes up a tree
// (collectives.h).
//
// Threads: one, of the steps.
#ifndef TIDEPOOL_NN_DISTRIBUTED_GRADIENT_BUCKETS_H_
#define TIDEPOOL_NN_DISTRIBUTED_GRADIENT_BUCKETS_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/network.h"

namespace tidepool::nn {

class GradientBuckets final : public GradientListener {
 public:
  // What a rank has of each sum: all of it, or its part (PartOf).
  enum class Sums : uint8_t { kWhole, kOwnPart };
  // Of at most `bucket_bytes` each, but for a parameter that is larger. Both outlive it.
  GradientBuckets(const Network& network, Communicator& communicator, int64_t bucket_bytes,
                  Sums sums = Sums::kWhole);

  // Of the next step: nothing is complete.
  void Begin();
  void GradientIsFinal(int parameter) override;
  // Begins all that are left, whatever is in them: what ranks do together they do to the end.
  void BeginRest();
  // Waits for all. Throws what the communicator ended with.
  void Wait();

  // All ranks' parts of `flat`, of the gradients' shape, to all; begun in order, and waited for.
  void GatherParts(const NDArray& flat);
  // Of the flat array what is this rank's part of each bucket: ascending.
  std::vector<std::pair<int64_t, int64_t>> OwnRanges() const;

  int count() const { return static_cast<int>(buckets_.size()); }
  int begun() const { return static_cast<int>(begun_); }  // in this step
  // Elements [begin, end) of the flat array.
  std::pair<int64_t, int64_t> range(int bucket) const;
  // By time, of the last step: buckets as they became complete, those that did not last.
  std::vector<int32_t> completed() const;
  size_t completed_count() const { return completed_.size(); }  // in this step
  absl::Span<const int32_t> order() const { return order_; }
  // A permutation of the buckets' numbers.
  void set_order(absl::Span<const int32_t> order);

 private:
  struct Bucket {
    int64_t begin = 0, end = 0;
    int parameters = 0;  // of which gradients are wanted
    int missing = 0;     // of those, in this step
    std::unique_ptr<Pending> sum;
  };
  void BeginComplete();
  void SplitOffTheFirst(const std::vector<int64_t>& begins, int64_t element_bytes);
  void Start(Bucket& bucket);

  const Network& network_;
  Communicator& communicator_;
  const Sums sums_;
  std::vector<Bucket> buckets_;
  std::vector<int> bucket_of_;      // by parameter
  std::vector<int32_t> order_;      // in which they are begun
  std::vector<int32_t> completed_;  // in this step
  size_t begun_ = 0;                // of order_
};

// Memory of a dense array, to be read and written behind what is queued to use it by now, wherever it
// is. Throws kInvalidArgument for types other than f32 and f64, and as DeviceView.
Elements ElementsOf(const NDArray& array);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_GRADIENT_BUCKETS_H_
