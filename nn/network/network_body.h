// What a network computes: its parameters by name and its function, without arrays. Two kinds: a graph of layers by
// configuration (graph_body.h), and a program (block_body.h).
#ifndef TIDEPOOL_NN_NETWORK_NETWORK_BODY_H_
#define TIDEPOOL_NN_NETWORK_NETWORK_BODY_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layer_workspace_manager.h"
#include "tidepool/nn/layers/layer.h"
#include "tidepool/nn/network/parameter_host.h"
#include "tidepool/nn/network_config.h"

namespace tidepool::nn {

class ActivationPass;

struct NamedSpec {
  std::string name;  // "0.conv2d.filter"
  ParameterSpec spec;
};

// A call of the function.
struct BodyCall {
  absl::Span<const NDArray> parameters;  // of parameters(), in that order
  bool training = false;
  uint64_t seed = 0, step = 0;  // of what is drawn at random
  // Of floats within the network, where it is not the parameters' own: they are converted for each layer.
  std::optional<DType> compute_type;
  const std::vector<bool>* frozen = nullptr;  // by parameter of parameters(); null: none is
  Arrays masks;                 // by input; fewer or undefined: none. Afterwards by output
  absl::Span<NDArray> carried;  // of carried_shapes(), as LayerContext::carried; empty: nothing is
  const absl::FunctionRef<void(int, const NDArray&)>* see =
      nullptr;                                  // each layer's output; null: nobody does
  LayerWorkspaceManager* workspaces = nullptr;  // null: everything in the current place
  ParameterHost* host = nullptr;  // told of each layer; null: nobody is. Not of a program
  ActivationPass* pass =
      nullptr;  // by whose plan layers are called; null: one behind the other. Not of a program
};

// A layer, by its number in the configuration, and which of parameters() it reads.
struct LayerParameters {
  int layer = 0;
  std::vector<int> parameters;
};

class NetworkBody {
 public:
  virtual ~NetworkBody() = default;

  const std::vector<InputConfig>& inputs() const { return inputs_; }
  const std::vector<Shape>& output_shapes() const { return output_shapes_; }  // of one example
  const std::vector<NamedSpec>& parameters() const { return parameters_; }
  const std::vector<Shape>& carried_shapes() const { return carried_shapes_; }
  bool is_random() const { return is_random_; }  // while training

  virtual std::string Describe() const = 0;
  // What it was made of; null for a program.
  virtual const NetworkConfig* config() const { return nullptr; }
  // The layers of a chain of one input and one output, first to last; empty for anything else.
  virtual std::vector<AnyLayer> chain() const { return {}; }

  // Of layers one behind the other, in the order in which they are called: of how many examples slices are multiples
  // (network/sliced_chain.h). 0: they cannot be sliced, for the reason in `why_not`.
  virtual int64_t SliceOf(int /*begin*/, int /*layers*/, std::string* why_not) const {
    *why_not = "the order of layers is a program's";
    return 0;
  }

  // In the order in which they are called; none of a program, which knows it when it runs.
  virtual std::vector<LayerParameters> layer_parameters() const { return {}; }

  // By parameter: whether it is kept beside trained ones and a step moves it, where those of `frozen` are frozen (empty: none is).
  virtual std::vector<bool> MovedBeside(const std::vector<bool>& frozen) const = 0;

  // `inputs`: checked. The outputs, in the current place. Threads: any number.
  virtual Arrays Forward(BodyCall& call, Arrays inputs) const = 0;
  // Gradients of that call, as `backward` computes them: what they compute again is of `call`.
  virtual void WhileBackward(BodyCall& /*call*/, absl::FunctionRef<void()> backward) const {
    backward();
  }

 protected:
  std::vector<InputConfig> inputs_;
  std::vector<Shape> output_shapes_;
  std::vector<NamedSpec> parameters_;
  std::vector<Shape> carried_shapes_;
  bool is_random_ = false;
};

// Random numbers of a step are of a stream for each layer.
inline uint64_t StreamOf(uint64_t step, size_t layer) { return (step << 20) + layer; }

// Whether a layer is frozen, told its parameters: it has frozen ones, and none that would be trained is left, or what it keeps beside
// them is frozen, which it would move else. Such a layer runs in training as in inference.
class FrozenLayer {
 public:
  void Add(bool is_frozen, const ParameterSpec& spec) {
    has_frozen_ = has_frozen_ || is_frozen;
    has_trained_ = has_trained_ || (spec.is_trained && !is_frozen);
    has_frozen_state_ = has_frozen_state_ || (is_frozen && !spec.is_trained);
  }
  bool is_frozen() const { return has_frozen_state_ || (has_frozen_ && !has_trained_); }

 private:
  bool has_frozen_ = false, has_trained_ = false, has_frozen_state_ = false;
};

// `parameter` as a layer computes by it. State stays what layers write to.
NDArray InComputeType(const NDArray& parameter, const ParameterSpec& spec,
                      const std::optional<DType>& compute_type);

// Whether inputs of these types are what the layer takes, none being unknown; f32 stands for all floats, which a network has of one
// type. Returns the output's, none where only the call tells. Throws kInvalidArgument naming the layer, the input, found and expected.
std::optional<DType> CheckTypes(const Layer& layer, absl::Span<const std::optional<DType>> inputs);
// The same of arrays that are there.
void CheckTypes(const Layer& layer, absl::Span<const NDArray> inputs);

// Throws kInvalidArgument unless it is an array [batch, ...]. `who`: "layer" or "block member", and whose name.
void CheckOutput(const NDArray& output, int64_t batch, const char* who, const std::string& name,
                 const Layer& layer);

// The mask of an output that has no steps, or others than the mask tells of, is none.
void DropMaskOfOthers(NDArray& mask, const NDArray& output);

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_NETWORK_NETWORK_BODY_H_
