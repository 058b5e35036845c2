// Predictor: requests of one thread against a model that many share.
//
//   Predictor<Image, Digit> predictor(model, translator);      // cheap; one per thread
//   Digit digit = predictor.Predict(image);
//
// Each call is a cycle of the predictor's workspace with a manager of its own below the predictor's:
// whatever the translator and the network make is gone when the call returns, by an exception too, and
// from the second call on of the same shapes it comes from memory the predictor already has.
// Weights are the model's, not copied, but for a predictor on another device than the network's: those
// are copied there once for all predictors there, and again after the model's were written to. Results
// that are arrays are copied out to where the caller is: the manager it has entered, its workspace, or
// the heap; they stay on the predictor's device.
//
// With graphs (set_graphs) the network runs as a captured graph that is launched with one call once the
// shapes of the batch are steady (ReplayedStep, ndarray/capture): the same bits, for the price of one
// copy of the output. What the translator does is done as ever. No other thread may queue work on the
// device while a graph is captured (the third request of each new shape in a row).
//
// With an engine (set_engine) the network is frozen and handed to it as a whole (frozen_network.h), once for all predictors of
// the model that ask for the same, and again after the weights were written to. Results are within rounding of those of kernels.
//
// Ownership: the translator outlives it. Closing or destroying the model closes the predictor:
// calls throw kFailedPrecondition then. The model may be moved. Errors: whatever translator and
// network throw, as it is; the next call works. Threads: one at a time; any number of predictors at
// once. Cost: beside translator and network a manager, a cycle, and the copies of what leaves.
#ifndef TIDEPOOL_NN_INFERENCE_PREDICTOR_H_
#define TIDEPOOL_NN_INFERENCE_PREDICTOR_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/memory/workspace/workspace.h"
#include "tidepool/ndarray/capture/replayed_step.h"
#include "tidepool/nn/inference/shared_frozen.h"
#include "tidepool/nn/inference/translator.h"
#include "tidepool/nn/layer_workspace_manager.h"

namespace tidepool::nn {

// ---- arrays of a result leave the call ----
inline void MoveOut(NDArray& array, const Place& caller) {
  if (array.is_defined()) array = array.CopyTo(caller.OnDevice(array.device()));
}
// The same of each of them.
void MoveOut(NDList& list, const Place& caller);
// Everything else has no arrays. A type of yours that has: give it a MoveOut in its namespace.
template <typename T>
requires(!std::is_convertible_v<T&, NDArray&>) void MoveOut(T&, const Place&) {}
template <typename A, typename B>
void MoveOut(std::pair<A, B>& values, const Place& caller);
// The same of each of them.
template <typename T>
void MoveOut(std::vector<T>& values, const Place& caller) {
  for (T& value : values) MoveOut(value, caller);
}
// The same of both.
template <typename A, typename B>
void MoveOut(std::pair<A, B>& values, const Place& caller) {
  MoveOut(values.first, caller);
  MoveOut(values.second, caller);
}

// When a predictor's network runs by an inference engine instead of kernels.
enum class EngineUse : uint8_t {
  kNever,
  // For batches of options.batches that the engine is estimated to be ahead with, by shapes alone; all others, what it
  // cannot do, weights and inputs that are not finite, go to kernels, and why_not_engine() says why. Of options.softmax, kernels
  // append it too.
  kWhereAhead,
  // What it cannot do is an error.
  kAlways,
};

// What does not depend on the types.
class PredictorCore {
 public:
  // As Predictor's. Null `device`: the network's.
  PredictorCore(Model& model, const std::string& name, int64_t budget_bytes, const Device* device,
                const WorkspaceConfig& workspace);
  ~PredictorCore();

  // Its own, below that of the model: what requests own, where they are computed, and by which types of arrays.
  NDManager& manager() { return manager_; }
  const Workspace& workspace() const { return workspace_; }
  const LayerWorkspaceManager& workspaces() const { return workspaces_; }
  // A call: cycle, manager, scope. `prepare` runs before the first one.
  void Run(absl::FunctionRef<void(PredictorContext&)> prepare,
           absl::FunctionRef<void(PredictorContext&)> call);
  // The network's output, of one array.
  NDList Forward(const NDList& inputs);
  // Throws kUnimplemented where the device cannot capture, and with workspace mode separate.
  void set_graphs(bool graphs);
  const ReplayedStep::Stats* graph_stats() const;  // null without graphs
  // As of a Predictor.
  void set_engine(EngineUse use, const FrozenOptions& options);
  const std::string& why_not_engine() const { return why_not_engine_; }
  std::shared_ptr<const FrozenNetwork> frozen();
  void Close();

 private:
  // False: kernels are to compute it.
  bool ForwardByEngine(const NDArray& features, NDArray& output);
  std::shared_ptr<const ModelLink> model_;
  std::shared_ptr<Network> network_;
  Workspace workspace_;
  LayerWorkspaceManager workspaces_;
  NDManager manager_;
  std::shared_ptr<const ModelReplica> replica_;  // of the call under way or the last one; or null
  bool prepared_ = false;
  struct Graphs;
  std::unique_ptr<Graphs> graphs_;
  EngineUse engine_use_ = EngineUse::kNever;
  bool appends_softmax_ = false;
  std::shared_ptr<SharedFrozen> shared_frozen_;  // null: kNever
  std::string why_not_engine_;
};

namespace internal {

[[noreturn]] void ThrowBadStreamBatch(int64_t batch);
[[noreturn]] void ThrowBadUnbatch(size_t found, int64_t expected);

}  // namespace internal

template <typename In, typename Out>
class Predictor {
 public:
  // `name`: of its manager in dumps. `budget_bytes`: what a call and the predictor may own at once; 0: no
  // limit; kInvalidArgument below. `workspace`: of its workspace; kInvalidArgument with all reasons why it cannot be. Its
  // workspace_mode is how the network's arrays are placed in a call, whatever the network's own mode: kSeparate (which plans
  // nothing, layer_workspace_manager.h) makes a workspace for each purpose beside it.
  Predictor(Model& model, Translator<In, Out>& translator, const std::string& name = "predictor",
            int64_t budget_bytes = 0,
            const WorkspaceConfig& workspace = WorkspaceConfig::Inference())
      : core_(model, name, budget_bytes, nullptr, workspace), translator_(translator) {}
  // On `device`, whichever the network's is. Throws kUnimplemented when no memory of it is linked.
  Predictor(Model& model, Translator<In, Out>& translator, Device device,
            const std::string& name = "predictor", int64_t budget_bytes = 0,
            const WorkspaceConfig& workspace = WorkspaceConfig::Inference())
      : core_(model, name, budget_bytes, &device, workspace), translator_(translator) {}

  // Of one; throws what translator and network throw.
  Out Predict(const In& input) {
    return std::move(PredictBatch(absl::MakeConstSpan(&input, 1))[0]);
  }

  // One result per input, in their order, by one run of the network if the translator batches.
  std::vector<Out> PredictBatch(absl::Span<const In> inputs) {
    std::vector<Out> results;
    if (inputs.empty()) return results;
    results.reserve(inputs.size());
    const Place caller = Place::Here();
    core_.Run([this](PredictorContext& context) { translator_.Prepare(context); },
              [&](PredictorContext& context) { Call(context, inputs, caller, &results); });
    return results;
  }

  // Inputs from `next` until it gives none, at most `batch` of them at a time; results to `use`, in
  // their order, as they come. An exception of either ends it; what `use` got stays. A `batch` below 1
  // throws kInvalidArgument.
  void PredictStream(absl::FunctionRef<std::optional<In>()> next, absl::FunctionRef<void(Out)> use,
                     int64_t batch = 1) {
    if (batch < 1) internal::ThrowBadStreamBatch(batch);
    std::vector<In> inputs;
    for (bool more = true; more;) {
      inputs.clear();
      while (static_cast<int64_t>(inputs.size()) < batch) {
        std::optional<In> input = next();
        more = input.has_value();
        if (!more) break;
        inputs.push_back(std::move(*input));
      }
      for (Out& result : PredictBatch(inputs)) use(std::move(result));
    }
  }

  // Whether requests are captured as graphs of their device, one for each shape, and what came of it (null without). Throws
  // kUnimplemented where the device cannot.
  void set_graphs(bool graphs) { core_.set_graphs(graphs); }
  const ReplayedStep::Stats* graph_stats() const { return core_.graph_stats(); }
  // From the next request on. Freezes the network, so that what cannot be frozen is known: it is an error for kAlways (kUnimplemented),
  // as bad options and lack of memory are. Not from other threads than the predictor's own.
  void set_engine(EngineUse use, const FrozenOptions& options = {}) {
    core_.set_engine(use, options);
  }
  // Why kernels computed the last request, or would compute the next one; empty: the engine did, or is not asked for.
  const std::string& why_not_engine() const { return core_.why_not_engine(); }
  // What computes, for its stats; null: kernels.
  std::shared_ptr<const FrozenNetwork> frozen() { return core_.frozen(); }
  // For budgets and statistics. Close() ends it early; later requests throw kFailedPrecondition.
  NDManager& manager() { return core_.manager(); }
  const Workspace& workspace() const { return core_.workspace(); }
  void Close() { core_.Close(); }

 private:
  void Call(PredictorContext& context, absl::Span<const In> inputs, const Place& caller,
            std::vector<Out>* results) {
    const Batchifier* batchifier = translator_.batchifier();
    const auto finish = [&](NDList outputs) {
      results->push_back(translator_.ProcessOutput(context, std::move(outputs)));
      MoveOut(results->back(), caller);
    };
    if (batchifier == nullptr) {
      for (const In& input : inputs) {
        finish(core_.Forward(translator_.ProcessInput(context, input)));
      }
      return;
    }
    NDList outputs;
    {
      std::vector<NDList> processed;
      processed.reserve(inputs.size());
      for (const In& input : inputs) processed.push_back(translator_.ProcessInput(context, input));
      outputs = core_.Forward(batchifier->Batchify(processed));
    }
    const auto count = static_cast<int64_t>(inputs.size());
    std::vector<NDList> parts = batchifier->Unbatchify(outputs, count);
    if (static_cast<int64_t>(parts.size()) != count) internal::ThrowBadUnbatch(parts.size(), count);
    for (NDList& one : parts) finish(std::move(one));
  }

  PredictorCore core_;
  Translator<In, Out>& translator_;
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_INFERENCE_PREDICTOR_H_
