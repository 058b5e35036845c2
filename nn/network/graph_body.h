// A graph of layers, by configuration.
#ifndef TIDEPOOL_NN_NETWORK_GRAPH_BODY_H_
#define TIDEPOOL_NN_NETWORK_GRAPH_BODY_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tidepool/nn/network/network_body.h"
#include "tidepool/nn/network/sliced_chain.h"

namespace tidepool::nn {

class GraphBody final : public NetworkBody {
 public:
  // Throws kInvalidArgument naming node, found and expected: no layers, inputs or outputs, a null layer, names that are empty, there
  // twice or unknown, a cycle, something that no output needs, shapes without elements or that a layer refuses, types that it does not take, parameters tied to what does not
  // fit.
  explicit GraphBody(NetworkConfig config);

  std::string Describe() const override;
  const NetworkConfig* config() const override { return &config_; }
  std::vector<AnyLayer> chain() const override;
  std::vector<LayerParameters> layer_parameters() const override;
  std::vector<bool> MovedBeside(const std::vector<bool>& frozen) const override;
  // Of all layers, for one example, and its inputs among the elements.
  LayerCost cost_of_example() const;
  Arrays Forward(BodyCall& call, Arrays inputs) const override;
  int64_t SliceOf(int begin, int layers, std::string* why_not) const override;

 private:
  struct Node {
    const Layer* layer;
    std::vector<int>
        inputs;  // values: the network's inputs first, then nodes by their place in the configuration
    std::vector<bool> last_use;   // of each input
    std::vector<int> parameters;  // of parameters()
    bool is_run = true;           // of `parameters`: they lie side by side
    int first_carried = 0, carried = 0;
  };
  // Where a call has its values. Kept for the next call: a call takes no memory for it.
  struct Frame {
    std::vector<NDArray> values, masks;  // by value
    // Of the layer under way; masks only of several inputs.
    std::vector<NDArray> taken, taken_masks, parameters;
    void Clear();
  };
  class FrameLease;
  struct SegmentRun;
  // Layers [begin, end) of `order_`.
  void Run(BodyCall& call, Frame& frame, size_t begin, size_t end) const;
  void RunByPlan(BodyCall& call, Frame& frame) const;
  void RunToRecompute(BodyCall& call, Frame& frame, size_t begin, size_t end,
                      absl::Span<const int> inputs, absl::Span<const int> outputs) const;
  void RunInSlices(BodyCall& call, Frame& frame, size_t begin, size_t end, int64_t slice) const;
  SlicedChain ChainOf(size_t begin, size_t end) const;
  // The values that layers [begin, end) take from outside and give to others.
  void FindEnds(size_t begin, size_t end, std::vector<int>* inputs,
                std::vector<int>* outputs) const;
  void CheckMade(const Node& node, int i, absl::Span<const NDArray> inputs,
                 const NDArray& output) const;
  bool IsFrozen(const Node& node, const std::vector<bool>& frozen) const;

  void CheckNames();
  void Resolve();
  void SortByInputs();
  void FindShapes();
  void AddParameters(size_t node, const std::vector<Shape>& input_shapes);
  // The number of the value that an input or a layer of that name gives.
  int ValueNamed(const std::string& name, const std::string& where) const;
  void FindLastUses();

  NetworkConfig config_;
  std::map<std::string, int> values_, parameter_numbers_;  // by name
  std::vector<Node> nodes_;                                // as in the configuration
  std::vector<int> order_;                                 // of nodes: each behind its inputs
  std::vector<size_t> made_at_,
      last_used_at_;           // of values, by place in `order_`; of inputs 0, of outputs the end
  std::vector<Shape> shapes_;  // of values
  std::vector<int> outputs_;   // values
  mutable std::mutex frames_mutex_;
  mutable std::vector<std::unique_ptr<Frame>> frames_;  // that no call has
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_GRAPH_BODY_H_
