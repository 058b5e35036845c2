// FrozenNetwork: a network that will not learn any more, handed to an inference engine as a whole.
//
//   FrozenNetwork frozen(*model.network, {.batches = {1, 32}});
//   NDArray y = frozen.Run(x);                     // x [batch] + input_shape, any batch of at least 1
//
// The engine (XNNPACK, with the CPU's backend; nn knows it by ndarray/frozen/frozen_engine.h only) packs the weights and
// lays the activations of all layers into one block. Its 2022 interface fixes the size of a batch when a *runtime* is made and
// lets every runtime pack for itself; what they packed alike is in memory once all the same. So:
//   - `batches` are the sizes there are runtimes for. A batch is computed in pieces of them, the largest that
//     fits first; a rest smaller than all is filled up to the smallest. Other sizes: Prepare().
//   - each size takes the time of packing and memory for activations, and so does each call that overlaps others of the same
//     size. Runtimes are kept for the calls that follow, as many as calls overlapped; Trim() and the Reclaimer give back those at
//     rest, which the next call packs anew.
//   - `stats()` says how many runtimes there are, of how many bytes.
//
// The weights are copied: what is written to the network afterwards changes nothing here, and the network may
// go. Freeze again for new ones. Weights and inputs must be finite (kInvalidArgument names the first that is not), because the
// engine's clamps turn NaN into numbers. For the same reason results that overflow within the network are unspecified.
//
// In 8 bits (kInt8, ranges from samples or of each example): a quarter of the weights' bytes; what it costs in accuracy says
// ReportQuantisation (quantisation_report.h). In 16-bit floats (kFloat16): half of them, slower where they are emulated.
//
// Chains and graphs of one input and one output, by configuration. What the engine or freezing does not know (layers of one's own
// that say nothing, pooling of 1x1, programs) is kUnimplemented naming the layer and the reason; nothing is computed by other
// means instead. Results are within rounding of Network::Forward's, not the same bits; they depend on `batches` and the size of
// the batch, and not on threads.
//
// Memory: the copy of the weights is on the ledger as allocated memory; XNNPACK's, packed weights and activations, is external memory
// of the owner "xnnpack". Both are back when the last handle has gone.
// Threads: any number at once. A call runs on its own thread; with `threads` above 1 its pieces run on as many threads of the
// calling thread's kernels (threads.h), each with a runtime. Cost of a call beside the engine's work: two locks and the checks.
#ifndef TIDEPOOL_NN_INFERENCE_FROZEN_NETWORK_H_
#define TIDEPOOL_NN_INFERENCE_FROZEN_NETWORK_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "tidepool/ndarray/frozen/frozen_graph.h"
#include "tidepool/nn/inference/frozen_options.h"
#include "tidepool/nn/network.h"

namespace tidepool {
class FrozenEngine;
}  // namespace tidepool

namespace tidepool::nn {

class FrozenNetwork {
 public:
  // What there is of it now.
  struct Stats {
    int64_t runtimes = 0;       // that exist, running ones too
    int64_t idle_runtimes = 0;  // of these at rest
    int64_t made_runtimes = 0;  // so far: how often weights were packed
    int64_t weight_bytes = 0;   // of the copy that runtimes are made from
    int64_t runtime_bytes =
        0;  // that the engine took for each by itself: activations, small packed weights, its own records
    int64_t shared_bytes = 0;   // packed weights that all runtimes have in common
    int64_t staging_bytes = 0;  // where pieces are put together that need it
  };

  // Copies the weights and makes a runtime of each size in `options.batches`. Throws kUnimplemented (see above, and where
  // no engine is linked or it does not run here), kInvalidArgument for options and weights, OutOfMemoryError.
  explicit FrozenNetwork(const Network& network, const FrozenOptions& options = {});
  // A graph as it is; of the options, batches and threads alone are looked at.
  explicit FrozenNetwork(FrozenGraph graph, const FrozenOptions& options = {});
  ~FrozenNetwork();
  // What was moved from may be assigned to or destroyed; all else throws kFailedPrecondition.
  FrozenNetwork(FrozenNetwork&& other) noexcept;
  FrozenNetwork& operator=(FrozenNetwork&& other) noexcept;

  // The output [batch] + output_shape() as f32, in the calling thread's current place on the host. Throws
  // kInvalidArgument as Network::CheckFeatures, and for an input that is not finite.
  NDArray Run(const NDArray& x) const;
  // Into an array of that shape, dense, on the host, that does not overlap `x`. Throws likewise.
  void RunInto(const NDArray& x, NDArray& output) const;

  // From now on batches are computed in pieces of `batch`, too, and `runtimes` of them at a time have one that is at
  // rest already. Not while others run. Throws kInvalidArgument below 1, OutOfMemoryError; then all is as before.
  void Prepare(int64_t batch, int64_t runtimes = 1);
  // Gives back all runtimes at rest and what memory of the engine is unused.
  void Trim() const;

  // From any thread; shapes are of one example.
  Stats stats() const;
  const Shape& input_shape() const;
  const Shape& output_shape() const;
  const std::vector<int64_t>& batches() const;  // largest first
  // What the engine computes.
  const FrozenGraph& graph() const;

 private:
  class Runtimes;
  Runtimes& GetRuntimes() const;
  void Begin(FrozenGraph graph, FrozenEngine& engine, const FrozenOptions& options);
  std::unique_ptr<Runtimes> runtimes_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_FROZEN_NETWORK_H_
