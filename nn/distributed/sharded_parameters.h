// Parameters of a network in parts on the ranks of a job: each rank keeps its part of every bucket
// (gradient_buckets.h) and of its gradients, and has a whole bucket only while a pass reads or
// writes it (gather_plan.h): gathered ahead of its first layer, dropped behind its last one,
// gathered again for the backward pass, whose gradients are summed up to each rank's part.
//
// Where buckets lie in a pass is planned once, as one array of the workspace that the pass is in.
// What reads parameters that are not there throws kFailedPrecondition.
//
// Every pass over the network is collective: all ranks make the same ones in the same order, or
// Idle() instead. A pass that fails on a rank is ended there as on all others: what ranks do
// together they do to the end.
//
// Bytes that n ranks send in a step: (n - 1) times those of the parameters twice, for gathering,
// less once those of the last layer's buckets, which stay, and of the gradients once. Sums have the
// bits that they have where whole gradients are summed up in the same buckets.
//
// Threads: one, of the steps.
#ifndef TIDEPOOL_NN_DISTRIBUTED_SHARDED_PARAMETERS_H_
#define TIDEPOOL_NN_DISTRIBUTED_SHARDED_PARAMETERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/distributed/communicator.h"
#include "tidepool/nn/distributed/gather_plan.h"
#include "tidepool/nn/distributed/gradient_buckets.h"
#include "tidepool/nn/network.h"
#include "tidepool/nn/network/parameter_host.h"

namespace tidepool::nn {

class ShardedParameters final : public ParameterHost {
 public:
  // Takes the network's parameters over: its own memory for them is given back, but for this rank's
  // part. `ahead`: buckets that are gathered before they are needed, 0 or more. All outlive this.
  // Throws as Network::HostParameters, and OutOfMemoryError; nothing has changed then.
  ShardedParameters(Network& network, Communicator& communicator, const GradientBuckets& buckets,
                    int ahead);
  ~ShardedParameters();
  ShardedParameters(const ShardedParameters&) = delete;
  ShardedParameters& operator=(const ShardedParameters&) = delete;

  // This rank's parts, buckets by their place in the flat array: GradientBuckets::OwnRanges().
  NDArray& values() { return own_values_; }
  // Of the last step.
  const NDArray& gradients() const { return own_gradients_; }

  // Collective. Values for all, from rank 0, a bucket at a time: `fill` is called there for each,
  // with an array to be filled; what it throws ends the call on all ranks.
  void Distribute(absl::FunctionRef<void(int bucket, NDArray& to)> fill);
  // Collective. What all ranks have of a bucket in an array laid out as values(): their values of
  // it in an array of the heap.
  NDArray Gather(const NDArray& own, int bucket, const char* site);
  // As Distribute, into this rank's part of any array that is laid out as values().
  void DistributeInto(const NDArray& own, absl::FunctionRef<void(int bucket, NDArray& to)> fill);
  // The bucket that a parameter is in.
  int bucket_of(int parameter) const { return bucket_of_[static_cast<size_t>(parameter)]; }

  // The memory of the next pass, in the current place. Else the pass takes it, and where it cannot,
  // the other ranks wait for this one.
  void Reserve(Pass pass);
  // A pass of the other ranks that this one has no batch for, or has failed before: gradients are
  // 0.
  void Idle(Pass pass);
  // Whether it is, and no pass has ended since.
  bool is_reserved() const { return memory_.is_defined(); }
  void ReleaseReserve() { memory_ = NDArray(); }

  const GatherPlan& plan() const { return plan_; }

  // ParameterHost:
  void Begin(Pass pass) override;
  const NDArray& value(int parameter) const override;
  const NDArray& gradient(int parameter) const override;
  void EnterForward(int layer) override;
  void EnterBackward(int layer) override;
  void GradientIsFinal(int parameter) override;
  void End() noexcept override;

 private:
  struct Bucket;
  void MakeBuckets(const std::vector<LayerParameters>& layers);
  void PlaceViews();
  void ForwardTo(int place);
  void BackwardTo(int place);
  void StartGather(Bucket& bucket);
  void StartSum(int number);
  void Collect(int number);
  std::pair<int64_t, int64_t> OwnOf(int bucket) const;  // in values()
  NDArray OwnPart(const NDArray& own, int bucket) const;

  Network& network_;
  Communicator& communicator_;
  const GradientBuckets& buckets_;
  int places_ = 0;
  std::vector<int> place_of_layer_;
  std::vector<int> bucket_of_;  // by trained parameter
  std::vector<std::unique_ptr<Bucket>> all_;
  GatherPlan plan_;
  NDArray own_values_, own_gradients_;
  std::vector<NDArray> value_views_, gradient_views_;

  // Of the pass under way.
  NDArray memory_;
  std::optional<Pass> pass_, placed_for_;
  const std::byte* placed_at_ = nullptr;
  bool computes_ = false;           // false: to its end without this rank's computing
  int forward_ = 0, backward_ = 0;  // places entered last
  int gathered_ = 0, there_ = 0;    // of the pass's order
  int summed_ = 0, collected_ = 0;  // of plan_.sums
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_DISTRIBUTED_SHARDED_PARAMETERS_H_
