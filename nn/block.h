// Networks as programs: a struct with layers as members, which are called like functions. What parameters there are, and by what
// names, is known by the members.
//
//   struct Residual : Block {
//     using Block::Block;
//     Part first{*this, "first", Conv2D(16, 3, 3, Activation::kRelu, Conv2D::SamePadding(3))};
//     Part second{*this, "second", Conv2D(16, 3, 3, Activation::kIdentity, Conv2D::SamePadding(3))};
//     NDArray operator()(const NDArray& x) const { return Relu(second(first(x)) + x); }
//   };
//
//   struct Classifier : Block {
//     Part stem{*this, "stem", Conv2D(16, 3, 3, Activation::kRelu, Conv2D::SamePadding(3))};
//     Residual a{*this, "a"}, b{*this, "b"};
//     Part out{*this, "out", Dense(10)};
//     NDArray Forward(const NDArray& x) const override { return out(b(a(stem(x)))); }
//   };
//
//   Network network({{"image", {28, 28, 1}}}, std::make_unique<Classifier>());   // parameters "stem.filter", "a.first.bias", ...
//
// Shapes are found by one call of Forward() on a batch of one example of zeros, in which parts compute nothing: each learns what
// its inputs are and gives zeros of its output's shape. So what Forward() computes besides, it computes then too, by a linked
// backend, and parts that it does not reach there have no parameters, which is refused. Parts may be called several times
// on inputs of one shape: they share their parameters.
//
// Parts and blocks hold no arrays: parameters are those of the call under way, so a network may run on many threads, with other
// parameters, and on other devices. Outside of a network's call they throw kFailedPrecondition. They stay where they are
// made: neither copied nor moved.
#ifndef TIDEPOOL_NN_BLOCK_H_
#define TIDEPOOL_NN_BLOCK_H_

#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tidepool/ndarray/ndarray.h"
#include "tidepool/nn/layers/layer.h"

namespace tidepool::nn {

class BlockBody;
class BlockMember;
struct BlockCall;

class Block {
 public:
  // The whole of a network.
  Block();
  // A member of `parent`. Throws kInvalidArgument for a name that is empty, has a dot, or is another member's.
  Block(Block& parent, const std::string& name);
  virtual ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  // Of the whole: one of the two. Inputs are [batch, ...], in the order of the network's.
  virtual NDArray Forward(const NDArray& input) const;
  virtual Arrays ForwardOf(absl::Span<const NDArray> inputs) const;

  // In the call under way.
  static bool is_training();
  // The mask [batch, length] that came with an input; undefined: none.
  static NDArray mask(int input = 0);

 private:
  friend class BlockBody;
  friend class BlockMember;
  friend class Part;
  // Throws for a name that cannot be.
  void AddName(const std::string& name);

  Block* const root_;
  const std::string prefix_;        // "a.", empty at the root
  std::vector<std::string> names_;  // of members
  std::vector<BlockMember*>
      members_;  // of the root: parts and parameters of all, in the order they were made; null: gone
};

// What a part and a parameter have in common: a place among the network's parameters.
class BlockMember {
 public:
  BlockMember(const BlockMember&) = delete;
  BlockMember& operator=(const BlockMember&) = delete;
  const std::string& name() const { return name_; }  // "a.first"

 protected:
  BlockMember(Block& parent, const std::string& name);
  virtual ~BlockMember();

  // The call under way, which is of the network this belongs to. Throws kFailedPrecondition without one.
  BlockCall& CallHere() const;
  // The i-th of this member's parameters in the call under way, as layers compute by it.
  NDArray ParameterHere(int i) const;

 private:
  // Whether it runs in training as in inference where those parameters of the network are frozen.
  bool IsFrozenBy(const std::vector<bool>& frozen) const;

  friend class BlockBody;
  friend class BlockParameter;
  friend class Part;
  // What is found when shapes are, and constant afterwards.
  struct Found {
    bool is_reached = false;
    std::vector<Shape> input_shapes;
    std::vector<ParameterSpec> specs;
    std::vector<NDArray> zeros;  // of those, while shapes are found
    std::vector<Shape> carried_shapes;
    size_t first_parameter = 0, first_carried = 0;
  };

  Block* const root_;
  const std::string name_;
  const size_t number_;  // among the root's members
  Found found_;
};

// A layer of a block.
class Part final : public BlockMember {
 public:
  Part(Block& parent, const std::string& name, AnyLayer layer);

  // The layer's output, with its parameters.
  NDArray operator()(const NDArray& input) const {
    return Run(absl::MakeConstSpan(&input, 1), nullptr);
  }
  // `mask`: of the first input; afterwards the output's. See LayerContext::mask.
  NDArray operator()(const NDArray& input, NDArray& mask) const {
    return Run(absl::MakeConstSpan(&input, 1), &mask);
  }
  // Of a layer of several inputs.
  NDArray operator()(absl::Span<const NDArray> inputs) const { return Run(inputs, nullptr); }

  // As constructed.
  const Layer& layer() const { return *layer_; }
  // In the call under way, in the order of the layer's: to use a parameter in two places. Where layers compute by another type
  // (NetworkOptions::compute_type) it is of that, converted in each call of this.
  NDArray parameter(int i) const;

 private:
  NDArray Run(absl::Span<const NDArray> inputs, NDArray* mask) const;
  NDArray FindShapes(absl::Span<const NDArray> inputs, NDArray* mask) const;
  AnyLayer layer_;
};

// A parameter without a layer.
class BlockParameter final : public BlockMember {
 public:
  BlockParameter(Block& parent, const std::string& name, Shape shape,
                 Initializer initializer = Initializer::Zeros());
  // As all: `spec.name` is not looked at.
  BlockParameter(Block& parent, const std::string& name, ParameterSpec spec);

  // In the call under way; of the type that layers compute by, as Part::parameter().
  NDArray operator()() const { return ParameterHere(0); }
};

}  // namespace tidepool::nn

#endif  // TIDEPOOL_NN_BLOCK_H_
