#include "tidepool/nn/network/block_body.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tidepool/memory/error.h"
#include "tidepool/memory/workspace/workspace_scope.h"
#include "tidepool/ndarray/creation.h"
#include "tidepool/ndarray/gradient/gradient_tape.h"
#include "tidepool/ndarray/ops/elementwise.h"

namespace tidepool::nn {

// A call of a network, on its thread.
struct BlockCall {
  const Block* root;
  BodyCall* call;
  bool finds_shapes = false;
  bool is_random = false;  // of the layers reached while shapes are found
};

namespace {

thread_local constinit BlockCall* current = nullptr;

// The call is the thread's for as long as this lives.
class CallScope {
 public:
  explicit CallScope(BlockCall* call) : before_(current) { current = call; }
  ~CallScope() { current = before_; }
  CallScope(const CallScope&) = delete;
  CallScope& operator=(const CallScope&) = delete;

 private:
  BlockCall* const before_;
};

BlockCall& Current(const char* what) {
  if (current != nullptr) return *current;
  ThrowFailedPrecondition(
      absl::StrCat("block: ", what, ": no network is being called on this thread"));
}

NDArray ZerosWithBatch(const Shape& shape, int64_t batch, DType dtype) {
  std::vector<int64_t> dims = {batch};
  dims.insert(dims.end(), shape.span().begin(), shape.span().end());
  return Zeros(Shape(dims), dtype, Place::Heap());
}

// Of what a part makes of those zeros. Floats may stand for integers that only the layer knows of, behind one of the program's own, but
// integers are integers.
DType TypeWhileShapesAreFound(const Layer& layer, absl::Span<const NDArray> inputs) {
  std::vector<std::optional<DType>> types;
  for (const NDArray& input : inputs) {
    types.push_back(IsFloating(input.dtype()) ? std::optional<DType>() : input.dtype());
  }
  return CheckTypes(layer, types).value_or(DType::kFloat32);
}

Shape WithoutBatch(const NDArray& array) { return Shape(array.shape().span().subspan(1)); }

}  // namespace

// ---- the call under way ----

bool Block::is_training() { return Current("is_training").call->training; }

NDArray Block::mask(int input) {
  const Arrays& masks = Current("mask").call->masks;
  return input >= 0 && static_cast<size_t>(input) < masks.size() ? masks[static_cast<size_t>(input)]
                                                                 : NDArray();
}

// ---- members ----

BlockMember::BlockMember(Block& parent, const std::string& name)
    : root_(parent.root_), name_(parent.prefix_ + name), number_(root_->members_.size()) {
  parent.AddName(name);
  root_->members_.push_back(this);
}

BlockMember::~BlockMember() { root_->members_[number_] = nullptr; }

BlockCall& BlockMember::CallHere() const {
  if (current == nullptr || current->root != root_) {
    ThrowFailedPrecondition(absl::StrCat(
        "block member [", name_, "]: called outside of a call of its network on this thread"));
  }
  // Only of members of the network are zeros taken away.
  if (!current->finds_shapes && (!found_.is_reached || !found_.zeros.empty())) {
    ThrowFailedPrecondition(
        absl::StrCat("block member [", name_,
                     "]: it was not there when the network was made, which has no parameters for "
                     "it, expected members that the first call of Forward() reaches"));
  }
  return *current;
}

bool BlockMember::IsFrozenBy(const std::vector<bool>& frozen) const {
  FrozenLayer layer;
  for (size_t i = 0; i < found_.specs.size(); ++i)
    layer.Add(frozen[found_.first_parameter + i], found_.specs[i]);
  return layer.is_frozen();
}

NDArray BlockMember::ParameterHere(int i) const {
  const BlockCall& call = CallHere();
  if (!found_.is_reached) {
    ThrowFailedPrecondition(
        absl::StrCat("block member [", name_, "]: parameter ", i,
                     " before the first call of it, expected a call, which tells its shapes"));
  }
  if (i < 0 || static_cast<size_t>(i) >= found_.specs.size()) {
    ThrowInvalidArgument(absl::StrCat("block member [", name_, "]: parameter ", i,
                                      ", expected one of its ", found_.specs.size()));
  }
  const auto number = static_cast<size_t>(i);
  if (call.finds_shapes) return found_.zeros[number];
  const NDArray& parameter = call.call->parameters[found_.first_parameter + number];
  // What is frozen stays, whatever the program writes to what it is given.
  if (!found_.specs[number].is_trained && call.call->training && call.call->frozen != nullptr &&
      IsFrozenBy(*call.call->frozen)) {
    const NoGradientScope constants;
    return parameter.Dup();
  }
  return InComputeType(parameter, found_.specs[number], call.call->compute_type);
}

Part::Part(Block& parent, const std::string& name, AnyLayer layer)
    : BlockMember(parent, name), layer_(std::move(layer)) {
  if (!layer_)
    ThrowInvalidArgument(absl::StrCat("block member [", this->name(), "]: the layer is null"));
}

NDArray Part::parameter(int i) const { return ParameterHere(i); }

NDArray Part::FindShapes(absl::Span<const NDArray> inputs, NDArray* mask) const {
  std::vector<Shape> shapes;
  for (const NDArray& input : inputs) {
    if (input.rank() == 0)
      ThrowInvalidArgument(absl::StrCat("block member [", name_, "]: an input has no batch"));
    shapes.push_back(WithoutBatch(input));
  }
  // The root's list has what is constant here.
  Found& found = root_->members_[number_]->found_;
  Shape output;
  DType type = DType::kFloat32;
  try {
    output = layer_->OutputShapeOf(shapes);
    type = TypeWhileShapesAreFound(*layer_, inputs);
    if (!found.is_reached) {
      found.specs = layer_->ParametersOf(shapes);
      if (shapes.size() == 1) found.carried_shapes = layer_->CarriedShapes(shapes[0]);
      for (const ParameterSpec& spec : found.specs) {
        found.zeros.push_back(Zeros(spec.shape, DType::kFloat32, Place::Heap()));
      }
      found.input_shapes = shapes;
      found.is_reached = true;
    } else if (const std::vector<ParameterSpec> specs = layer_->ParametersOf(shapes);
               !std::equal(specs.begin(), specs.end(), found.specs.begin(), found.specs.end(),
                           [](const ParameterSpec& a, const ParameterSpec& b) {
                             return a.shape == b.shape;
                           })) {
      ThrowInvalidArgument(absl::StrCat(
          "inputs of shape ", shapes[0].ToString(), " want other parameters than those of shape ",
          found.input_shapes[0].ToString(), ", for which they were made"));
    }
  } catch (Error& error) {
    error.AddContext(absl::StrCat("block member [", name_, "]"));
    throw;
  }
  current->is_random = current->is_random || layer_->IsRandom();
  NDArray result = ZerosWithBatch(output, inputs[0].dim(0), type);
  if (mask != nullptr) DropMaskOfOthers(*mask, result);
  return result;
}

NDArray Part::Run(absl::Span<const NDArray> inputs, NDArray* mask) const {
  BlockCall& here = CallHere();
  if (inputs.empty()) ThrowInvalidArgument(absl::StrCat("block member [", name_, "]: no inputs"));
  if (here.finds_shapes) return FindShapes(inputs, mask);
  BodyCall& call = *here.call;
  LayerContext context;
  absl::InlinedVector<NDArray, 8> converted;
  if (call.compute_type.has_value()) {
    for (size_t i = 0; i < found_.specs.size(); ++i) {
      converted.push_back(InComputeType(call.parameters[found_.first_parameter + i],
                                        found_.specs[i], call.compute_type));
    }
    context.parameters = converted;
  } else {
    context.parameters = call.parameters.subspan(found_.first_parameter, found_.specs.size());
  }
  context.training = call.training;
  context.parameters_stay = !call.training && !call.compute_type.has_value();
  if (call.training && call.frozen != nullptr) context.training = !IsFrozenBy(*call.frozen);
  context.seed = call.seed;
  context.stream = StreamOf(call.step, number_);
  if (mask != nullptr) context.mask = *mask;
  if (!call.carried.empty())
    context.carried = call.carried.subspan(found_.first_carried, found_.carried_shapes.size());
  NDArray output;
  LayerWorkspaceManager::Layer placed(call.workspaces, static_cast<int>(number_) + 1, name_);
  try {
    CheckTypes(*layer_, inputs);
    output = layer_->ForwardOf(context, inputs);
  } catch (Error& error) {
    error.AddContext(absl::StrCat("block member [", name_, "]"));
    throw;
  }
  CheckOutput(output, inputs[0].dim(0), "block member [", name_, *layer_);
  placed.Finish(output, mask != nullptr ? context.mask : NDArray());
  if (mask != nullptr) {
    *mask = std::move(context.mask);
    DropMaskOfOthers(*mask, output);
  }
  if (call.see != nullptr) (*call.see)(static_cast<int>(number_), output);
  return output;
}

BlockParameter::BlockParameter(Block& parent, const std::string& name, Shape shape,
                               Initializer initializer)
    : BlockParameter(parent, name,
                     ParameterSpec{.shape = std::move(shape), .initializer = initializer}) {}

BlockParameter::BlockParameter(Block& parent, const std::string& name, ParameterSpec spec)
    : BlockMember(parent, name) {
  found_.zeros.push_back(Zeros(spec.shape, DType::kFloat32, Place::Heap()));
  found_.specs.push_back(std::move(spec));
  found_.is_reached = true;
}

// ---- the body ----

BlockBody::BlockBody(std::vector<InputConfig> inputs, std::unique_ptr<Block> block)
    : block_(std::move(block)) {
  if (block_ == nullptr) ThrowInvalidArgument("network: the block is null");
  if (block_->root_ != block_.get()) {
    ThrowInvalidArgument(
        absl::StrCat("network: the block is part of another one, [", block_->prefix_, "]"));
  }
  inputs_ = std::move(inputs);
  if (inputs_.empty()) ThrowInvalidArgument("network: no inputs, expected at least one");
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const InputConfig& input = inputs_[i];
    if (input.name.empty()) {
      ThrowInvalidArgument(absl::StrCat("network: input ", i, " has no name, expected one"));
    }
    const auto is_called_so = [&](const InputConfig& other) { return other.name == input.name; };
    const auto here = inputs_.begin() + static_cast<std::ptrdiff_t>(i);
    if (std::find_if(inputs_.begin(), here, is_called_so) != here) {
      ThrowInvalidArgument(absl::StrCat("network: two inputs are called \"", input.name, "\""));
    }
    if (input.shape.rank() < kMaxRank) continue;
    ThrowInvalidArgument(absl::StrCat("network: input \"", input.name, "\" is of shape ",
                                      input.shape.ToString(), ", expected at most ", kMaxRank - 1,
                                      " axes, as the batch is one more"));
  }
  std::vector<NDArray> zeros;
  for (const InputConfig& input : inputs_)
    zeros.push_back(ZerosWithBatch(input.shape, 1, input.dtype));
  {
    const ScopeOutOfWorkspaces heap;
    const NoGradientScope constants;
    BodyCall call;
    call.training = true;
    BlockCall here{block_.get(), &call, /*finds_shapes=*/true};
    const CallScope scope(&here);
    for (const NDArray& output : block_->ForwardOf(zeros)) {
      if (!output.is_defined() || output.rank() < 1) {
        ThrowInvalidArgument("network: an output of the block is undefined or has no batch");
      }
      if (output.dim(0) != 1) {
        ThrowInvalidArgument(absl::StrCat("network: output ", output_shapes_.size(),
                                          " of the block has shape ", output.shape().ToString(),
                                          " for a batch of one example, expected [1, ...]"));
      }
      output_shapes_.push_back(WithoutBatch(output));
    }
    is_random_ = here.is_random;
  }
  if (output_shapes_.empty())
    ThrowInvalidArgument("network: the block has no outputs, expected at least one");
  for (BlockMember* member : block_->members_) {
    if (member == nullptr) continue;
    BlockMember::Found& found = member->found_;
    if (!found.is_reached) {
      ThrowInvalidArgument(
          absl::StrCat("network: block member [", member->name_, "] is not called by Forward()"));
    }
    found.zeros.clear();
    found.first_parameter = parameters_.size();
    const bool is_alone = dynamic_cast<const BlockParameter*>(member) != nullptr;
    for (const ParameterSpec& spec : found.specs) {
      parameters_.push_back(
          {is_alone ? member->name_ : absl::StrCat(member->name_, ".", spec.name), spec});
    }
    found.first_carried = carried_shapes_.size();
    carried_shapes_.insert(carried_shapes_.end(), found.carried_shapes.begin(),
                           found.carried_shapes.end());
  }
}

std::string BlockBody::Describe() const {
  std::vector<std::string> parts;
  for (const InputConfig& input : inputs_)
    parts.push_back(absl::StrCat("input ", input.shape.ToString()));
  for (const BlockMember* member : block_->members_) {
    const auto* part = dynamic_cast<const Part*>(member);
    if (part != nullptr)
      parts.push_back(absl::StrCat(part->name(), ": ", part->layer().Describe()));
  }
  return absl::StrJoin(parts, "; ");
}

std::vector<bool> BlockBody::MovedBeside(const std::vector<bool>& frozen) const {
  std::vector<bool> moved(parameters_.size(), false);
  for (const BlockMember* member : block_->members_) {
    if (member == nullptr || (!frozen.empty() && member->IsFrozenBy(frozen))) continue;
    const BlockMember::Found& found = member->found_;
    for (size_t i = 0; i < found.specs.size(); ++i)
      moved[found.first_parameter + i] = !found.specs[i].is_trained;
  }
  return moved;
}

Arrays BlockBody::Forward(BodyCall& call, Arrays inputs) const {
  if (call.compute_type.has_value()) {
    for (NDArray& input : inputs) {
      if (IsFloating(input.dtype())) input = Cast(input, *call.compute_type);
    }
  }
  const int64_t batch = inputs[0].dim(0);
  BlockCall here{block_.get(), &call};
  const CallScope scope(&here);
  Arrays outputs = block_->ForwardOf(inputs);
  if (outputs.size() != output_shapes_.size()) {
    ThrowInvalidArgument(absl::StrCat("network: the block has ", outputs.size(),
                                      " outputs, expected ", output_shapes_.size(),
                                      " as in its first call"));
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    const NDArray& output = outputs[i];
    if (output.is_defined() && output.rank() >= 1 && output.dim(0) == batch &&
        WithoutBatch(output) == output_shapes_[i]) {
      continue;
    }
    ThrowInvalidArgument(absl::StrCat(
        "network: output ", i, " of the block ",
        output.is_defined() ? absl::StrCat("has shape ", output.shape().ToString())
                            : std::string("is undefined"),
        ", expected [", batch, "] + ", output_shapes_[i].ToString(), " as in its first call"));
  }
  if (call.compute_type.has_value() && !call.parameters.empty()) {
    for (NDArray& output : outputs) output = Cast(output, call.parameters[0].dtype());
  }
  call.masks.clear();
  return outputs;
}

void BlockBody::WhileBackward(BodyCall& call, absl::FunctionRef<void()> backward) const {
  BlockCall here{block_.get(), &call};
  const CallScope scope(&here);
  backward();
}

}  // namespace tidepool::nn
